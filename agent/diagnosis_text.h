#pragma once
// A diagnosis in words, for the next prompt and for `kevin bench`: the evidence, and what follows from it. Says nothing
// where there is no evidence. Pure; any thread.

#include <string>

#include "env/diagnosis/diagnosis.h"

namespace kevin {

inline constexpr size_t kMaxDiagnosisBytes = 4000;

// Markdown: a heading line, one point of a list for each finding, and the hot loop's instructions in a fence. At most
// kMaxDiagnosisBytes, hidden characters as escapes, no line end at the end. Empty: no finding.
// `measured_us`: the verdict's time of a call; 0: unknown. Where the diagnosis's own time is far from it, other programs
// used the processor during one of them, and no conclusion is drawn from the diagnosis's times.
std::string DiagnosisText(const Diagnosis& diagnosis, double measured_us = 0);

}  // namespace kevin
