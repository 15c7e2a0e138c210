#pragma once
// Whether these tests can run, said once if not; and figures that are printed as they are known.

#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <string>

#include "env/gpu/find_gpus.h"

namespace kevin::testing {

inline bool HasGpu() {
  static const bool kHas = [] {
    std::string why;
    if (!FindGpus(&why).empty()) return true;
    std::cerr << "the local model is not tested on a GPU here: " << why << "\n";
    return false;
  }();
  return kHas;
}

// With the seconds since the first figure; flushed, so that a run that is cut off leaves what it found.
inline void PrintFigure(const std::string& line) {
  using Clock = std::chrono::steady_clock;
  static const Clock::time_point kStart = Clock::now();
  fmt::print("{:6.1f} s  {}\n", std::chrono::duration<double>(Clock::now() - kStart).count(), line);
  std::fflush(stdout);
}

}  // namespace kevin::testing
