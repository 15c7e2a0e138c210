#include "env/verdict/pace.h"

#include <fmt/format.h>

#include <cmath>
#include <numeric>

#include "env/verdict/estimate.h"

namespace kevin {
namespace {

constexpr double kIfFew = 4;     // times the limit, where the scatter is unknown
constexpr double kChance = 2.5;  // standard errors

struct MeanBound {
  double mean = 0, low = -1e300;  // low: 99.5 % bound below the mean
  double standard_error = 0;      // 0: one value
};

MeanBound BoundOf(const std::vector<double>& values) {
  MeanBound bound;
  const auto count = static_cast<double>(values.size());
  if (values.empty()) return bound;
  bound.mean = std::accumulate(values.begin(), values.end(), 0.0) / count;
  if (values.size() < 2) return bound;
  double squares = 0;
  for (const double value : values) squares += (value - bound.mean) * (value - bound.mean);
  bound.standard_error = std::sqrt(squares / (count - 1) / count);
  bound.low = bound.mean - StudentQuantile99(count - 1) * bound.standard_error;
  return bound;
}

}  // namespace

void Pace::Add(const AuditedPace& audit) {
  lags_.push_back(audit.lag);
  excesses_.push_back(audit.excess);
}

bool Pace::HasReadAhead() const { return read_ahead_ * static_cast<int>(kAuditsOfAnotherLook) > marks_; }

bool Pace::IsSuspicious() const {
  if (HasReadAhead() || BoundOf(lags_).mean > kMaxLag / 2) return true;
  const MeanBound excess = BoundOf(excesses_);
  if (!HasEnough()) return excess.mean > kIfFew * kMaxExcess;
  return excess.mean > kMaxExcess && excess.mean > kChance * excess.standard_error;
}

bool Pace::NeedsAnotherLook() const {
  if (read_ahead_ > 1 || !IsSuspicious()) return false;
  return (HasReadAhead() ? static_cast<size_t>(marks_) : lags_.size()) < kAuditsOfAnotherLook;
}

std::string Pace::Refusal() const {
  const MeanBound lag = BoundOf(lags_), excess = BoundOf(excesses_);
  if (excess.low > kMaxExcess) {
    return fmt::format(
        "worked ahead: a batch takes {:.0f} % longer when inputs of calls that have not begun change",
        100 * std::expm1(excess.mean));
  }
  if (lag.low > kMaxLag) {
    return fmt::format(
        "worked ahead: returned calls lag behind the time that has passed by {:.0f} % of a batch on average",
        100 * lag.mean);
  }
  if (read_ahead_ > kMaxReadAhead && read_ahead_ * kReadAheadOf > kMaxReadAhead * marks_) {
    return fmt::format(
        "worked ahead: inputs of calls that had not begun had been read when a batch was paused, in {} of {} audits",
        read_ahead_, marks_);
  }
  return "";
}

}  // namespace kevin
