#pragma once
// What a collection may use. Time counts for this process; everything else for the collection as a whole,
// over all processes and interruptions.

#include <cstdint>
#include <optional>
#include <string>

#include "trajectories/work_queue.h"

namespace kevin {

struct Budget {
  std::optional<double> hours, dollars, device_s;
  std::optional<int64_t> tokens;  // prompt and completion together
  double dollars_per_million_prompt = 0, dollars_per_million_completion = 0;
  bool costs_are_known = false;  // dollars are what the requests cost, rather than tokens times these prices
};

double DollarsFor(const Budget& budget, const CollectionUsage& usage);

// Which limit is reached, in words ("2 hours", "500000 tokens"); empty: none.
std::string Exceeded(const Budget& budget, const CollectionUsage& usage, double process_seconds);

// The limit, of those on dollars and tokens, of which most is used, in the same words; empty: neither is set.
std::string Nearest(const Budget& budget, const CollectionUsage& usage);

}  // namespace kevin
