#include "policies/local/train/packing.h"

#include <algorithm>
#include <numeric>

namespace kevin::local {
namespace {

// SplitMix64: the standard library's shuffles differ from one library to the next.
uint64_t Next(uint64_t* state) {
  uint64_t z = (*state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

}  // namespace

std::vector<std::vector<size_t>> Pack(std::span<const int64_t> lengths, int64_t budget) {
  std::vector<size_t> order(lengths.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return lengths[a] > lengths[b]; });
  std::vector<std::vector<size_t>> groups;
  std::vector<int64_t> room;
  for (const size_t i : order) {
    size_t g = 0;
    while (g < groups.size() && room[g] < lengths[i]) ++g;
    if (g == groups.size()) groups.emplace_back(), room.push_back(budget);
    groups[g].push_back(i);
    room[g] -= lengths[i];
  }
  return groups;
}

std::vector<size_t> Shuffled(size_t n, uint64_t seed, uint64_t draw) {
  std::vector<size_t> order(n);
  std::iota(order.begin(), order.end(), size_t{0});
  uint64_t state = seed ^ (draw * 0xD1342543DE82EF95u);
  for (size_t i = n; i > 1; --i) std::swap(order[i - 1], order[Next(&state) % i]);
  return order;
}

Share ShareOf(size_t n, size_t parts, size_t part) { return {n * part / parts, n * (part + 1) / parts}; }

}  // namespace kevin::local
