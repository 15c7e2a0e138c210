#include "env/process/rearrange.h"

#include <algorithm>
#include <vector>

#include "env/process/generator.h"
#include "tests/catch.h"

namespace kevin {
namespace {

struct Changed {
  std::vector<float> before, after;
  size_t Different() const {
    size_t count = 0;
    for (size_t i = 0; i < before.size(); ++i) count += before[i] != after[i];
    return count;
  }
};

Changed RearrangeDrawn(Structure structure, int64_t elements) {
  TensorSpec spec;
  spec.distribution = Distribution::kNormal;
  spec.structure = structure;
  Changed changed;
  changed.before.resize(static_cast<size_t>(elements));
  FillTensor(spec, InputMode::kDefault, 5, elements, 1, changed.before.data());
  changed.after = changed.before;
  std::mt19937_64 random(7);
  Rearrange(spec, elements, random, changed.after.data());
  return changed;
}

}  // namespace

TEST_CASE("rearranged values are others of the same tensor, a quarter at most") {
  for (const int64_t elements : {16, 1000, 1 << 20}) {
    const Changed changed = RearrangeDrawn(Structure::kNone, elements);
    CHECK(changed.Different() > 0);
    CHECK(changed.Different() <= static_cast<size_t>(elements / 4));
    const std::vector<float> sorted = [&] {
      std::vector<float> all = changed.before;
      std::sort(all.begin(), all.end());
      return all;
    }();
    CHECK(std::all_of(changed.after.begin(), changed.after.end(),
                      [&](float value) { return std::binary_search(sorted.begin(), sorted.end(), value); }));
  }
  CHECK(RearrangeDrawn(Structure::kNone, 3).Different() == 0);  // too few
}

TEST_CASE("zeros of a triangular matrix stay zeros, a symmetric one stays symmetric") {
  for (const int64_t rows : {9, 200, 4100}) {
    const auto n = static_cast<size_t>(rows);
    const Changed upper = RearrangeDrawn(Structure::kUpper, rows * rows);
    const Changed lower = RearrangeDrawn(Structure::kLower, rows * rows);
    const Changed mirrored = RearrangeDrawn(Structure::kSymmetric, rows * rows);
    CHECK(upper.Different() > 0);
    CHECK(lower.Different() > 0);
    CHECK(mirrored.Different() > 0);
    size_t broken = 0;
    for (size_t row = 0; row < n; ++row) {
      for (size_t column = 0; column < row; ++column) {
        broken += upper.after[row * n + column] != 0;
        broken += lower.after[column * n + row] != 0;
        broken += mirrored.after[row * n + column] != mirrored.after[column * n + row];
        broken += lower.after[row * n + column] == 0;
        broken += upper.after[column * n + row] == 0;
      }
    }
    CHECK(broken == 0);
  }
}

}  // namespace kevin
