// Errors of products of float32 on the tensor cores, by an emulation of how these add.

#include <fmt/format.h>

#include <array>
#include <cmath>
#include <cstdlib>
#include <random>

#include "tests/catch.h"
#include "tests/policies/search/cuda_graph_cases.h"

using namespace kevin;
using namespace kevin::test;

namespace {

// Errors of a product of two 32 x 32 matrices with sums of `terms`, over max(|result|, RMS of its row).
struct ProductErrors {
  double most = 0, mean = 0, rms = 0;  // mean: of the signed error, in the direction of the result
};
ProductErrors ErrorsOf(const KernelLibrary& library, size_t index, int terms, const std::string& values) {
  constexpr int kSize = 32;
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::uniform_real_distribution<float> unit(0, 1);
  const auto draw = [&] {
    if (values == "positive") return unit(random);
    if (values == "heavy-tailed") return (2 * unit(random) - 1) / (0.03f + unit(random));
    return normal(random);
  };
  const size_t count = static_cast<size_t>(kSize) * static_cast<size_t>(terms);
  std::vector<float> left(count), right(count), out(kSize * kSize);
  for (std::vector<float>* operand : {&left, &right}) {
    for (float& x : *operand) x = draw();
  }
  library.Launch(index, {left.data(), right.data(), out.data()});
  ProductErrors errors;
  for (size_t m = 0; m < kSize; ++m) {
    std::array<double, kSize> truth{};
    double squares = 0;
    for (size_t n = 0; n < kSize; ++n) {
      for (size_t k = 0; k < static_cast<size_t>(terms); ++k)
        truth[n] += static_cast<double>(left[m * static_cast<size_t>(terms) + k]) *
                    static_cast<double>(right[k * kSize + n]);
      squares += truth[n] * truth[n] / kSize;
    }
    for (size_t n = 0; n < kSize; ++n) {
      const double scale = std::max(std::fabs(truth[n]), std::sqrt(squares));
      const double error = (static_cast<double>(out[m * kSize + n]) - truth[n]) / scale;
      errors.most = std::max(errors.most, std::fabs(error));
      errors.mean += (truth[n] < 0 ? -error : error) / (kSize * kSize);
      errors.rms += error * error / (kSize * kSize);
    }
  }
  errors.rms = std::sqrt(errors.rms);
  return errors;
}

}  // namespace

TEST_CASE("three products in TF32 are as precise as fp32 in long sums, and never biased") {
  const std::vector<int> lengths = {256, 1024, 4096, 16384};
  std::vector<std::string> sources;
  for (const int terms : lengths) {
    GraphCase one{
        "matmul", "\"self\":{\"tensor\":0},\"other\":{\"tensor\":1}", {{32, terms}, {terms, 32}}, {32, 32}};
    for (const int64_t via : {int64_t{1}, int64_t{0}}) {
      one.setting = {{"TILE_0", 32032}, {"SPLIT_K_0", 1}, {"STAGES_0", 3}, {"TILE_K_0", 32}, {"VIA_0", via}};
      sources.push_back(SourceFor(one));
    }
  }
  const KernelLibrary library(sources, "-O1 -fno-strict-aliasing -w", kProductsHead);
  for (size_t i = 0; i < lengths.size(); ++i) {
    for (const char* values : {"zero-mean", "positive", "heavy-tailed"}) {
      const ProductErrors own = ErrorsOf(library, 2 * i, lengths[i], values),
                          fma = ErrorsOf(library, 2 * i + 1, lengths[i], values);
      const std::string figures = fmt::format(
          "{} {}: error most {:.2f}, mean {:.2f}, rms {:.2f} of 2^-23; fp32 {:.2f}, {:.2f}, {:.2f}",
          lengths[i], values, own.most / 0x1p-23, own.mean / 0x1p-23, own.rms / 0x1p-23, fma.most / 0x1p-23,
          fma.mean / 0x1p-23, fma.rms / 0x1p-23);
      INFO(figures);
      if (std::getenv("KEVIN_FIGURES")) WARN(figures);
      CHECK(own.rms <= 1.5 * fma.rms + 0x1p-25);
      // A quarter of the verdict's bound; and of that of a problem whose `reduction` is 1.
      CHECK(own.most <= 2 * 0x1p-23 * std::sqrt(lengths[i]));
      CHECK(std::fabs(own.mean) <= 0x1p-23);
      // Sums of slices, each rounded by itself: those of term by term are off by twice as much.
      if (lengths[i] >= 4096) CHECK(fma.rms <= 0x1p-23 * std::sqrt(lengths[i]) / 24);
    }
  }
}
