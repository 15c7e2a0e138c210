#include "tools/honest_families.h"

// Along dimension 1 of x[B][N].

namespace kevin {
namespace {

// Blocks of $BLOCK are scanned on their own; each then gets what came before it. $AT is the place of step n,
// $VALUE what is taken there (written with at), $SIGN what joins two values.
constexpr const char* kBlocks = R"($LAUNCH {
#pragma omp parallel for
  for (long b = 0; b < B; ++b) {
    float before = $NEUTRAL;
    for (long begin = 0; begin < N; begin += $BLOCK) {
      float sum = $NEUTRAL;
      for (long n = begin; n < begin + $BLOCK && n < N; ++n) {
        const long at = b * N + $AT;
        const float v = $VALUE;
        $STEP
      }
      before = before $SIGN sum;
    }
  }
}
)";

constexpr const char* kDoubling = R"(#include <vector>

$LAUNCH {
#pragma omp parallel for
  for (long b = 0; b < B; ++b) {
    std::vector<float> sums(N), next(N);
    for (long n = 0; n < N; ++n) {
      const long at = b * N + $AT;
      sums[n] = $VALUE;
    }
    for (long step = 1; step < N; step *= 2) {
      for (long n = 0; n < N; ++n) next[n] = n >= step ? sums[n] $SIGN sums[n - step] : sums[n];
      sums.swap(next);
    }
    for (long n = 0; n < N; ++n) out[b * N + $AT] = $RESULT;
  }
}
)";

struct Scan {
  const char* value = "x[at]";
  const char* sign = "+";
  const char* neutral = "0";
  const char* at = "n";
  bool is_exclusive = false;
};

bool ScanOf(const std::string& id, Scan* scan) {
  if (id == "level1/90") *scan = {"x[at]", "*", "1", "n", false};
  if (id == "level1/91") *scan = {"x[at]", "+", "0", "(N - 1 - n)", false};
  if (id == "level1/92") *scan = {"x[at]", "+", "0", "n", true};
  if (id == "level1/93") *scan = {"mask[at] ? x[at] : 0.0F", "+", "0", "n", false};
  return id == "level1/89" || id == "level1/90" || id == "level1/91" || id == "level1/92" ||
         id == "level1/93";
}

}  // namespace

std::vector<HonestKernel> HonestScans(const Problem& problem) {
  Scan scan;
  if (!ScanOf(problem.id, &scan)) return {};
  const std::string sign = scan.sign;
  const std::string joined = "sum = sum " + sign + " v;", stored = "out[at] = before " + sign + " sum;";
  const auto blocks = [&](const char* name, const char* block) {
    return HonestKernel{name, HonestSource(problem, kBlocks,
                                           {{"NEUTRAL", scan.neutral},
                                            {"BLOCK", block},
                                            {"AT", scan.at},
                                            {"VALUE", scan.value},
                                            {"STEP", scan.is_exclusive ? stored + "\n        " + joined
                                                                       : joined + "\n        " + stored},
                                            {"SIGN", scan.sign}})};
  };
  return {blocks("serial sum", "N"),
          blocks("two levels, blocks of 64", "64"),
          {"doubling steps",
           HonestSource(problem, kDoubling,
                        {{"AT", scan.at},
                         {"VALUE", scan.value},
                         {"SIGN", scan.sign},
                         {"RESULT", scan.is_exclusive ? "n > 0 ? sums[n - 1] : 0.0F" : "sums[n]"}})}};
}

}  // namespace kevin
