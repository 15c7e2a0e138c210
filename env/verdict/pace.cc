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
  slowness_.push_back(audit.slowness);
}

void Pace::AddEarly(double ahead, double slowness) {
  ahead_ += ahead > kMaxAhead;
  slowness_early_.push_back(slowness);
}

void Pace::AddMarks(bool read_ahead, double slowness) {
  slowness_with_marks_.push_back(slowness);
  read_ahead_ += read_ahead;
}

bool Pace::Exceeds(const std::vector<double>& values, double limit) {
  const MeanBound bound = BoundOf(values);
  if (values.size() < kLeastAudits) return bound.mean > kIfFew * limit;
  return bound.mean > limit && bound.mean > kChance * bound.standard_error;
}

bool Pace::IsSuspicious() const {
  return read_ahead_ > 0 || IsMostlyUnknown() || BoundOf(lags_).mean > kMaxLag / 2 || IsEarlySuspicious() ||
         Exceeds(excesses_, kMaxExcess) || Exceeds(slowness_, kMaxSlowness) ||
         Exceeds(slowness_with_marks_, kMaxSlowness);
}

bool Pace::IsEarlySuspicious() const { return ahead_ > 0 || Exceeds(slowness_early_, kMaxSlowness); }

bool Pace::NeedsAnotherLook() const {
  if (read_ahead_ > 0 || IsMostlyUnknown() || !IsSuspicious()) return false;
  const bool is_by_marks = Exceeds(slowness_with_marks_, kMaxSlowness);
  return (is_by_marks           ? slowness_with_marks_
          : IsEarlySuspicious() ? slowness_early_
                                : lags_)
             .size() < kAuditsOfAnotherLook;
}

std::string Pace::Refusal() const {
  const MeanBound lag = BoundOf(lags_), excess = BoundOf(excesses_);
  if (excess.low > kMaxExcess) {
    return fmt::format(
        "worked ahead: a batch takes {:.0f} % longer when inputs of calls that have not begun change",
        100 * std::expm1(excess.mean));
  }
  if (ahead_ > kMaxAheads) {
    return fmt::format(
        "worked ahead: when a batch had just begun more of its calls had returned than its time explains, in {} of {} audits",
        ahead_, slowness_early_.size());
  }
  for (const std::vector<double>* values : {&slowness_, &slowness_early_, &slowness_with_marks_}) {
    const MeanBound slowness = BoundOf(*values);
    if (slowness.low <= kMaxSlowness) continue;
    return fmt::format("worked ahead: a batch that is {} takes {:.0f} % longer than one that is timed",
                       values == &slowness_with_marks_ ? "looked at" : "stopped on its way",
                       100 * std::expm1(slowness.mean));
  }
  if (lag.low > kMaxLag) {
    return fmt::format(
        "worked ahead: returned calls lag behind the time that has passed by {:.0f} % of a batch on average",
        100 * lag.mean);
  }
  const int marks = static_cast<int>(slowness_with_marks_.size());
  if (read_ahead_ > kMaxReadAhead && read_ahead_ * kReadAheadOf > kMaxReadAhead * marks) {
    return fmt::format(
        "worked ahead: inputs of calls that had not begun had been read when a batch was paused, in {} of {} audits",
        read_ahead_, marks);
  }
  return "";
}

}  // namespace kevin
