#include "tools/honest_families.h"

namespace kevin {
namespace {

// Blocks of $BLOCK are scanned on their own; each then gets the sum of those before it.
constexpr const char* kBlocks = R"($LAUNCH {
#pragma omp parallel for
  for (long b = 0; b < B; ++b) {
    const float* row = x + b * N;
    float before = 0;
    for (long begin = 0; begin < N; begin += $BLOCK) {
      float sum = 0;
      for (long n = begin; n < begin + $BLOCK && n < N; ++n) {
        sum += row[n];
        out[b * N + n] = before + sum;
      }
      before += sum;
    }
  }
}
)";

constexpr const char* kDoubling = R"(#include <algorithm>
#include <vector>

$LAUNCH {
#pragma omp parallel for
  for (long b = 0; b < B; ++b) {
    std::vector<float> sums(x + b * N, x + (b + 1) * N), next(N);
    for (long step = 1; step < N; step *= 2) {
      for (long n = 0; n < N; ++n) next[n] = n >= step ? sums[n] + sums[n - step] : sums[n];
      sums.swap(next);
    }
    std::copy(sums.begin(), sums.end(), out + b * N);
  }
}
)";

}  // namespace

std::vector<HonestKernel> HonestScans(const Problem& problem) {
  if (problem.id != "level1/89") return {};
  return {{"serial sum", HonestSource(problem, kBlocks, {{"BLOCK", "N"}})},
          {"two levels, blocks of 64", HonestSource(problem, kBlocks, {{"BLOCK", "64"}})},
          {"doubling steps", HonestSource(problem, kDoubling, {})}};
}

}  // namespace kevin
