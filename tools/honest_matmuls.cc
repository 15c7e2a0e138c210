#include <optional>

#include "tools/honest_families.h"

namespace kevin {
namespace {

// c[m][n] = sum over k of $A * $B, which are written with m, n and k.
struct Product {
  const char* rows;
  const char* cols;
  const char* depth;
  const char* a = "a[m * depth + k]";
  const char* b = "b[k * cols + n]";
};

std::optional<Product> ProductOf(const std::string& id) {
  if (id == "level1/1" || id == "level1/13" || id == "level1/14" || id == "level1/15")
    return Product{"N", "N", "N"};
  if (id == "level1/2" || id == "level1/6" || id == "level1/7" || id == "level1/8")
    return Product{"M", "N", "K"};
  if (id == "level1/3")
    return Product{"B * M", "N", "K", "a[m * depth + k]", "b[(m / M * depth + k) * cols + n]"};
  if (id == "level1/4") return Product{"M", "1", "K"};
  if (id == "level1/9") return Product{"M", "M", "K"};
  if (id == "level1/10") return Product{"N * M", "L", "K"};
  if (id == "level1/11") return Product{"B * I * J", "N", "K"};
  if (id == "level1/16") return Product{"M", "N", "K", "a[k * rows + m]"};
  if (id == "level1/17") return Product{"M", "N", "K", "a[m * depth + k]", "b[n * depth + k]"};
  if (id == "level1/18") return Product{"M", "N", "K", "a[k * rows + m]", "b[n * depth + k]"};
  return std::nullopt;
}

// Every output is added up over k in order, in $PARTS ranges whose sums are added up in turn.
constexpr const char* kRowByRow = R"($PRAGMA#include <vector>

$LAUNCH {
  constexpr long rows = $ROWS, cols = $COLS, depth = $DEPTH, parts = $PARTS;
#pragma omp parallel for
  for (long m = 0; m < rows; ++m) {
    std::vector<float> part(cols);
    for (long n = 0; n < cols; ++n) c[m * cols + n] = 0;
    for (long p = 0; p < parts; ++p) {
      for (long n = 0; n < cols; ++n) part[n] = 0;
      for (long k = p * depth / parts; k < (p + 1) * depth / parts; ++k) {
        for (long n = 0; n < cols; ++n) part[n] += $A * $B;
      }
      for (long n = 0; n < cols; ++n) c[m * cols + n] += part[n];
    }
  }
}
)";

// The same sums, one output after the other.
constexpr const char* kDotProducts = R"($PRAGMA$LAUNCH {
  constexpr long rows = $ROWS, cols = $COLS, depth = $DEPTH, parts = $PARTS;
#pragma omp parallel for
  for (long m = 0; m < rows; ++m) {
    for (long n = 0; n < cols; ++n) {
      float sum = 0;
      for (long p = 0; p < parts; ++p) {
        float part = 0;
        for (long k = p * depth / parts; k < (p + 1) * depth / parts; ++k) part += $A * $B;
        sum += part;
      }
      c[m * cols + n] = sum;
    }
  }
}
)";

// One level of Strassen's recursion: seven products of halves instead of eight.
constexpr const char* kStrassen = R"(#include <vector>

constexpr long kHalf = N / 2;
using Block = std::vector<float>;

// x + sign * y, blocks of a larger matrix; y may be missing.
static Block Combine(const float* x, float sign = 0, const float* y = nullptr) {
  Block sum(kHalf * kHalf);
  for (long i = 0; i < kHalf; ++i) {
    for (long j = 0; j < kHalf; ++j) sum[i * kHalf + j] = x[i * N + j] + (y ? sign * y[i * N + j] : 0);
  }
  return sum;
}

static Block Multiply(const Block& x, const Block& y) {
  Block z(kHalf * kHalf);
#pragma omp parallel for
  for (long i = 0; i < kHalf; ++i) {
    for (long k = 0; k < kHalf; ++k) {
      for (long j = 0; j < kHalf; ++j) z[i * kHalf + j] += x[i * kHalf + k] * y[k * kHalf + j];
    }
  }
  return z;
}

$LAUNCH {
  const float *a11 = a, *a12 = a + kHalf, *a21 = a + kHalf * N, *a22 = a21 + kHalf;
  const float *b11 = b, *b12 = b + kHalf, *b21 = b + kHalf * N, *b22 = b21 + kHalf;
  const Block m1 = Multiply(Combine(a11, 1, a22), Combine(b11, 1, b22));
  const Block m2 = Multiply(Combine(a21, 1, a22), Combine(b11));
  const Block m3 = Multiply(Combine(a11), Combine(b12, -1, b22));
  const Block m4 = Multiply(Combine(a22), Combine(b21, -1, b11));
  const Block m5 = Multiply(Combine(a11, 1, a12), Combine(b22));
  const Block m6 = Multiply(Combine(a21, -1, a11), Combine(b11, 1, b12));
  const Block m7 = Multiply(Combine(a12, -1, a22), Combine(b21, 1, b22));
  for (long i = 0; i < kHalf; ++i) {
    for (long j = 0; j < kHalf; ++j) {
      const long at = i * kHalf + j;
      float* top = c + i * N + j;
      top[0] = m1[at] + m4[at] - m5[at] + m7[at];
      top[kHalf] = m3[at] + m5[at];
      top[kHalf * N] = m2[at] + m4[at];
      top[kHalf * N + kHalf] = m1[at] - m2[at] + m3[at] + m6[at];
    }
  }
}
)";

}  // namespace

std::vector<HonestKernel> HonestMatmuls(const Problem& problem) {
  const auto product = ProductOf(problem.id);
  if (!product) return {};
  const bool along_k = problem.id == "level1/4" || problem.id == "level1/17" || problem.id == "level1/18";
  const auto kernel = [&](const char* name, const char* parts, const char* pragma) {
    return HonestKernel{name, HonestSource(problem, along_k ? kDotProducts : kRowByRow,
                                           {{"PRAGMA", pragma},
                                            {"ROWS", product->rows},
                                            {"COLS", product->cols},
                                            {"DEPTH", product->depth},
                                            {"PARTS", parts},
                                            {"A", product->a},
                                            {"B", product->b}})};
  };
  std::vector<HonestKernel> kernels = {kernel("serial sum", "1", ""), kernel("split-K, 8 parts", "8", ""),
                                       kernel("blocks of 16 along k", "(depth / 16)", "")};
  kernels.push_back(along_k
                        ? kernel("any order (fast-math)", "1", "#pragma GCC optimize(\"fast-math\")\n")
                        : kernel("serial sum, no FMA", "1", "#pragma GCC optimize(\"fp-contract=off\")\n"));
  if (problem.id == "level1/1")
    kernels.push_back({"Strassen, one level", HonestSource(problem, kStrassen, {})});
  return kernels;
}

}  // namespace kevin
