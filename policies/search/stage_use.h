#pragma once
// Inside Fuse and the writers: what a stage reads, writes and computes, for questions about pairs of stages.

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "policies/search/program.h"

namespace kevin::search {

struct BufferSet {
  BufferSet() = default;
  explicit BufferSet(std::vector<int> buffers);
  std::vector<int> numbers;  // sorted
  uint64_t mask = 0;  // a bit for those that are equal modulo 64: most pairs of sets have nothing in common
  bool Has(int buffer) const;
  bool Intersects(const BufferSet& other) const {
    return (mask & other.mask) != 0 && IntersectsSorted(other);
  }

 private:
  bool IntersectsSorted(const BufferSet& other) const;
};

struct StageUse {
  BufferSet reads, writes;
  size_t form = 0;  // a digest: equal for stages that compute the same from and to the same buffers
};
StageUse StageUseOf(const Stage& stage);

// Equal for stages that compute the same from and to buffers alike, but for the numbers of their variables and buffers and
// for the places of buffers. The numbers are in the same order in both, so that sums have the same order of terms
// too. `buffers`: all that the stage uses. Bytes, not text; empty where the stage has loops around it, or is too large
// to compare.
std::string StageKey(const Program& program, const Stage& stage, const std::vector<int>& buffers);

}  // namespace kevin::search
