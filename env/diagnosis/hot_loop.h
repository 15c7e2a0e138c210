#pragma once
// The loop in which a compiled candidate spends its time, from its disassembly and from samples of its program counter.
// Nothing of the disassembly is passed on as it is: an instruction is its mnemonic and its operands in a small set of
// characters, without the names of symbols, which the candidate chooses. Pure; any thread.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "env/diagnosis/diagnosis.h"

namespace kevin {

// objdump's arguments before the file.
const std::vector<std::string>& DisassemblyArguments();

// Addresses in the library and how often a thread was there.
using AddressSamples = std::map<uint64_t, int>;

// `disassembly` is the output of objdump with DisassemblyArguments. `all_samples`: of the candidate's threads, also
// those outside of its code. `source_name`, `lines`: the candidate's file in the line table, and its length. Nothing:
// the text has no loop, or no samples fell into one although there are samples.
std::optional<HotLoop> FindHotLoop(const std::string& disassembly, const AddressSamples& samples,
                                   int all_samples, const std::string& source_name, int lines);

}  // namespace kevin
