#pragma once
// Honest alternatives: kernels that are right but compute in another order or with another formula than eager
// does (serial sums, split sums, online softmax, Welford, fast intrinsics). A problem's check must let them
// pass.

#include <string>
#include <vector>

#include "env/problem/problem.h"

namespace kevin {

struct HonestKernel {
  std::string name;    // "serial sum", "split-K"
  std::string source;  // a `cpp` candidate
};

// For the problems that ship with Kevin; empty for others.
std::vector<HonestKernel> HonestKernelsFor(const Problem& problem);

}  // namespace kevin
