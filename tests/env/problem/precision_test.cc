// The precisions: the 16-bit types themselves, what a problem becomes in them, and the bounds of the check,
// against simulated correct and incorrect answers of five families.

#include "env/problem/precision.h"

#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <random>

#include "env/error.h"
#include "env/process/generator.h"
#include "env/verdict/verify.h"
#include "tests/catch.h"
#include "tests/env/process/value_streams.h"

namespace kevin {
namespace {

template <typename T>
float Kept(float value) {
  T narrow;
  Round(value, &narrow);
  return ToFloat(narrow);
}

float KeptAs(DType dtype, float value) {
  return dtype == DType::kF16 ? Kept<Float16>(value) : dtype == DType::kBF16 ? Kept<BFloat16>(value) : value;
}

// With `digits` bits after the leading one, of any range.
float Coarse(int digits, float value) {
  int exponent = 0;
  const float mantissa = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(std::ldexp(mantissa, digits + 1)), exponent - digits - 1);
}

std::vector<float> Drawn(DType dtype, int member, uint64_t stream, int64_t elements) {
  TensorSpec spec;
  spec.dtype = dtype;
  std::vector<uint16_t> bits(static_cast<size_t>(elements));
  FillTensor(spec, InputMode::kDefault, StreamOf(stream * kMixtureMembers + static_cast<uint64_t>(member)),
             elements, 1, bits.data());
  std::vector<float> values;
  for (const uint16_t each : bits)
    values.push_back(dtype == DType::kF16 ? ToFloat(Float16{each}) : ToFloat(BFloat16{each}));
  return values;
}

// The type of intermediate results; the caller rounds the outputs.
template <typename Real>
struct Keeping {
  using Keep = std::function<Real(Real)>;
  Keep sum = [](Real v) { return v; }, middle = [](Real v) { return v; };
};

constexpr int64_t kRows = 24, kColumns = 512, kDepth = 1024;

template <typename Real>
using Compute = std::vector<Real> (*)(const std::vector<Real>& x, const std::vector<Real>& w,
                                      const Keeping<Real>& keeping);

template <typename Real>
std::vector<Real> Silu(const std::vector<Real>& x, const std::vector<Real>&, const Keeping<Real>& keeping) {
  std::vector<Real> out;
  for (const Real v : x) out.push_back(v * keeping.middle(1 / (1 + std::exp(-v))));
  return out;
}

template <typename Real>
std::vector<Real> RowSums(const std::vector<Real>& x, const std::vector<Real>&,
                          const Keeping<Real>& keeping) {
  std::vector<Real> out;
  for (size_t row = 0; row < kRows; ++row) {
    Real sum = 0;
    for (size_t i = 0; i < kColumns; ++i) sum = keeping.sum(sum + x[row * kColumns + i]);
    out.push_back(sum);
  }
  return out;
}

template <typename Real>
std::vector<Real> Matmul(const std::vector<Real>& x, const std::vector<Real>& w,
                         const Keeping<Real>& keeping) {
  std::vector<Real> out;
  for (size_t m = 0; m < kRows; ++m) {
    for (size_t n = 0; n < kRows; ++n) {
      Real sum = 0;
      for (size_t k = 0; k < kDepth; ++k) sum = keeping.sum(sum + x[m * kDepth + k] * w[n * kDepth + k]);
      out.push_back(sum);
    }
  }
  return out;
}

template <typename Real>
std::vector<Real> Softmax(const std::vector<Real>& x, const std::vector<Real>&,
                          const Keeping<Real>& keeping) {
  std::vector<Real> out;
  for (size_t row = 0; row < kRows; ++row) {
    const Real* from = x.data() + row * kColumns;
    const Real top = *std::max_element(from, from + kColumns);
    Real sum = 0;
    std::vector<Real> numerators;
    for (size_t i = 0; i < kColumns; ++i) {
      numerators.push_back(keeping.middle(std::exp(from[i] - top)));
      sum = keeping.sum(sum + numerators.back());
    }
    for (const Real numerator : numerators) out.push_back(numerator / sum);
  }
  return out;
}

template <typename Real>
std::vector<Real> LayerNorm(const std::vector<Real>& x, const std::vector<Real>& w,
                            const Keeping<Real>& keeping) {
  std::vector<Real> out;
  for (size_t row = 0; row < kRows; ++row) {
    const Real* from = x.data() + row * kColumns;
    Real sum = 0, squares = 0;
    for (size_t i = 0; i < kColumns; ++i) sum = keeping.sum(sum + from[i]);
    const Real mean = sum / static_cast<Real>(kColumns);
    for (size_t i = 0; i < kColumns; ++i)
      squares = keeping.sum(squares + (from[i] - mean) * (from[i] - mean));
    const Real scale = 1 / std::sqrt(squares / static_cast<Real>(kColumns) + static_cast<Real>(1e-5));
    for (size_t i = 0; i < kColumns; ++i)
      out.push_back(keeping.middle((from[i] - mean) * scale) * (1 + w[i] / 4) + w[kColumns + i]);
  }
  return out;
}

struct Family {
  const char* name;
  Compute<float> in_float;
  Compute<double> in_double;
  std::vector<int64_t> shape;
  int64_t reduction, inputs, weights;
  bool has_sum;
};

const Family kFamilies[] = {
    {"elementwise", Silu<float>, Silu<double>, {kRows, kColumns}, 1, kRows* kColumns, 1, false},
    {"reduction", RowSums<float>, RowSums<double>, {kRows}, kColumns, kRows* kColumns, 1, true},
    {"matmul", Matmul<float>, Matmul<double>, {kRows, kRows}, kDepth, kRows* kDepth, kRows* kDepth, true},
    {"softmax", Softmax<float>, Softmax<double>, {kRows, kColumns}, kColumns, kRows* kColumns, 1, true},
    {"norm",
     LayerNorm<float>,
     LayerNorm<double>,
     {kRows, kColumns},
     kColumns,
     kRows* kColumns,
     2 * kColumns,
     true}};

// One problem of a family in one type, with inputs of one member of the mixture.
class Asked {
 public:
  Asked(const Family& family, DType dtype, int member)
      : family_(family),
        dtype_(dtype),
        x_(Drawn(dtype, member, 11, family.inputs)),
        w_(Drawn(dtype, member, 12, family.weights)) {
    truth_ = family.in_double({x_.begin(), x_.end()}, {w_.begin(), w_.end()}, {});
    reference_ = Rounded(family.in_float(x_, w_, {}));
  }

  const Family& family() const { return family_; }
  std::vector<float> Rounded(std::vector<float> values) const {
    for (float& value : values) value = KeptAs(dtype_, value);
    return values;
  }
  std::vector<float> Keeping16(bool sums, bool middle) const {
    Keeping<float> keeping;
    const auto keep = [this](float v) { return KeptAs(dtype_, v); };
    if (sums) keeping.sum = keep;
    if (middle) keeping.middle = keep;
    return Rounded(family_.in_float(x_, w_, keeping));
  }
  std::vector<float> OfCoarseInputs(int digits) const {
    std::vector<float> x = x_, w = w_;
    for (auto* values : {&x, &w}) {
      for (float& value : *values) value = Coarse(digits, value);
    }
    return Rounded(family_.in_float(x, w, {}));
  }
  std::vector<float> CoarseOutputs(int digits) const {
    std::vector<float> out(truth_.begin(), truth_.end());
    for (float& value : out) value = Coarse(digits, value);
    return Rounded(out);
  }
  std::vector<float> OneOff(double steps) const {
    std::vector<float> out = reference_;
    double squares = 0;
    for (const double t : truth_) squares += t * t;
    const double rms = std::sqrt(squares / static_cast<double>(truth_.size()));
    const size_t at = out.size() / 3;
    out[at] = KeptAs(
        dtype_, static_cast<float>(out[at] + steps * Roundoff(dtype_) * std::max(std::abs(truth_[at]), rms)));
    return out;
  }
  // The reference is at its best: eager rounds once at the end.
  CheckResult Check(const std::vector<float>& answer) const {
    return CheckAgainstTruth({"out", family_.shape, family_.reduction, dtype_}, answer, reference_, truth_,
                             {}, 1);
  }
  CheckResult Timed(const std::vector<float>& answer) const {
    const double margin = 10 * Check(reference_).reference_error;
    return CheckAgainstReference({"out", family_.shape, family_.reduction, dtype_}, answer, reference_, {},
                                 margin, 1);
  }

 private:
  const Family& family_;
  DType dtype_;
  std::vector<float> x_, w_, reference_;
  std::vector<double> truth_;
};

// Bits after the leading one of the next coarser type: bf16 for fp16, fp8 (e4m3) for bf16.
int CoarserDigits(DType dtype) { return dtype == DType::kF16 ? 7 : 3; }

template <typename Check>
void ForEachCase(const Check& check) {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    for (const Family& family : kFamilies) {
      for (int member = 0; member < kMixtureMembers; ++member) {
        INFO(family.name << " in " << DTypeName(dtype) << ", " << MixtureMemberName(member));
        check(Asked(family, dtype, member), dtype, member);
      }
    }
  }
}

Problem Copy() {
  return ParseProblem(R"(id = "mine/copy"
name = "Copy"
families = ["elementwise"]
reference = '''
def forward(x, i):
    return torch.take(x, i)
'''
[sizes.small]
N = 1000
[[inputs]]
name = "x"
shape = ["N"]
[[inputs]]
name = "i"
shape = ["N"]
dtype = "int64"
[[outputs]]
name = "out"
shape = ["N"]
[cost]
flops = 0
bytes = "4*N + 4*N + 8*N"
min_flops = 0
min_bytes = "8*N"
)",
                      "copy.toml");
}

}  // namespace

TEST_CASE("every number of 16 bits comes back as itself") {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    Float16 half{static_cast<uint16_t>(bits)}, half_again;
    BFloat16 brain{static_cast<uint16_t>(bits)}, brain_again;
    Round(ToFloat(half), &half_again);
    Round(ToFloat(brain), &brain_again);
    const bool half_same =
        std::isnan(ToFloat(half)) ? std::isnan(ToFloat(half_again)) : half_again.bits == bits;
    const bool brain_same =
        std::isnan(ToFloat(brain)) ? std::isnan(ToFloat(brain_again)) : brain_again.bits == bits;
    if (!half_same || !brain_same) FAIL("bits " << bits);
  }
  CHECK(ToFloat(Float16{0x3c00}) == 1);
  CHECK(ToFloat(Float16{0x7bff}) == 65504);
  CHECK(ToFloat(Float16{0x0001}) == 0x1p-24F);
  CHECK(ToFloat(BFloat16{0xc040}) == -3);
}

TEST_CASE("rounding is to the nearest, ties to even, and beyond the range to infinity") {
  CHECK(Kept<Float16>(1 + 0x1p-11F) == 1);
  CHECK(Kept<Float16>(1 + 0x1.8p-10F) == 1 + 0x1p-9F);
  CHECK(Kept<Float16>(65519.9F) == 65504);
  CHECK(std::isinf(Kept<Float16>(65520)));
  CHECK(Kept<Float16>(0x1.8p-24F) == 0x1p-23F);
  CHECK(Kept<BFloat16>(1 + 0x1p-8F) == 1);
  CHECK(Kept<BFloat16>(1 + 0x1.8p-7F) == 1 + 0x1p-6F);
  std::mt19937 random(3);
  for (int i = 0; i < 100'000; ++i) {
    const float value = std::bit_cast<float>(static_cast<uint32_t>(random()));
    if (!std::isfinite(value)) continue;
    for (const DType dtype : {DType::kF16, DType::kBF16}) {
      const double kept = KeptAs(dtype, value), exact = value;
      if (std::isinf(kept)) {
        CHECK(std::abs(exact) > LargestFinite(dtype));
        continue;
      }
      const double most =
          std::max(Roundoff(dtype) * std::abs(exact), dtype == DType::kF16 ? 0x1p-25 : 0x1p-134);
      if (!(std::abs(kept - exact) <= most)) FAIL(value << " became " << kept);
    }
  }
}

TEST_CASE("inputs of 16 bits are float32's, rounded") {
  for (const DType dtype : {DType::kF16, DType::kBF16}) {
    TensorSpec spec;
    spec.structure = Structure::kSymmetric;
    std::vector<float> wide(64 * 64);
    std::vector<uint16_t> narrow(64 * 64);
    FillTensor(spec, InputMode::kDefault, StreamOf(6), 64 * 64, 2, wide.data());
    spec.dtype = dtype;
    FillTensor(spec, InputMode::kDefault, StreamOf(6), 64 * 64, 2, narrow.data());
    for (size_t i = 0; i < wide.size(); ++i) {
      const float value = dtype == DType::kF16 ? ToFloat(Float16{narrow[i]}) : ToFloat(BFloat16{narrow[i]});
      REQUIRE(value == KeptAs(dtype, wide[i]));
    }
  }
  TensorSpec large;
  large.dtype = DType::kF16;
  large.scale = 1e9;
  std::vector<uint16_t> cut(100);
  FillTensor(large, InputMode::kDefault, StreamOf(1), 100, 1, cut.data());
  for (const uint16_t bits : cut) CHECK(std::isfinite(ToFloat(Float16{bits})));
}

TEST_CASE("a problem in another precision: types, bytes, signatures; text and hash stay") {
  const Problem wide = Copy(), narrow = InPrecision(wide, Precision::kBf16);
  CHECK(PrecisionOf(wide) == Precision::kFp32);
  CHECK(PrecisionOf(narrow) == Precision::kBf16);
  CHECK((narrow.text == wide.text && narrow.content_hash == wide.content_hash));
  CHECK((narrow.inputs[0].dtype == DType::kBF16 && narrow.inputs[1].dtype == DType::kI64));
  CHECK(LaunchSignature(narrow) == "extern \"C\" void launch(const bf16* x, const long* i, bf16* out)");
  CHECK(LaunchSignature(narrow, "cuda") ==
        "void launch(const __nv_bfloat16* x, const long* i, __nv_bfloat16* out)");
  CHECK(LaunchSignature(InPrecision(wide, Precision::kFp16)) ==
        "extern \"C\" void launch(const _Float16* x, const long* i, _Float16* out)");
  const SizedProblem sized = AtSize(narrow, "small");
  CHECK(sized.bytes == 2000 + 2000 + 8000);
  CHECK(sized.min_bytes == 4000);
  CHECK(sized.inputs[0].bytes == 2000);
  CHECK(AtSize(InPrecision(wide, Precision::kFp32), "small").bytes == 16000);
  CHECK(PrecisionOf(InPrecision(narrow, Precision::kFp16)) == Precision::kBf16);
  CHECK(PrecisionNamed("fp16") == Precision::kFp16);
  CHECK_THROWS_AS(PrecisionNamed("fp8"), Error);
}

TEST_CASE("stored values are rounded to the precision; only what is infinite stays infinite") {
  constexpr float kInfinite = std::numeric_limits<float>::infinity();
  const std::vector<float> given = {1, -2.5F, 1e-3F, 1e9F, -kInfinite};
  Problem problem = Copy();
  TensorSpec& input = problem.inputs[0];
  input.shape = {"5"};
  input.distribution = Distribution::kStored;
  input.stored =
      std::make_shared<const std::string>(reinterpret_cast<const char*>(given.data()), given.size() * 4);
  for (const Precision precision : {Precision::kFp16, Precision::kBf16}) {
    const Problem narrow = InPrecision(problem, precision);
    const TensorSpec& spec = narrow.inputs[0];
    REQUIRE(spec.stored->size() == 10);
    std::vector<uint16_t> bits(5);
    FillTensor(spec, InputMode::kDefault, StreamOf(3), 5, 1, bits.data());
    const auto value = [&](size_t i) {
      return precision == Precision::kFp16 ? ToFloat(Float16{bits[i]}) : ToFloat(BFloat16{bits[i]});
    };
    for (size_t i = 0; i < 3; ++i) CHECK(value(i) == KeptAs(spec.dtype, given[i]));
    CHECK(value(3) == (precision == Precision::kFp16 ? 65504 : KeptAs(spec.dtype, 1e9F)));
    CHECK(value(4) == -kInfinite);
  }
  CHECK(problem.inputs[0].stored->size() == 20);
}

TEST_CASE("a block of parameters is of the problem's type") {
  Problem problem = Copy();
  for (int i = 0; i < 20; ++i) {
    TensorSpec param;
    param.name = "w" + std::to_string(i);
    param.shape = {"N"};
    param.is_param = true;
    problem.inputs.push_back(param);
  }
  const Problem narrow = InPrecision(problem, Precision::kFp16);
  CHECK(LaunchTensors(narrow)[2].dtype == DType::kF16);
  CHECK(AtSize(narrow, "small").arguments[2].bytes == 2 * 20 * 1024);
  CHECK(AtSize(problem, "small").arguments[2].bytes == 4 * 20 * 1024);
}

TEST_CASE("correct answers in 16 bits pass: float arithmetic, and one more rounding between its steps") {
  ForEachCase([](const Asked& asked, DType, int) {
    for (const bool middle : {false, true}) {
      const std::vector<float> answer = asked.Keeping16(false, middle);
      const CheckResult result = asked.Check(answer);
      INFO(result.message);
      CHECK(result.ok);
      CHECK(asked.Timed(answer).ok);
    }
  });
}

TEST_CASE("inputs rounded to the next coarser type fail") {
  ForEachCase([](const Asked& asked, DType dtype, int) {
    CHECK_FALSE(asked.Check(asked.OfCoarseInputs(CoarserDigits(dtype))).ok);
    if (dtype == DType::kF16) CHECK_FALSE(asked.Check(asked.OfCoarseInputs(3)).ok);
  });
}

TEST_CASE("outputs rounded to the next coarser type fail") {
  ForEachCase([](const Asked& asked, DType dtype, int) {
    CHECK_FALSE(asked.Check(asked.CoarseOutputs(CoarserDigits(dtype))).ok);
  });
}

TEST_CASE("sums in 16 bits fail") {
  ForEachCase([](const Asked& asked, DType, int member) {
    // A heavy-tailed row's largest term carries its softmax alone.
    const bool shows = member != 2 || asked.family().in_float != Softmax<float>;
    if (asked.family().has_sum && shows) CHECK_FALSE(asked.Check(asked.Keeping16(true, false)).ok);
  });
}

TEST_CASE("one element with an error above rounding fails") {
  ForEachCase([](const Asked& asked, DType, int) { CHECK_FALSE(asked.Check(asked.OneOff(16)).ok); });
}

TEST_CASE("the bound in 16 bits: float32's arithmetic, and four roundings") {
  CHECK(FloorOf(400, DType::kF32).At(7, 1) == 8 * 0x1p-23 * 20);
  CHECK(FloorOf(400, DType::kF16).At(0.5, 1) == Approx(8 * 0x1p-23 * 20 + 3 * 0x1p-11 + 2 * 0x1p-24));
  CHECK(FloorOf(400, DType::kBF16).At(0.5, 1) == Approx(8 * 0x1p-23 * 20 + 3 * 0x1p-8));
}

TEST_CASE(
    "beyond the range of fp16 infinity passes, and so does the value where eager overflows in between") {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<int64_t> shape{4};
  const auto check = [&](DType dtype, std::vector<double> truth, std::vector<float> reference,
                         std::vector<float> answer) {
    return CheckAgainstTruth({"out", shape, 1, dtype}, answer, reference, truth, {}, 1).ok;
  };
  CHECK(check(DType::kF16, {1, 2, 3, 70000}, {1, 2, 3, infinity}, {1, 2, 3, infinity}));
  CHECK(check(DType::kF16, {1, 2, 3, 65515}, {1, 2, 3, 65504}, {1, 2, 3, infinity}));
  CHECK(check(DType::kF16, {1, 2, 3, 4}, {1, 2, 3, infinity}, {1, 2, 3, 4}));
  CHECK_FALSE(check(DType::kF16, {1, 2, 3, 4}, {1, 2, 3, infinity}, {1, 2, 3, 5}));
  CHECK_FALSE(check(DType::kF16, {1, 2, 3, 60000}, {1, 2, 3, 60000}, {1, 2, 3, infinity}));
  CHECK_FALSE(check(DType::kF16, {1, 2, 3, -70000}, {1, 2, 3, -infinity}, {1, 2, 3, infinity}));
  CHECK_FALSE(check(DType::kF32, {1, 2, 3, 4}, {1, 2, 3, infinity}, {1, 2, 3, 4}));
}

}  // namespace kevin
