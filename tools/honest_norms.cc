#include "tools/honest_families.h"

namespace kevin {
namespace {

// The mean of the squares over C in $PARTS ranges; $FINISH is written with v and mean.
constexpr const char* kRms = R"(#include <cmath>
#include <vector>

$LAUNCH {
  constexpr long pixels = H * W, parts = $PARTS;
#pragma omp parallel for
  for (long b = 0; b < B; ++b) {
    std::vector<float> sum(pixels), part(pixels);
    for (long p = 0; p < parts; ++p) {
      for (long i = 0; i < pixels; ++i) part[i] = 0;
      for (long c = p * C / parts; c < (p + 1) * C / parts; ++c) {
        const float* plane = x + (b * C + c) * pixels;
        for (long i = 0; i < pixels; ++i) part[i] += plane[i] * plane[i];
      }
      for (long i = 0; i < pixels; ++i) sum[i] += part[i];
    }
    for (long c = 0; c < C; ++c) {
      for (long i = 0; i < pixels; ++i) {
        const float v = x[(b * C + c) * pixels + i], mean = sum[i] / C;
        out[(b * C + c) * pixels + i] = $FINISH;
      }
    }
  }
}
)";

// `mean` and `variance` of one item of the batch, then $FINISH.
constexpr const char* kLayer = R"($PRAGMA#include <cmath>

$LAUNCH {
  constexpr long count = C * H * W, run = $RUN;
#pragma omp parallel for
  for (long b = 0; b < B; ++b) {
    const float* item = x + b * count;
    float mean = 0, variance = 0;
$STATISTICS
    const float scale = 1 / std::sqrt(variance + 1e-5F);
    for (long i = 0; i < count; ++i) out[b * count + i] = $FINISH;
  }
}
)";

// Sums of $RUN elements, then of those.
constexpr const char* kTwoPasses = R"(
    for (long begin = 0; begin < count; begin += run) {
      float part = 0;
      for (long i = begin; i < begin + run && i < count; ++i) part += item[i];
      mean += part;
    }
    mean /= count;
    for (long begin = 0; begin < count; begin += run) {
      float part = 0;
      for (long i = begin; i < begin + run && i < count; ++i) part += (item[i] - mean) * (item[i] - mean);
      variance += part;
    }
    variance /= count;
)";

constexpr const char* kOnePass = R"(
    float squares = 0;
    for (long begin = 0; begin < count; begin += run) {
      float part = 0, part_squares = 0;
      for (long i = begin; i < begin + run && i < count; ++i) {
        part += item[i];
        part_squares += item[i] * item[i];
      }
      mean += part;
      squares += part_squares;
    }
    mean /= count;
    variance = squares / count - mean * mean;
)";

// Brought together by Chan's rule.
constexpr const char* kWelford = R"(
    float squares = 0;
    for (long begin = 0; begin < count; begin += run) {
      const long end = begin + run < count ? begin + run : count;
      float part_mean = 0, part_squares = 0;
      for (long i = begin; i < end; ++i) {
        const float before = item[i] - part_mean;
        part_mean += before / static_cast<float>(i - begin + 1);
        part_squares += before * (item[i] - part_mean);
      }
      const float apart = part_mean - mean, share = static_cast<float>(end - begin) / static_cast<float>(end);
      mean += apart * share;
      squares += part_squares + apart * apart * static_cast<float>(end - begin) * (1 - share);
    }
    variance = squares / count;
)";

// Of group g of $GROUPS, whose element i lies at $AT (a channel's, when there are weights).
constexpr const char* kGroups = R"($PRAGMA#include <cmath>
#include <vector>

$LAUNCH {
  constexpr long pixels = H * W, count = $COUNT, run = pixels;
#pragma omp parallel for
  for (long g = 0; g < $GROUPS; ++g) {
    std::vector<float> item(count);
    for (long i = 0; i < count; ++i) item[i] = x[$AT];
    float mean = 0, variance = 0;
$STATISTICS
    const float scale = 1 / std::sqrt(variance + 1e-5F);
    for (long i = 0; i < count; ++i) {
      const long at = $AT;
      out[at] = $FINISH;
    }
  }
}
)";

// Of $GROUPS rows of $COUNT: $TERM of v added up in ranges of $RUN, then v divided by $SIZE of the sum.
constexpr const char* kLengths = R"(#include <cmath>
#include <vector>

$LAUNCH {
  constexpr long rows = $GROUPS, count = $COUNT, run = $RUN;
  constexpr long runs = (count + run - 1) / run;
  for (long g = 0; g < rows; ++g) {
    std::vector<float> parts(runs);
#pragma omp parallel for
    for (long p = 0; p < runs; ++p) {
      for (long i = p * run; i < (p + 1) * run && i < count; ++i) {
        const float v = x[g * count + i];
        parts[p] += $TERM;
      }
    }
    float sum = 0;
    for (const float part : parts) sum += part;
    const float size = $SIZE;
#pragma omp parallel for
    for (long i = 0; i < count; ++i) out[g * count + i] = $FINISH;
  }
}
)";

// What one float can add up: at 2^22 squares most of them would no longer move the sum.
constexpr const char* kLongest = "1L << 18";
constexpr const char* kPlane = "H * W";

std::vector<HonestKernel> RmsNorms(const Problem& problem) {
  const auto kernel = [&](const char* name, const char* parts, const char* finish) {
    return HonestKernel{name, HonestSource(problem, kRms, {{"PARTS", parts}, {"FINISH", finish}})};
  };
  return {kernel("serial sum, quotient", "1", "v / std::sqrt(mean + 1e-5F)"),
          kernel("serial sum, reciprocal", "1", "v * (1 / std::sqrt(mean + 1e-5F))"),
          kernel("8 partial sums", "8", "v / std::sqrt(mean + 1e-5F)")};
}

std::vector<HonestKernel> LayerNorms(const Problem& problem) {
  const char* plain = "(item[i] - mean) * scale * weight[i] + bias[i]";
  const char* fused = "item[i] * (scale * weight[i]) + (bias[i] - mean * scale * weight[i])";
  const auto kernel = [&](const char* name, const char* run, const char* statistics, const char* finish,
                          const char* pragma = "") {
    return HonestKernel{
        name,
        HonestSource(problem, kLayer,
                     {{"PRAGMA", pragma}, {"RUN", run}, {"STATISTICS", statistics}, {"FINISH", finish}})};
  };
  return {kernel("two passes, serial sums", kLongest, kTwoPasses, plain),
          kernel("two passes, sums by plane", kPlane, kTwoPasses, plain),
          kernel("one pass, E[x^2] - E[x]^2", kLongest, kOnePass, plain),
          kernel("Welford", kLongest, kWelford, plain),
          kernel("Welford by plane, merged", kPlane, kWelford, plain),
          kernel("fused multiply and add", kPlane, kTwoPasses, fused),
          kernel("any order (fast-math)", kPlane, kOnePass, fused, "#pragma GCC optimize(\"fast-math\")\n")};
}

std::vector<HonestKernel> GroupedNorms(const Problem& problem, const char* groups, const char* count,
                                       const char* at, bool has_weights) {
  const char* plain = has_weights
                          ? "(item[i] - mean) * scale * weight[at / pixels % C] + bias[at / pixels % C]"
                          : "(item[i] - mean) * scale";
  const char* fused =
      has_weights ? "item[i] * (scale * weight[at / pixels % C]) + (bias[at / pixels % C] - mean * scale * "
                    "weight[at / pixels % C])"
                  : "item[i] * scale - mean * scale";
  const auto kernel = [&](const char* name, const char* statistics, const char* finish) {
    return HonestKernel{name, HonestSource(problem, kGroups,
                                           {{"PRAGMA", ""},
                                            {"GROUPS", groups},
                                            {"COUNT", count},
                                            {"AT", at},
                                            {"STATISTICS", statistics},
                                            {"FINISH", finish}})};
  };
  return {kernel("two passes, sums by plane", kTwoPasses, plain),
          kernel("one pass, E[x^2] - E[x]^2", kOnePass, plain),
          kernel("Welford by plane, merged", kWelford, plain),
          kernel("fused multiply and add", kTwoPasses, fused)};
}

struct Length {
  const char* groups;
  const char* count;
  const char* term;
  const char* size;  // of sum
};

std::vector<HonestKernel> Lengths(const Problem& problem, const Length& length) {
  const auto kernel = [&](const char* name, const char* run, const char* finish) {
    return HonestKernel{name, HonestSource(problem, kLengths,
                                           {{"GROUPS", length.groups},
                                            {"COUNT", length.count},
                                            {"RUN", run},
                                            {"TERM", length.term},
                                            {"SIZE", length.size},
                                            {"FINISH", finish}})};
  };
  return {kernel("sums of 1024, quotient", "1024", "x[g * count + i] / size"),
          kernel("sums of 64, quotient", "64", "x[g * count + i] / size"),
          kernel("sums of 1024, reciprocal", "1024", "x[g * count + i] * (1 / size)")};
}

}  // namespace

std::vector<HonestKernel> HonestNorms(const Problem& problem) {
  if (problem.id == "level1/33")
    return GroupedNorms(problem, "C", "B * pixels", "(i / pixels * C + g) * pixels + i % pixels", true);
  if (problem.id == "level1/34") return GroupedNorms(problem, "B * C", "pixels", "g * pixels + i", false);
  if (problem.id == "level1/35")
    return GroupedNorms(problem, "B * 8", "C / 8 * pixels", "g * count + i", true);
  if (problem.id == "level1/37") return Lengths(problem, {"1", "B * C * H * W", "v * v", "std::sqrt(sum)"});
  if (problem.id == "level1/38") return Lengths(problem, {"B", "N", "std::abs(v)", "sum / count"});
  if (problem.id == "level1/39") return Lengths(problem, {"B", "N", "v * v", "std::sqrt(sum)"});
  if (problem.id == "level1/36") return RmsNorms(problem);
  if (problem.id == "level1/40") return LayerNorms(problem);
  return {};
}

}  // namespace kevin
