#pragma once
// What a candidate's PTX may hold: the lists behind InspectPtx. All are allow-lists: a name that is not on
// one is refused, wherever it stands; who wrote it (the compiler, inline assembly, PTX by hand) makes no
// difference, as the marks around inline assembly could be forged.

#include <string>
#include <string_view>

namespace kevin {

// `opcode` is the whole word, "ld.global.f32". Empty when it may be used, else why not and what to do.
std::string WhyOpcodeRefused(std::string_view opcode);

// `name` without the percent sign and component: "tid", "clock64". Empty when it may be read, else why not.
std::string WhyRegisterRefused(std::string_view name);

// A function that PTX declares but does not define ("vprintf"): why it cannot be had.
std::string WhyFunctionRefused(std::string_view name);

}  // namespace kevin
