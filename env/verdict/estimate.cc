#include "env/verdict/estimate.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

namespace kevin {
namespace {

constexpr double kAlpha = 0.03;
constexpr double kRhoSquared = 0.12;  // tightest around 20 pairs
constexpr double kSame = 0.02;
constexpr double kReach = 2.5;         // robust standard deviations
constexpr double kOneSided = 2.5;      // standard deviations of a fair coin
constexpr double kPriorProcesses = 6;  // weight of the calibrated spread between processes, in processes

double Mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

double Variance(std::span<const double> values) {
  if (values.size() < 2) return 0;
  const double mean = Mean(values);
  double squares = 0;
  for (const double v : values) squares += (v - mean) * (v - mean);
  return squares / static_cast<double>(values.size() - 1);
}

// Where single values are too far from the median: further than kReach robust standard deviations.
struct Reach {
  double low = 0, high = 0;

  explicit Reach(const std::vector<double>& raw) {
    const double median = Median(raw);
    const double limit = kReach * std::max(RobustDeviation(raw, median), 1e-3);
    low = median - limit;
    high = median + limit;
  }
};

// Values out of reach are moved to its end: on a shared machine one pair in twenty is disturbed by other work. That
// work hits both sides alike. Pairs in which the candidate alone is slow are its own, and count as they are.
struct Clamped {
  std::vector<double> values;
  double share = 0;  // of values that were moved

  Clamped(const std::vector<double>& raw, bool is_quiet) {
    const Reach reach(raw);
    const double low =
        HasSlowPairsOfItsOwn(raw, is_quiet) ? -std::numeric_limits<double>::infinity() : reach.low;
    for (const double v : raw) {
      values.push_back(std::clamp(v, low, reach.high));
      share += (values.back() != v) / static_cast<double>(raw.size());
    }
  }
};

// The standard deviation of single pairs that the spread of the process means implies. The last process may
// be incomplete.
double SpreadOfProcesses(std::span<const double> values, std::span<const size_t> starts) {
  constexpr size_t kFewest = 4;  // means, for an estimate of their variance
  std::vector<double> means;
  size_t begin = 0;
  for (const size_t end : starts) {
    means.push_back(Mean(values.subspan(begin, end - begin)));
    begin = end;
  }
  if (means.size() < kFewest) return 0;
  return std::sqrt(Variance(means) * static_cast<double>(begin) / static_cast<double>(means.size()));
}

// By the ends of an interval of log-ratios.
Verdict VerdictBetween(double low, double high) {
  if (low > 0) return Verdict::kFast;
  if (high < 0) return Verdict::kSlow;
  return low > -kSame && high < kSame ? Verdict::kSame : Verdict::kAmbiguous;
}

}  // namespace

bool HasSlowPairsOfItsOwn(const std::vector<double>& log_ratios, bool is_quiet) {
  constexpr size_t kFew = 8;
  if (log_ratios.empty()) return false;
  const Reach reach(log_ratios);
  double slow = 0, fast = 0;
  for (const double v : log_ratios) {
    slow += v < reach.low;
    fast += v > reach.high;
  }
  if (is_quiet && log_ratios.size() <= kFew) return slow > fast;
  return slow - fast > kOneSided * std::sqrt(slow + fast);
}

double Median(std::vector<double> values) {
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + middle, values.end());
  const double upper = values[middle];
  if (values.size() % 2) return upper;
  return (upper + *std::max_element(values.begin(), values.begin() + middle)) / 2;
}

Verdict SequentialTest::Current() const {
  if (log_ratios_.size() < first_look_) return Verdict::kAmbiguous;
  const std::vector<double> values = Clamped(log_ratios_, calibration_.is_quiet).values;
  const auto n = static_cast<double>(values.size());
  const double sd = std::max({std::sqrt(Variance(values)), SpreadOfProcesses(values, starts_), 0.005});
  const double inflated = n * kRhoSquared + 1;
  const double width =
      sd * std::sqrt(2 * inflated / (n * n * kRhoSquared) * std::log(std::sqrt(inflated) / kAlpha));
  const double systematic = std::hypot(calibration_.between_processes, calibration_.residual);
  const double reach = width + systematic;
  const double mean = Mean(values);
  return VerdictBetween(mean - reach, mean + reach);
}

Verdict VerdictOf(const Ratio& ratio) {
  if (ratio.pairs == 0) return Verdict::kAmbiguous;
  return VerdictBetween(std::log(ratio.low), std::log(ratio.high));
}

Ratio EstimateRatio(std::span<const std::vector<double>> log_ratios_by_process,
                    ClockCalibration calibration) {
  std::vector<double> all;
  for (const std::vector<double>& process : log_ratios_by_process)
    all.insert(all.end(), process.begin(), process.end());
  Ratio ratio;
  if (all.empty()) return ratio;
  const Clamped clamped(all, calibration.is_quiet);
  std::vector<double> means;
  double squares = 0, per_process = 0;
  size_t next = 0;
  for (const std::vector<double>& process : log_ratios_by_process) {
    if (process.empty()) continue;
    const std::span<const double> values(&clamped.values[next], process.size());
    next += process.size();
    means.push_back(Mean(values));
    squares += Variance(values) * static_cast<double>(values.size() - 1);
    per_process += 1 / static_cast<double>(values.size());
  }
  ratio.pairs = static_cast<int>(all.size());
  ratio.processes = static_cast<int>(means.size());
  const auto processes = static_cast<double>(means.size());
  const double freedom = std::max(static_cast<double>(ratio.pairs) - processes, 1.0);
  // Clamped pairs still count: the variance of a winsorised mean (Yuen 1974) grows by the share kept,
  // squared.
  const double kept = 1 - clamped.share;
  const double within = squares / freedom / (kept * kept) * per_process / processes;
  // Variance of the mean of one process: the observed one, pooled with the one of the calibration.
  const double expected = calibration.between_processes * calibration.between_processes + within;
  double degrees = processes - 1 + kPriorProcesses;
  // Of one process, the spread of few pairs says less than the calibration does (Welch and Satterthwaite).
  if (means.size() == 1) {
    const double between = calibration.between_processes * calibration.between_processes;
    const double of_parts = between * between / kPriorProcesses + within * within / freedom;
    if (of_parts > 0) degrees = std::min(degrees, expected * expected / of_parts);
  }
  const double pooled = ((processes - 1) * Variance(means) + kPriorProcesses * expected) / degrees;
  ratio.log_se = std::sqrt(pooled / processes + calibration.residual * calibration.residual);
  const double mean = Mean(means), reach = StudentQuantile99(degrees) * ratio.log_se;
  ratio.value = std::exp(mean);
  ratio.low = std::exp(mean - reach);
  ratio.high = std::exp(mean + reach);
  return ratio;
}

double RobustDeviation(std::vector<double> values, double centre) {
  for (double& value : values) value = std::abs(value - centre);
  return 1.4826 * Median(std::move(values));
}

int PairsFor(std::vector<double> log_ratios, double half_width) {
  constexpr double kQuantile = 2.8, kMost = 1e6;  // of Student's t with some twenty degrees of freedom
  const double middle = Median(log_ratios);
  const double reach = kQuantile * RobustDeviation(std::move(log_ratios), middle);
  return static_cast<int>(std::clamp(std::pow(reach / half_width, 2), 1.0, kMost));
}

double StudentQuantile99(double degrees_of_freedom) {
  static constexpr std::array<double, 30> kTable = {63.657, 9.925, 5.841, 4.604, 4.032, 3.707, 3.499, 3.355,
                                                    3.250,  3.169, 3.106, 3.055, 3.012, 2.977, 2.947, 2.921,
                                                    2.898,  2.878, 2.861, 2.845, 2.831, 2.819, 2.807, 2.797,
                                                    2.787,  2.779, 2.771, 2.763, 2.756, 2.750};
  const double df = std::max(degrees_of_freedom, 1.0);
  if (df >= 30) return 2.5758 + (2.750 - 2.5758) * 30 / df;
  const auto below = static_cast<size_t>(df) - 1;
  const double part = df - std::floor(df);
  return below + 1 < kTable.size() ? kTable[below] * (1 - part) + kTable[below + 1] * part : kTable.back();
}

}  // namespace kevin
