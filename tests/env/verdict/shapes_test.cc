#include "env/verdict/shapes.h"

#include <cmath>
#include <limits>

#include "tests/catch.h"

namespace kevin {
namespace {

// An interval that is symmetric for the logarithm.
Ratio Around(double value, double half_width) {
  return {value, value * std::exp(-half_width), value * std::exp(half_width), half_width / 3, 24, 3};
}

bool Near(double a, double b) { return std::abs(a - b) <= 1e-12 * std::abs(b); }

ShapeResult Shape(const std::string& size, double weight, const Measured& measured) {
  return {size, {{"N", 8}}, weight, measured, 3};
}

Measured MeasuredAt(const Ratio& speedup, Verdict verdict, double candidate_us) {
  Measured m;
  m.speedup = speedup;
  m.verdict = verdict;
  m.candidate_us = candidate_us;
  m.reference_us = candidate_us * speedup.value;
  m.gb_per_s = 100 / candidate_us;
  m.max_error = 1e-7;
  m.error_bound = 1e-6;
  return m;
}

}  // namespace

TEST_CASE("several ratios: weighted geometric mean, half-widths in quadrature") {
  // 2^(3/4) * 1.5^(1/4); half-widths (3/4 * 0.04, 1/4 * 0.16) = (0.03, 0.04), together 0.05.
  const std::vector<WeightedRatio> two = {{Around(2, 0.04), 3}, {Around(1.5, 0.16), 1}};
  const Ratio mean = CombineRatios(two);
  CHECK(Near(mean.value, std::pow(2, 0.75) * std::pow(1.5, 0.25)));
  CHECK(Near(std::log(mean.high / mean.value), 0.05));
  CHECK(Near(std::log(mean.value / mean.low), 0.05));
  CHECK(Near(mean.log_se, 0.05 / 3));
  CHECK(mean.pairs == 48);
  CHECK(mean.processes == 6);

  // n equal shapes: the interval is narrower by sqrt(n). Only the weights' shares matter.
  for (const double weight : {1.0, 1e-300, 1e308}) {
    const Ratio four = CombineRatios(std::vector<WeightedRatio>(4, {Around(1.25, 0.02), weight}));
    CHECK(Near(four.value, 1.25));
    CHECK(Near(std::log(four.high / four.value), 0.01));
  }

  // The two ends are combined each for itself.
  const std::vector<WeightedRatio> skewed = {{{1, std::exp(-0.06), std::exp(0.3)}, 1},
                                             {{1, std::exp(-0.08), std::exp(0.4)}, 1}};
  CHECK(Near(-std::log(CombineRatios(skewed).low), 0.05));
  CHECK(Near(std::log(CombineRatios(skewed).high), 0.25));

  const Ratio one = CombineRatios(std::vector<WeightedRatio>{{Around(1.3, 0.02), 7}});
  CHECK(Near(one.low, 1.3 * std::exp(-0.02)));
}

TEST_CASE("measured at several shapes: times and rates are means, the verdict is theirs or the interval's") {
  std::vector<ShapeResult> shapes = {Shape("mine/1", 1, MeasuredAt(Around(1.2, 0.03), Verdict::kFast, 4)),
                                     Shape("mine/2", 1, MeasuredAt(Around(1.1, 0.04), Verdict::kFast, 16))};
  auto& second = std::get<Measured>(shapes[1].outcome);
  second.max_error = 9e-7;
  Measured together = CombineMeasured(shapes);
  CHECK(Near(together.candidate_us, 8));
  CHECK(Near(together.reference_us / together.candidate_us, together.speedup.value));
  CHECK(Near(together.gb_per_s, 100.0 / 8));
  CHECK(together.gflop_per_s == 0);  // unknown stays unknown
  CHECK(together.max_error == 9e-7);
  CHECK(together.verdict == Verdict::kFast);
  CHECK(WeakestShape(shapes) == 1);

  second = MeasuredAt(Around(0.9, 0.04), Verdict::kSlow, 16);
  CHECK(CombineMeasured(shapes).verdict == Verdict::kFast);  // 1.039 with a half-width of 0.025
  second = MeasuredAt(Around(0.84, 0.04), Verdict::kSlow, 16);
  CHECK(CombineMeasured(shapes).verdict == Verdict::kAmbiguous);  // 1.004 -+ 0.025
  second = MeasuredAt(Around(0.84, 0.01), Verdict::kSlow, 16);
  std::get<Measured>(shapes[0].outcome).speedup = Around(1.2, 0.01);
  CHECK(CombineMeasured(shapes).verdict == Verdict::kSame);  // 1.004 -+ 0.0071
  second = MeasuredAt(Around(0.7, 0.04), Verdict::kSlow, 16);
  CHECK(CombineMeasured(shapes).verdict == Verdict::kSlow);

  CHECK_FALSE(CombineMeasured(shapes).against_start.has_value());
  second.against_start = Around(4, 0.01);
  CHECK_FALSE(CombineMeasured(shapes).against_start.has_value());
  std::get<Measured>(shapes[0].outcome).against_start = Around(1, 0.01);
  CHECK(Near(CombineMeasured(shapes).against_start->value, 2));
  shapes[0].outcome = Wrong{"out[3] is 0"};
  CHECK(WeakestShape(shapes) == 0);
}

}  // namespace kevin
