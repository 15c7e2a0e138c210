#pragma once
// START HERE for PTX. Inspects the PTX of a module before it runs; all of the machine code comes from it. Refused is
// what only serves to deceive a clock or a checker, or what outlives a launch: reads of clock and globaltimer,
// device-side launch, printf and traps, external functions, textures, instructions outside an allow-list (it covers
// the output of the compiler and the permitted inline assembly), and more than a little writable global memory (the
// rest is restored before every call). What this reader cannot parse is refused too. Pure; thread-safe.

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "env/gpu/compile/gpu_module.h"

namespace kevin {

// All variables of the machine code, also those without a use in a kernel: headers leave hundreds of bytes of
// small constants in `.global`, and a stray pointer reaches them.
struct GlobalVariable {
  std::string name;  // in the machine code
  int64_t bytes = 0;
  bool constant = false;  // .const
};

struct PtxReport {
  std::string refused;  // empty, or the reason with advice, for the author
  std::vector<GlobalVariable> globals;
  std::vector<std::pair<std::string, std::vector<KernelParameter>>> entries;  // lowered name, parameters
};

inline constexpr int64_t kMaxWritableGlobalBytes = 64 << 10;

// `debug`: printf is allowed.
PtxReport InspectPtx(const std::string& ptx, bool debug);

// The lists behind InspectPtx are allow-lists: a name outside them is refused everywhere. The origin
// (compiler, inline assembly, hand-written PTX) makes no difference, since the marks around inline assembly
// could be forged.

// `opcode` is the whole word, "ld.global.f32". Empty: allowed; else the reason, with advice.
std::string WhyOpcodeRefused(std::string_view opcode);

// `name` without the percent sign and component: "tid", "clock64". Empty: allowed; else the reason.
std::string WhyRegisterRefused(std::string_view name);

// The reason, for a function that PTX declares but does not define ("vprintf").
std::string WhyFunctionRefused(std::string_view name);

}  // namespace kevin
