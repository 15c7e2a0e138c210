#include "env/verdict/verify.h"

#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "env/process/generator.h"
#include "env/process/poison.h"
#include "tests/catch.h"

namespace kevin {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A tensor of 64 rows of 256 whose reference is the truth rounded to fp32.
struct Case {
  std::vector<int64_t> shape{64, 256};
  std::vector<double> truth;
  std::vector<float> reference, answer;
  int64_t reduction = 1;

  Case() {
    std::mt19937 random(1);
    std::normal_distribution<double> normal;
    for (int i = 0; i < 64 * 256; ++i) truth.push_back(normal(random));
    reference.assign(truth.begin(), truth.end());
    answer = reference;
  }
  CheckResult Truth() const {
    return CheckAgainstTruth({"out", shape, reduction}, answer, reference, truth, {}, 2);
  }
  CheckResult Timed(double margin = 0) const {
    return CheckAgainstReference({"out", shape, reduction}, answer, reference, {}, margin, 2);
  }
};

}  // namespace

TEST_CASE("the reference itself is right") {
  const Case c;
  CHECK(c.Truth().ok);
  CHECK(c.Timed().ok);
}

TEST_CASE("one wrong element is wrong, and named with both values") {
  Case c;
  c.answer[3 * 256 + 5] = c.reference[3 * 256 + 5] + 0.01F;
  for (const CheckResult& result : {c.Truth(), c.Timed()}) {
    CHECK_FALSE(result.ok);
    CHECK(result.message.find("out[3, 5] = ") == 0);
    CHECK(result.message.find("expected") != std::string::npos);
    CHECK(result.message.find("1 of 16384 elements") != std::string::npos);
    CHECK(result.max_error == Approx(0.01).epsilon(0.01));
  }
}

TEST_CASE("a row whose squares overflow float has a bound all the same") {
  Case c;
  for (int i = 0; i < 256; ++i) {
    c.truth[i] *= 1e25;
    c.answer[i] = c.reference[i] = static_cast<float>(c.truth[i]);
  }
  CHECK(c.Truth().ok);
  CHECK(c.Timed().ok);
  std::fill_n(c.answer.begin(), 256, 1.0F);
  CHECK_FALSE(c.Truth().ok);
  CHECK_FALSE(c.Timed().ok);
  std::fill_n(c.answer.begin(), 256, std::numeric_limits<float>::infinity());
  CHECK_FALSE(c.Timed().ok);
}

TEST_CASE("the bound: 8 eps sqrt(K) of the row's magnitude") {
  Case c;
  double squares = 0;
  for (int i = 0; i < 256; ++i) squares += c.truth[i] * c.truth[i];
  const double rms = std::sqrt(squares / 256);
  c.truth[7] = c.reference[7] = 0;  // nothing of its own: the row's RMS decides
  for (const int64_t k : {int64_t{1}, int64_t{400}}) {
    c.reduction = k;
    const double bound = 8 * 0x1p-23 * std::sqrt(static_cast<double>(k)) * rms;
    c.answer[7] = static_cast<float>(0.97 * bound);
    CHECK(c.Truth().ok);
    c.answer[7] = static_cast<float>(1.03 * bound);
    CHECK_FALSE(c.Truth().ok);
    CHECK_FALSE(c.Timed().ok);
  }
}

TEST_CASE("where the reference is off, four times its error is allowed") {
  Case c;
  c.reference[9] = static_cast<float>(c.truth[9] + 1e-3);
  c.answer[9] = static_cast<float>(c.truth[9] - 3.9e-3);
  CHECK(c.Truth().ok);
  c.answer[9] = static_cast<float>(c.truth[9] - 4.1e-3);
  CHECK_FALSE(c.Truth().ok);
}

TEST_CASE("a row may not be worse than four times the reference's RMS error") {
  Case c;
  double squares = 0;
  for (int i = 0; i < 256; ++i) squares += c.truth[i] * c.truth[i];
  c.reduction = 1 << 20;  // a floor far above rounding
  const double rms = std::sqrt(squares / 256), floor = 8 * 0x1p-23 * 1024 * rms;
  for (int i = 0; i < 256; ++i) {
    c.truth[i] = std::copysign(0.1 * rms, c.truth[i]);  // so that the row's RMS decides everywhere
    c.reference[i] = c.answer[i] = static_cast<float>(c.truth[i]);
  }
  const double own_floor = floor * 0.1;
  // Half the elements off by 4 times the reference's error, half by the floor: each within its own bound.
  for (int i = 0; i < 256; ++i) {
    if (i % 2) c.reference[i] = static_cast<float>(c.truth[i] + 0.3 * own_floor);
    c.answer[i] = static_cast<float>(c.truth[i] + (i % 2 ? 0.99 * 1.2 : 0.99) * own_floor);
  }
  const CheckResult result = c.Truth();
  CHECK_FALSE(result.ok);
  CHECK(result.message.find("the row that starts at [0, 0] has RMS error") != std::string::npos);
  // An output of one row has no other one.
  const std::vector<int64_t> row{256};
  CHECK(CheckAgainstTruth({"out", row, c.reduction}, std::span(c.answer).first(256),
                          std::span(c.reference).first(256), std::span(c.truth).first(256), {}, 1)
            .message.starts_with("out has RMS error "));
  for (int i = 0; i < 256; i += 2) c.answer[i] = static_cast<float>(c.truth[i]);
  CHECK(c.Truth().ok);
}

TEST_CASE(
    "in 16 bits an element may be off by error_spread times the RMS of the reference's errors along its row") {
  // Eager's errors are far above rounding; that of one element is nothing by chance.
  Case c;
  std::mt19937 random(2);
  std::normal_distribution<double> error(0, 0.1);
  for (size_t i = 0; i < c.truth.size(); ++i) {
    c.reference[i] = static_cast<float>(c.truth[i] + error(random));
    c.answer[i] = static_cast<float>(c.truth[i] + error(random));
  }
  const size_t at = 5 * 256 + 9;
  c.reference[at] = static_cast<float>(c.truth[at]);
  const auto check = [&](double off, DType dtype, const std::vector<int64_t>& shape, double spread = 8) {
    c.answer[at] = static_cast<float>(c.truth[at] + off);
    return CheckAgainstTruth({"out", shape, 1, dtype, spread}, c.answer, c.reference, c.truth, {}, 2);
  };
  const CheckResult right = check(0.65, DType::kBF16, c.shape);
  INFO(right.message);
  CHECK(right.ok);
  CHECK(right.error_bound == Approx(0.8).epsilon(0.1));
  const CheckResult wrong = check(1.0, DType::kBF16, c.shape);
  CHECK_FALSE(wrong.ok);
  CHECK(wrong.message.find("out[5, 9] = ") == 0);
  CHECK(wrong.message.find("1 of 16384 elements") != std::string::npos);
  CHECK(check(1.0, DType::kF16, c.shape, 12).ok);
  CHECK_FALSE(check(0.65, DType::kBF16, c.shape, 0).ok);
  CHECK_FALSE(check(0.65, DType::kF32, c.shape).ok);
  CHECK_FALSE(check(0.65, DType::kBF16, {1024, 16}).ok);  // short rows show no spread
}

TEST_CASE("NaN and Inf must be where the reference has them") {
  Case c;
  c.answer[0] = kNan;
  CHECK_FALSE(c.Truth().ok);
  CHECK_FALSE(c.Timed().ok);
  c.reference[0] = kNan;
  c.truth[0] = kNan;
  CHECK(c.Truth().ok);
  CHECK(c.Timed().ok);
  c.answer[0] = 0;
  CHECK_FALSE(c.Truth().ok);
  c.reference[1] = kInfinity;
  c.truth[1] = kInfinity;
  c.answer[0] = kNan;
  c.answer[1] = -kInfinity;
  CHECK_FALSE(c.Truth().ok);
  c.answer[1] = kInfinity;
  CHECK(c.Truth().ok);
}

TEST_CASE("an element that was never written is called that") {
  Case c;
  c.answer[100] = std::bit_cast<float>(PoisonWord({SecretRandom()()}, 1100));
  CHECK(c.Truth().message.starts_with("out[0, 100] = NaN (never written), expected "));
  CHECK_FALSE(c.Timed().ok);
}

TEST_CASE("a problem's own scale replaces the row's") {
  Case c;
  std::vector<double> scale(c.truth.size(), 1e-6);
  c.answer[5] = std::nextafter(std::nextafter(c.reference[5], 10.0F), 10.0F);
  CHECK(c.Truth().ok);
  CHECK_FALSE(CheckAgainstTruth({"out", c.shape, 1}, c.answer, c.reference, c.truth, scale, 1).ok);
}

TEST_CASE("index outputs are right if they point at an extreme value") {
  const std::vector<int64_t> shape{2, 3, 2};  // along dim 1
  const std::vector<float> values{1, 9, 5, 2, 5, 3, /**/ 0, 0, -1, 4, -1, 7};
  const auto check = [&](std::vector<int64_t> answer, bool maximum) {
    return CheckExtremeIndex("out", answer, values, shape, 1, maximum);
  };
  CHECK(check({1, 0, 0, 2}, true).ok);
  CHECK(check({2, 0, 0, 2}, true).ok);  // a tie: either
  CHECK_FALSE(check({0, 0, 0, 2}, true).ok);
  CHECK_FALSE(check({1, 0, 0, 3}, true).ok);
  CHECK_FALSE(check({1, 0, -1, 2}, true).ok);
  CHECK(check({0, 1, 2, 0}, false).ok);
  CHECK(check({1, 0, 0, 1}, true).message.find("points at 4") != std::string::npos);
}

TEST_CASE("a single column counts as one row") {
  std::vector<double> truth{100, -100, 1e-9};
  std::vector<float> reference(truth.begin(), truth.end()), answer = reference;
  answer[2] = 1e-6F;  // 0 by cancellation: the tensor's magnitude decides
  const std::vector<int64_t> shape{3, 1};
  CHECK(CheckAgainstTruth({"out", shape, 1}, answer, reference, truth, {}, 1).ok);
}

}  // namespace kevin
