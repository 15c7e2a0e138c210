#include "tools/honest_families.h"

// All over dimension 1 of x[B][D][N].

namespace kevin {
namespace {

// $PARTS ranges of D, each added up row after row, then the parts' sums likewise.
constexpr const char* kSplitSum = R"($LAUNCH {
  constexpr long parts = $PARTS;
#pragma omp parallel for
  for (long b = 0; b < B; ++b) {
    float* sum = out + b * N;
    for (long n = 0; n < N; ++n) sum[n] = 0;
    for (long p = 0; p < parts; ++p) {
      float part[N] = {};
      for (long d = p * D / parts; d < (p + 1) * D / parts; ++d) {
        for (long n = 0; n < N; ++n) part[n] += x[(b * D + d) * N + n];
      }
      for (long n = 0; n < N; ++n) sum[n] += part[n];
    }
    for (long n = 0; n < N; ++n) sum[n] = $FINISH(sum[n]);
  }
}
)";

constexpr const char* kPairwiseSum = R"(static void Sum(const float* rows, long count, float* sum) {
  if (count == 1) {
    for (long n = 0; n < N; ++n) sum[n] = rows[n];
    return;
  }
  float second[N];
  Sum(rows, count / 2, sum);
  Sum(rows + count / 2 * N, count - count / 2, second);
  for (long n = 0; n < N; ++n) sum[n] += second[n];
}

$LAUNCH {
#pragma omp parallel for
  for (long b = 0; b < B; ++b) {
    float* sum = out + b * N;
    Sum(x + b * D * N, D, sum);
    for (long n = 0; n < N; ++n) sum[n] = $FINISH(sum[n]);
  }
}
)";

constexpr const char* kRunningMean = R"($LAUNCH {
#pragma omp parallel for
  for (long b = 0; b < B; ++b) {
    float* mean = out + b * N;
    for (long n = 0; n < N; ++n) mean[n] = 0;
    for (long d = 0; d < D; ++d) {
      const float share = 1.0F / static_cast<float>(d + 1);
      for (long n = 0; n < N; ++n) mean[n] += (x[(b * D + d) * N + n] - mean[n]) * share;
    }
  }
}
)";

// The extreme value of $PARTS ranges of D, then of the parts; $BETTER(candidate, best).
constexpr const char* kExtreme = R"($LAUNCH {
  constexpr long parts = $PARTS;
#pragma omp parallel for
  for (long b = 0; b < B; ++b) {
    float* best = out + b * N;
    for (long p = 0; p < parts; ++p) {
      float part[N];
      for (long d = p * D / parts; d < (p + 1) * D / parts; ++d) {
        const float* row = x + (b * D + d) * N;
        for (long n = 0; n < N; ++n) part[n] = d == p * D / parts || row[n] $BETTER part[n] ? row[n] : part[n];
      }
      for (long n = 0; n < N; ++n) best[n] = p == 0 || part[n] $BETTER best[n] ? part[n] : best[n];
    }
  }
}
)";

constexpr const char* kExtremeIndex = R"($LAUNCH {
  constexpr long parts = $PARTS;
#pragma omp parallel for
  for (long b = 0; b < B; ++b) {
    long* place = out + b * N;
    float best[N];
    for (long p = 0; p < parts; ++p) {
      float part[N];
      long part_place[N];
      for (long d = p * D / parts; d < (p + 1) * D / parts; ++d) {
        const float* row = x + (b * D + d) * N;
        for (long n = 0; n < N; ++n) {
          if (d > p * D / parts && !(row[n] $BETTER part[n])) continue;
          part[n] = row[n];
          part_place[n] = d;
        }
      }
      for (long n = 0; n < N; ++n) {
        if (p > 0 && !(part[n] $BETTER best[n])) continue;
        best[n] = part[n];
        place[n] = part_place[n];
      }
    }
  }
}
)";

std::vector<HonestKernel> Sums(const Problem& problem, const char* finish) {
  const auto kernel = [&](const char* name, const char* text, const char* parts) {
    return HonestKernel{name, HonestSource(problem, text, {{"PARTS", parts}, {"FINISH", finish}})};
  };
  return {kernel("serial sum", kSplitSum, "1"), kernel("8 partial sums", kSplitSum, "8"),
          kernel("sums of 32 rows", kSplitSum, "(D / 32)"), kernel("pairwise sum", kPairwiseSum, "")};
}

std::vector<HonestKernel> Means(const Problem& problem) {
  std::vector<HonestKernel> kernels = Sums(problem, "1.0F / D * ");
  kernels.push_back({"running mean", HonestSource(problem, kRunningMean, {})});
  return kernels;
}

std::vector<HonestKernel> Extremes(const Problem& problem, const std::string& better) {
  const auto kernel = [&](const char* name, const char* parts) {
    return HonestKernel{name, HonestSource(problem, kExtreme, {{"PARTS", parts}, {"BETTER", better}})};
  };
  return {kernel("row by row", "1"), kernel("8 parts", "8"), kernel("parts of 32 rows", "(D / 32)")};
}

std::vector<HonestKernel> ExtremeIndices(const Problem& problem, const std::string& better) {
  const auto kernel = [&](const char* name, const char* parts, const std::string& rule) {
    return HonestKernel{name, HonestSource(problem, kExtremeIndex, {{"PARTS", parts}, {"BETTER", rule}})};
  };
  return {kernel("first of equals", "1", better), kernel("last of equals", "1", better + "="),
          kernel("8 parts, first of equals", "8", better),
          kernel("8 parts, last of equals", "8", better + "=")};
}

}  // namespace

std::vector<HonestKernel> HonestReductions(const Problem& problem) {
  if (problem.id == "level1/47") return Sums(problem, "");
  if (problem.id == "level1/48") return Means(problem);
  if (problem.id == "level1/49") return Extremes(problem, ">");
  if (problem.id == "level1/53") return Extremes(problem, "<");
  if (problem.id == "level1/51") return ExtremeIndices(problem, ">");
  if (problem.id == "level1/52") return ExtremeIndices(problem, "<");
  return {};
}

}  // namespace kevin
