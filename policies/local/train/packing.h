#pragma once
// Which samples go through the model together. Plain arithmetic, the same on every machine.

#include <cstdint>
#include <span>
#include <vector>

namespace kevin::local {

// First fit, the longest first: indices into `lengths`, grouped so that no group's lengths add up to more
// than `budget`; what is longer than that by itself is a group of its own. Within a group, and groups by
// their first member, in the order of the longest first; equal lengths keep their order.
std::vector<std::vector<size_t>> Pack(std::span<const int64_t> lengths, int64_t budget);

// 0 ... n-1 in an order that `seed` and `draw` fix.
std::vector<size_t> Shuffled(size_t n, uint64_t seed, uint64_t draw);

// The share of n things, cut into `parts` runs that differ by one at most, that `part` has: [first, last).
struct Share {
  size_t first = 0, last = 0;
};
Share ShareOf(size_t n, size_t parts, size_t part);

}  // namespace kevin::local
