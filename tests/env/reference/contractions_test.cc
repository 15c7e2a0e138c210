// A reference that multiplies in fewer bits in some of its contractions.

#include <cmath>
#include <cstring>
#include <vector>

#include "env/problem/problem.h"
#include "env/process/generator.h"
#include "env/reference/reference.h"
#include "tests/catch.h"
#include "tests/env/process/value_streams.h"

namespace kevin {
namespace {

constexpr int64_t kSide = 16, kCount = kSide * kSide;
constexpr int kTf32 = 13;

// Three products. `x` is an operand of the first and is added to its result.
constexpr const char* kProblem = R"(id = "mine/1"
name = "Three products"
families = ["matmul"]
reference = '''
def forward(x, v, w):
    y = torch.matmul(x, v) + x
    z = torch.linear(y, w)
    return torch.matmul(z.t(), z.t())
'''
[sizes.small]
N = 16
[[inputs]]
name = "x"
shape = ["N", "N"]
[[inputs]]
name = "v"
shape = ["N", "N"]
[[inputs]]
name = "w"
shape = ["N", "N"]
[[outputs]]
name = "out"
shape = ["N", "N"]
[cost]
flops = "6*N*N*N"
bytes = "16*N*N"
min_flops = 0
min_bytes = "16*N*N"
)";

using Matrix = std::vector<double>;

double Rounded(double value, int dropped) {
  int exponent = 0;
  const double mantissa = std::frexp(value, &exponent);
  const int digits = 24 - dropped;
  return std::ldexp(std::nearbyint(std::ldexp(mantissa, digits)), exponent - digits);
}

Matrix Transposed(const Matrix& a) {
  Matrix t(a.size());
  for (int64_t i = 0; i < kSide; ++i) {
    for (int64_t j = 0; j < kSide; ++j)
      t[static_cast<size_t>(j * kSide + i)] = a[static_cast<size_t>(i * kSide + j)];
  }
  return t;
}

Matrix Product(Matrix a, Matrix b, bool is_coarse, int dropped) {
  for (Matrix* factor : {&a, &b}) {
    for (double& value : *factor) value = is_coarse ? Rounded(value, dropped) : value;
  }
  Matrix c(a.size());
  for (int64_t i = 0; i < kSide; ++i) {
    for (int64_t k = 0; k < kSide; ++k) {
      for (int64_t j = 0; j < kSide; ++j)
        c[static_cast<size_t>(i * kSide + j)] +=
            a[static_cast<size_t>(i * kSide + k)] * b[static_cast<size_t>(k * kSide + j)];
    }
  }
  return c;
}

struct Inputs {
  std::vector<float> values[3];
  std::vector<TensorView> views;
  Inputs() {
    TensorSpec spec;
    spec.distribution = Distribution::kNormal;
    for (size_t i = 0; i < 3; ++i) {
      values[i].resize(kCount);
      FillTensor(spec, InputMode::kDefault, StreamOf(8).OfTensor(i), kCount, 1, values[i].data());
      views.push_back({values[i].data(), DType::kF32, {kSide, kSide}});
    }
  }
  Matrix Wide(size_t i) const { return {values[i].begin(), values[i].end()}; }
};

Matrix Expected(const Inputs& inputs, const std::vector<bool>& is_coarse, int dropped) {
  Matrix y = Product(inputs.Wide(0), inputs.Wide(1), is_coarse[0], dropped);
  for (size_t i = 0; i < y.size(); ++i) y[i] += inputs.Wide(0)[i];  // the sum has x itself
  const Matrix z = Transposed(Product(y, Transposed(inputs.Wide(2)), is_coarse[1], dropped));
  return Product(z, z, is_coarse[2], dropped);  // both factors are one tensor
}

}  // namespace

TEST_CASE("contractions are numbered, and only the chosen ones take rounded inputs") {
  const Problem problem = ParseProblem(kProblem, "mine.toml");
  const SizedProblem sized = AtSize(problem, "small");
  Reference reference(problem, 1);
  const Inputs inputs;
  reference.BindSlot(0, inputs.views);
  REQUIRE(reference.CountContractions(0) == 3);
  for (const int dropped : {kTf32, 16}) {
    for (unsigned chosen = 0; chosen < 8; ++chosen) {
      std::vector<bool> is_coarse;
      for (unsigned i = 0; i < 3; ++i) is_coarse.push_back((chosen >> i & 1) != 0);
      reference.RunSlotCoarsely(0, dropped, [&](size_t number) { return is_coarse.at(number); });
      const TensorView out = reference.SlotOutputs(0, sized.outputs)[0];
      const Matrix expected = Expected(inputs, is_coarse, dropped);
      double difference = 0, largest = 0;
      for (size_t i = 0; i < expected.size(); ++i) {
        const double value = static_cast<const float*>(out.data)[i];
        difference = std::max(difference, std::abs(value - expected[i]));
        largest = std::max(largest, std::abs(expected[i]));
      }
      INFO("contractions " << chosen << ", " << dropped << " bits dropped: " << difference);
      CHECK(difference <= largest * 0x1p-23);
      const Matrix exact = Expected(inputs, {false, false, false}, dropped);
      CHECK((exact == expected) == (chosen == 0));
    }
  }
}

TEST_CASE("a coarse run leaves inputs and later runs as they were") {
  const Problem problem = ParseProblem(kProblem, "mine.toml");
  const SizedProblem sized = AtSize(problem, "small");
  Reference reference(problem, 1);
  const Inputs inputs, before;
  reference.BindSlot(0, inputs.views);
  const auto run = [&] {
    reference.RunSlot(0);
    const TensorView out = reference.SlotOutputs(0, sized.outputs)[0];
    const auto* values = static_cast<const float*>(out.data);
    return std::vector<float>(values, values + kCount);
  };
  const std::vector<float> first = run();
  reference.RunSlotCoarsely(0, kTf32, [](size_t) { return true; });
  CHECK(run() == first);
  for (size_t i = 0; i < 3; ++i) CHECK(inputs.values[i] == before.values[i]);
}

}  // namespace kevin
