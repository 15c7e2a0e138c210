#pragma once
// Whether these tests can run; says once why not.

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

}  // namespace kevin::testing
