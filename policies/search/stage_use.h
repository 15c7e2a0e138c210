#pragma once
// Inside Fuse: what a stage reads, writes and computes, for questions about pairs of stages.

#include <cstddef>
#include <vector>

#include "policies/search/program.h"

namespace kevin::search {

struct StageUse {
  std::vector<int> reads, writes;  // buffers, sorted
  size_t form = 0;  // a digest: equal for stages that compute the same from and to the same buffers
};
StageUse StageUseOf(const Stage& stage);

// Of two sorted lists.
bool Intersects(const std::vector<int>& a, const std::vector<int>& b);

}  // namespace kevin::search
