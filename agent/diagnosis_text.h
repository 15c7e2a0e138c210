#pragma once
// A diagnosis in words, for the next prompt and for `kevin bench`: the evidence, and what follows from it. Says nothing
// where there is no evidence. Pure; any thread.

#include <string>

#include "env/diagnosis/diagnosis.h"

namespace kevin {

inline constexpr size_t kMaxDiagnosisBytes = 4000;

// What decides whether a time says something about memory. 0: unknown, and nothing is concluded from it.
struct MemoryFacts {
  double tensor_bytes = 0;     // of inputs, parameters and outputs together
  double cache_bytes = 0;      // of the largest cache
  double bandwidth_share = 0;  // of the measured memory bandwidth, by the usual count of bytes
};

// Markdown: a heading line, one point of a list for each finding, and the hot loop's instructions in a fence. At most
// kMaxDiagnosisBytes, hidden characters as escapes, no line end at the end. Empty: no finding.
// `measured_us`: the verdict's time of a call; 0: unknown. Where the diagnosis's own time is far from it, other programs
// used the processor during one of them, and no conclusion is drawn from the diagnosis's times.
std::string DiagnosisText(const Diagnosis& diagnosis, double measured_us = 0, const MemoryFacts& memory = {});

}  // namespace kevin
