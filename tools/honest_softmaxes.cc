#include "tools/honest_families.h"

namespace kevin {
namespace {

// `top` and `sum` of a row of length N, then one of the finishing formulas.
constexpr const char* kText = R"($PRAGMA#include <cmath>

$LAUNCH {
#pragma omp parallel for
  for (long b = 0; b < B; ++b) {
    const float* row = x + b * N;
    float top = row[0];
    float sum = 0;
$STATISTICS
    for (long n = 0; n < N; ++n) out[b * N + n] = $FINISH;
  }
}
)";

constexpr const char* kTwoPasses = R"(
    for (long n = 0; n < N; ++n) top = row[n] > top ? row[n] : top;
    for (long n = 0; n < N; ++n) sum += std::exp(row[n] - top);
)";

constexpr const char* kOnline = R"(
    for (long n = 0; n < N; ++n) {
      const float v = row[n];
      if (v > top) {
        sum *= std::exp(top - v);
        top = v;
      }
      sum += std::exp(v - top);
    }
)";

// 64 running maxima and sums, brought together at the end: what the threads of a block do.
constexpr const char* kOnlineInLanes = R"(
    constexpr long lanes = 64;
    float tops[lanes], sums[lanes];
    for (long l = 0; l < lanes; ++l) {
      tops[l] = row[l];
      sums[l] = 0;
    }
    for (long n = 0; n < N; ++n) {
      const long l = n % lanes;
      const float next = row[n] > tops[l] ? row[n] : tops[l];
      sums[l] = sums[l] * std::exp(tops[l] - next) + std::exp(row[n] - next);
      tops[l] = next;
    }
    for (long l = 0; l < lanes; ++l) top = tops[l] > top ? tops[l] : top;
    for (long l = 0; l < lanes; ++l) sum += sums[l] * std::exp(tops[l] - top);
)";

constexpr const char* kBlocks = R"(
    for (long n = 0; n < N; ++n) top = row[n] > top ? row[n] : top;
    for (long block = 0; block < N; block += 1024) {
      float part = 0;
      for (long n = block; n < block + 1024 && n < N; ++n) part += std::exp(row[n] - top);
      sum += part;
    }
)";

constexpr const char* kExp2 = R"(
    for (long n = 0; n < N; ++n) top = row[n] > top ? row[n] : top;
    for (long n = 0; n < N; ++n) sum += std::exp2((row[n] - top) * 1.44269504F);
)";

constexpr const char* kFast = "#pragma GCC optimize(\"fast-math\")\n";

HonestKernel Kernel(const Problem& problem, const char* name, const char* statistics, const char* finish,
                    const char* pragma = "") {
  return {name,
          HonestSource(problem, kText, {{"PRAGMA", pragma}, {"STATISTICS", statistics}, {"FINISH", finish}})};
}

}  // namespace

std::vector<HonestKernel> HonestSoftmaxes(const Problem& problem) {
  if (problem.id == "level1/23") {
    const char* quotient = "std::exp(row[n] - top) / sum";
    return {
        Kernel(problem, "two passes, serial sum", kTwoPasses, quotient),
        Kernel(problem, "two passes, sums of 1024", kBlocks, "std::exp(row[n] - top) * (1 / sum)"),
        Kernel(problem, "online, one pass", kOnline, quotient),
        Kernel(problem, "online in 64 lanes", kOnlineInLanes, quotient),
        Kernel(problem, "fast exp, any order", kTwoPasses, quotient, kFast),
        Kernel(problem, "exp2 of scaled x", kExp2, "std::exp2((row[n] - top) * 1.44269504F) / sum", kFast),
        Kernel(problem, "exp of log-softmax", kTwoPasses, "std::exp(row[n] - (top + std::log(sum)))")};
  }
  if (problem.id == "level1/24") {
    const char* difference = "row[n] - top - std::log(sum)";
    return {
        Kernel(problem, "two passes, serial sum", kTwoPasses, difference),
        Kernel(problem, "two passes, sums of 1024", kBlocks, difference),
        Kernel(problem, "online, one pass", kOnline, "row[n] - (top + std::log(sum))"),
        Kernel(problem, "online in 64 lanes", kOnlineInLanes, difference),
        Kernel(problem, "fast exp, any order", kTwoPasses, difference, kFast),
        Kernel(problem, "exp2 of scaled x", kExp2, "row[n] - (top + std::log2(sum) * 0.693147181F)", kFast)};
  }
  return {};
}

}  // namespace kevin
