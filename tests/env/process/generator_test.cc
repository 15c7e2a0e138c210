#include "env/process/generator.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>
#include <vector>

#include "env/error.h"
#include "tests/catch.h"
#include "tests/env/process/value_streams.h"

namespace kevin {
namespace {

constexpr int64_t kCount = 1 << 20;

std::vector<float> Draw(Distribution distribution, uint64_t seed, int64_t count = kCount, int threads = 2) {
  TensorSpec spec;
  spec.distribution = distribution;
  std::vector<float> values(static_cast<size_t>(count));
  FillTensor(spec, InputMode::kDefault, StreamOf(seed), count, threads, values.data());
  return values;
}

struct Moments {
  double mean = 0, sd = 0, smallest = 0, largest = 0;
};

Moments MomentsOf(const std::vector<float>& values) {
  Moments m;
  double sum = 0, squares = 0;
  for (const float v : values) {
    sum += v;
    squares += static_cast<double>(v) * v;
  }
  const auto n = static_cast<double>(values.size());
  m.mean = sum / n;
  m.sd = std::sqrt(squares / n - m.mean * m.mean);
  m.smallest = *std::min_element(values.begin(), values.end());
  m.largest = *std::max_element(values.begin(), values.end());
  return m;
}

}  // namespace

TEST_CASE("distributions have the moments they promise") {
  const Moments normal = MomentsOf(Draw(Distribution::kNormal, 1));
  CHECK(std::abs(normal.mean) < 0.005);
  CHECK(normal.sd == Approx(1).epsilon(0.005));
  CHECK(normal.largest > 2.8);
  const Moments uniform = MomentsOf(Draw(Distribution::kUniform, 2));
  CHECK(std::abs(uniform.mean) < 0.005);
  CHECK(uniform.sd == Approx(1 / std::sqrt(3.0)).epsilon(0.005));
  CHECK(uniform.smallest >= -1);
  CHECK(uniform.largest <= 1);
  const Moments unit = MomentsOf(Draw(Distribution::kUniform01, 3));
  CHECK(unit.mean == Approx(0.5).epsilon(0.005));
  CHECK(unit.smallest >= 0);
  CHECK(unit.largest < 1);
  const Moments heavy = MomentsOf(Draw(Distribution::kHeavyTailed, 4));
  CHECK(std::abs(heavy.mean) < 0.05);
  CHECK(heavy.largest > 25);
  CHECK(MomentsOf(Draw(Distribution::kPositive, 5)).smallest > 0);
}

TEST_CASE("values depend on the stream and the index alone") {
  const std::vector<float> whole = Draw(Distribution::kNormal, 7);
  CHECK(Draw(Distribution::kNormal, 7, kCount, 1) == whole);
  const std::vector<float> part = Draw(Distribution::kNormal, 7, 1000);
  CHECK(std::equal(part.begin(), part.end(), whole.begin()));
  const std::vector<float> other = Draw(Distribution::kNormal, 8);
  int64_t equal = 0;
  double product = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    equal += whole[i] == other[i];
    product += static_cast<double>(whole[i]) * other[i];
  }
  CHECK(equal < 10);
  CHECK(std::abs(product / kCount) < 0.005);
}

TEST_CASE("neighbours are independent") {
  const std::vector<float> values = Draw(Distribution::kUniform, 11);
  for (const size_t lag : {size_t{1}, size_t{2}, size_t{8}, size_t{1024}}) {
    double product = 0;
    for (size_t i = lag; i < values.size(); ++i) product += static_cast<double>(values[i]) * values[i - lag];
    CHECK(std::abs(product / kCount) < 0.002);
  }
  std::vector<int> buckets(256);
  for (const float v : values) ++buckets[static_cast<size_t>(std::min(255.0F, (v + 1) * 128))];
  double chi_squared = 0;
  for (const int n : buckets) chi_squared += std::pow(n - kCount / 256.0, 2) / (kCount / 256.0);
  CHECK(chi_squared < 400);  // 255 degrees of freedom: 99.99999 % lie below
  CHECK(chi_squared > 140);
}

TEST_CASE("rounding to a shorter type always shows") {
  for (const Distribution d : {Distribution::kNormal, Distribution::kUniform, Distribution::kHeavyTailed}) {
    const std::vector<float> values = Draw(d, 13, 4096);
    const auto short_mantissa = [](float v) { return (std::bit_cast<uint32_t>(v) & 0x1fff) == 0; };
    CHECK(std::count_if(values.begin(), values.end(), short_mantissa) < 40);
  }
}

TEST_CASE("a mixture has different members") {
  std::set<int> wide, heavy;
  for (uint64_t seed = 0; seed < kMixtureMembers; ++seed) {
    const Moments m = MomentsOf(Draw(Distribution::kMixture, seed));
    if (m.sd > 4) wide.insert(static_cast<int>(seed));
    if (m.largest > 25) heavy.insert(static_cast<int>(seed));
  }
  CHECK(wide.size() >= 1);
  CHECK(heavy.size() >= 1);
  CHECK(wide.size() + heavy.size() < 2 * kMixtureMembers);
}

namespace {

constexpr uint64_t kLastMember = kMixtureMembers - 1;  // a stream of "normal x8"

std::vector<float> DrawShifted(double row_shift, int64_t row_elements, uint64_t seed, int64_t count = kCount,
                               Distribution distribution = Distribution::kMixture,
                               InputMode mode = InputMode::kDefault, int threads = 2) {
  TensorSpec spec;
  spec.distribution = distribution;
  spec.offset = 0.25;
  spec.row_shift = row_shift;
  spec.row_elements = row_elements;
  std::vector<float> values(static_cast<size_t>(count));
  FillTensor(spec, mode, StreamOf(seed), count, threads, values.data());
  return values;
}

// The shift of each row: -1, 0 or 1; 2 if its elements are not those without shifts, moved by one of the three.
std::vector<int> ShiftsOf(const std::vector<float>& values, const std::vector<float>& plain,
                          int64_t row_elements, double row_shift) {
  std::vector<int> shifts;
  const auto count = static_cast<int64_t>(values.size());
  for (int64_t begin = 0; begin < count; begin += row_elements) {
    const auto first = static_cast<size_t>(begin);
    const auto shift = static_cast<int>(std::lround((values[first] - plain[first]) / row_shift));
    bool is_moved = std::abs(shift) <= 1;
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(std::min(count, begin + row_elements));
         ++i)
      is_moved &= std::abs(values[i] - plain[i] - static_cast<float>(shift * row_shift)) < 1e-4F;
    shifts.push_back(is_moved ? shift : 2);
  }
  return shifts;
}

}  // namespace

TEST_CASE("rows are shifted down, not at all or up, each as often, at random") {
  std::set<std::vector<int>> orders;
  for (const int64_t row : {1, 7, 64, 1000, 4096}) {
    const std::vector<float> plain = DrawShifted(0, row, kLastMember);
    const std::vector<int> shifts = ShiftsOf(DrawShifted(150, row, kLastMember), plain, row, 150);
    const auto rows = static_cast<double>(shifts.size());
    for (const int shift : {-1, 0, 1}) {
      const auto found = static_cast<double>(std::count(shifts.begin(), shifts.end(), shift));
      INFO("rows of " << row << ", " << shift << ": " << found << " of " << rows);
      CHECK(std::abs(found - rows / 3) < 5 * std::sqrt(rows * 2 / 9));
    }
    CHECK(std::count(shifts.begin(), shifts.end(), 2) == 0);
    double product = 0;
    for (size_t i = 1; i < shifts.size(); ++i) product += shifts[i] * shifts[i - 1];
    CHECK(std::abs(product) < 5 * std::sqrt(rows * 4 / 9));
    // Row r has its shift, however long the rows are; with another key it has another.
    orders.insert({shifts.begin(), shifts.begin() + 250});
    const std::vector<int> other =
        ShiftsOf(DrawShifted(150, row, kLastMember + 4), DrawShifted(0, row, kLastMember + 4), row, 150);
    CHECK(other != shifts);
  }
  CHECK(orders.size() == 1);
}

TEST_CASE("shifted rows depend on the stream and the row alone") {
  for (const int64_t row : {7, 1000, 70'000}) {
    const std::vector<float> whole = DrawShifted(150, row, kLastMember);
    CHECK(DrawShifted(150, row, kLastMember, kCount, Distribution::kMixture, InputMode::kDefault, 1) ==
          whole);
    const std::vector<float> part = DrawShifted(150, row, kLastMember, 100'001);
    CHECK(std::equal(part.begin(), part.end(), whole.begin()));
  }
}

TEST_CASE("rows are shifted in the last member alone, and not in KernelBench's inputs") {
  for (const Distribution distribution : {Distribution::kMixture, Distribution::kNormal}) {
    for (uint64_t member = 0; member < kMixtureMembers; ++member) {
      INFO(DistributionName(distribution) << ", member " << member);
      const bool is_same = DrawShifted(150, 1000, member, kCount, distribution) ==
                           DrawShifted(0, 1000, member, kCount, distribution);
      CHECK(is_same == (member != kLastMember));
    }
  }
  const std::vector<float> unit =
      DrawShifted(150, 1000, kLastMember, kCount, Distribution::kMixture, InputMode::kKernelBench);
  CHECK(MomentsOf(unit).smallest >= 0);
  CHECK(MomentsOf(unit).largest < 1);
}

TEST_CASE("each of four successive pairs has another member of the mixture, in changing orders") {
  SecretRandom random;
  MixtureOrder order;
  std::set<std::vector<int>> orders;
  for (int block = 0; block < 40; ++block) {
    std::vector<int> members;
    for (int pair = 0; pair < kMixtureMembers; ++pair) members.push_back(order.Next(random));
    orders.insert(members);
    std::sort(members.begin(), members.end());
    CHECK(members == std::vector<int>{0, 1, 2, 3});
  }
  CHECK(orders.size() > 5);  // of 24
}

TEST_CASE("whole numbers, bools and signs") {
  TensorSpec spec;
  spec.distribution = Distribution::kUniform01;
  spec.scale = 1000;
  spec.dtype = DType::kI64;
  std::vector<int64_t> classes(kCount);
  FillTensor(spec, InputMode::kKernelBench, StreamOf(5), kCount, 2, classes.data());
  CHECK(*std::min_element(classes.begin(), classes.end()) == 0);
  CHECK(*std::max_element(classes.begin(), classes.end()) == 999);
  CHECK(std::abs(std::count(classes.begin(), classes.end(), 7) - kCount / 1000) < 200);
  spec = {};
  spec.dtype = DType::kBool;
  std::vector<unsigned char> bools(kCount);
  FillTensor(spec, InputMode::kKernelBench, StreamOf(6), kCount, 2, bools.data());
  CHECK(std::count(bools.begin(), bools.end(), 0) + std::count(bools.begin(), bools.end(), 1) == kCount);
  CHECK(std::abs(std::count(bools.begin(), bools.end(), 1) - kCount / 2) < 4000);
  const std::vector<float> signs = Draw(Distribution::kSigns, 7);
  CHECK(std::count(signs.begin(), signs.end(), 1.0F) + std::count(signs.begin(), signs.end(), -1.0F) ==
        kCount);
  CHECK(std::abs(std::count(signs.begin(), signs.end(), 1.0F) - kCount / 2) < 4000);
}

TEST_CASE("structures are imposed") {
  constexpr int kSide = 300;
  TensorSpec spec;
  std::vector<float> plain(kSide * kSide), made(kSide * kSide);
  FillTensor(spec, InputMode::kDefault, StreamOf(8), kSide * kSide, 2, plain.data());
  for (const Structure structure : {Structure::kUpper, Structure::kLower, Structure::kSymmetric}) {
    spec.structure = structure;
    FillTensor(spec, InputMode::kDefault, StreamOf(8), kSide * kSide, 2, made.data());
    int wrong = 0;
    for (int row = 0; row < kSide; ++row) {
      for (int column = 0; column < kSide; ++column) {
        const float drawn = plain[static_cast<size_t>(row * kSide + column)];
        const float mirrored = plain[static_cast<size_t>(column * kSide + row)];
        const bool is_below = column<row, is_above = column> row;
        const float expected = structure == Structure::kSymmetric ? (is_below ? mirrored : drawn)
                               : structure == Structure::kUpper   ? (is_below ? 0 : drawn)
                                                                  : (is_above ? 0 : drawn);
        wrong += made[static_cast<size_t>(row * kSide + column)] != expected;
      }
    }
    INFO(StructureName(structure));
    CHECK(wrong == 0);
  }
}

TEST_CASE("KernelBench's inputs are U[0,1) whatever the problem says") {
  TensorSpec spec;
  spec.scale = 50;
  spec.offset = 7;
  std::vector<float> values(1000);
  FillTensor(spec, InputMode::kKernelBench, StreamOf(3), 1000, 1, values.data());
  CHECK(MomentsOf(values).smallest >= 0);
  CHECK(MomentsOf(values).largest < 1);
  spec.is_param = true;  // weights are the problem's own
  FillTensor(spec, InputMode::kKernelBench, StreamOf(3), 1000, 1, values.data());
  CHECK(MomentsOf(values).sd > 30);
}

TEST_CASE("stored values are what they are, whatever the seed and the mode") {
  TensorSpec spec;
  spec.distribution = Distribution::kStored;
  spec.stored = std::make_shared<const std::string>(std::string("\0\0\x80\x3f\0\0\0\x40", 8));
  for (const InputMode mode : {InputMode::kDefault, InputMode::kKernelBench}) {
    std::vector<float> values(2, 7.0F);
    FillTensor(spec, mode, StreamOf(5), 2, 1, values.data());
    CHECK(values == std::vector<float>{1.0F, 2.0F});
  }
}

TEST_CASE("types that cannot be drawn are refused, seeds differ") {
  std::vector<float> values(1000);
  TensorSpec spec;
  spec.dtype = DType::kI32;
  CHECK_THROWS_AS(FillTensor(spec, InputMode::kDefault, StreamOf(1), 10, 1, values.data()), Error);
}

namespace {

struct Changed {
  std::vector<float> before, after;
  size_t Different() const {
    size_t count = 0;
    for (size_t i = 0; i < before.size(); ++i) count += before[i] != after[i];
    return count;
  }
  size_t Adjacent() const {  // pairs of neighbours that are both different
    size_t count = 0;
    for (size_t i = 1; i < before.size(); ++i)
      count += before[i - 1] != after[i - 1] && before[i] != after[i];
    return count;
  }
};

Changed RearrangeDrawn(Structure structure, int64_t elements) {
  TensorSpec spec;
  spec.distribution = Distribution::kNormal;
  spec.structure = structure;
  Changed changed;
  changed.before.resize(static_cast<size_t>(elements));
  FillTensor(spec, InputMode::kDefault, StreamOf(5), elements, 1, changed.before.data());
  changed.after = changed.before;
  SecretRandom random(StreamOf(7).key);
  Rearrange(spec, elements, random, changed.after.data());
  return changed;
}

}  // namespace

TEST_CASE("rearranged values are others of the same tensor, one in 256, at scattered places") {
  for (const int64_t elements : {16, 1000, 1 << 20}) {
    const Changed changed = RearrangeDrawn(Structure::kNone, elements);
    CHECK(changed.Different() > 0);
    CHECK(changed.Different() <= static_cast<size_t>((elements + 255) / 256));
    CHECK(changed.Adjacent() * 50 <= changed.Different());
    const std::vector<float> sorted = [&] {
      std::vector<float> all = changed.before;
      std::sort(all.begin(), all.end());
      return all;
    }();
    CHECK(std::all_of(changed.after.begin(), changed.after.end(),
                      [&](float value) { return std::binary_search(sorted.begin(), sorted.end(), value); }));
  }
  CHECK(RearrangeDrawn(Structure::kNone, 2).Different() == 1);
  CHECK(RearrangeDrawn(Structure::kNone, 1).Different() == 0);
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
    size_t broken = 0, zeros = 0;
    for (size_t row = 0; row < n; ++row) {
      for (size_t column = 0; column < row; ++column) {
        broken += upper.after[row * n + column] != 0;
        broken += lower.after[column * n + row] != 0;
        broken += mirrored.after[row * n + column] != mirrored.after[column * n + row];
        zeros += lower.after[row * n + column] == 0;
        zeros += upper.after[column * n + row] == 0;
      }
    }
    CHECK(broken == 0);
    CHECK(zeros <= 8);  // one drawn value in 2^24 is 0
  }
}

}  // namespace kevin
