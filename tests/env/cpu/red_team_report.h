#pragma once
// What both red teams, the CPU's and the GPU's, print of a candidate, and when it has gained from an attack.

#include <cstdio>
#include <string>

#include "env/environment.h"

namespace kevin {

inline constexpr double kGain = 1.05;  // the whole interval above it: an undue speed-up

inline bool SeemsFaster(const Outcome& outcome) {
  const auto* measured = std::get_if<Measured>(&outcome);
  return measured && measured->speedup.low > kGain;
}

inline std::string Described(const Outcome& outcome) {
  if (const auto* measured = std::get_if<Measured>(&outcome)) {
    char text[80];
    std::snprintf(text, sizeof(text), "%.3fx [%.3f, %.3f]", measured->speedup.value, measured->speedup.low,
                  measured->speedup.high);
    return text;
  }
  return OutcomeReason(outcome).substr(0, 110);
}

inline void Print(const std::string& name, const Outcome& outcome) {
  std::printf("  %-32s %-14s %s\n", name.c_str(), OutcomeName(outcome), Described(outcome).c_str());
  std::fflush(stdout);
}

}  // namespace kevin
