#pragma once
// The fastest correct kernels of every problem in a database, for programs that learn from earlier records
// (agent/memory.h).

#include <cstddef>
#include <string>
#include <vector>

#include "env/workload.h"

namespace kevin {

class Store;

// One text under one question. Times and speed-ups are geometric means over its measurements; repetitions of a stored
// verdict (cached_from) do not count.
struct BestKernel {
  std::string problem_hash, kind, device;
  Workload workload;
  std::string episode;
  int turn =
      0;  // the first of it in the database; Store::LoadTurn gives its text and the trials of its knobs
  double speedup = 0, candidate_us = 0;
  int measurements = 0;
};

// Of each problem, workload (its rules included), kind and device at most `most` texts, the fastest first; only verdicts
// `measured` that stand and are of the current version of the rules (kRulesVersion). Ordered by problem, workload, kind
// and device. Reads every evaluation once, without its texts. Throws as the store does.
std::vector<BestKernel> BestKernels(Store& store, size_t most);

}  // namespace kevin
