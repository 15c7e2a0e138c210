#include "env/verdict/call_clock.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "env/verdict/estimate.h"

namespace kevin {
namespace {

constexpr double kOfTime = 0.03;  // of the events' time
constexpr double kSlack_us = 1;   // the events themselves
constexpr double kSpreads = 5, kStandardErrors = 2;
constexpr double kLeastSpread_us = 0.5;
constexpr double kBusy_us = 20, kBusyShare = 0.25;

struct ExcessMean {
  double mean = 0, standard_error = 0;
};

ExcessMean MeanExcess(const std::vector<double>& values) {
  ExcessMean result;
  if (values.empty()) return result;
  const auto count = static_cast<double>(values.size());
  for (const double value : values) result.mean += value / count;
  double squares = 0;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  result.standard_error = values.size() > 1 ? std::sqrt(squares / (count - 1) / count) : 0;
  return result;
}

}  // namespace

void CallClock::AddEmpty(double event_us, double wall_us) { empty_excess_us_.push_back(wall_us - event_us); }

double CallClock::Spread(double centre_us) const {
  return std::max(kLeastSpread_us, RobustDeviation(empty_excess_us_, centre_us));
}

bool CallClock::Believes(double event_us, double wall_us) {
  Call call{event_us, wall_us - event_us};
  const double centre_us = Median(empty_excess_us_);
  const double limit_us = kOfTime * event_us + kSlack_us + kSpreads * Spread(centre_us);
  call.believed = std::abs(call.excess_us - centre_us) <= limit_us;
  calls_.push_back(call);
  return call.believed;
}

std::string CallClock::Contradiction() const {
  if (calls_.empty()) return "";
  std::vector<double> times_us, excess_us, all_us, all_excess_us, empty_us;
  for (const Call& call : calls_) {
    all_us.push_back(call.event_us);
    all_excess_us.push_back(call.excess_us);
    if (!call.believed) continue;
    times_us.push_back(call.event_us);
    excess_us.push_back(call.excess_us);
  }
  const double centre_us = Median(empty_excess_us_);
  const auto says = [](double event, double wall) {
    return fmt::format("clock: a call takes {:.2f} us by its events and {:.2f} us by the wall clock", event,
                       wall);
  };
  if (2 * times_us.size() < all_us.size())
    return says(Median(all_us), Median(all_us) + Median(all_excess_us) - centre_us);
  // The same interruptions are left out on both sides.
  const double limit_us = centre_us + kSlack_us + kSpreads * Spread(centre_us);
  for (const double excess : empty_excess_us_) {
    if (excess <= limit_us) empty_us.push_back(excess);
  }
  const ExcessMean time = MeanExcess(times_us), calls = MeanExcess(excess_us), empty = MeanExcess(empty_us);
  const double beyond_us = calls.mean - empty.mean;
  const double allowed_us = kOfTime * time.mean + kSlack_us +
                            kStandardErrors * std::hypot(calls.standard_error, empty.standard_error);
  return beyond_us <= allowed_us ? "" : says(time.mean, time.mean + beyond_us);
}

bool CallClock::IsHostBusy() const {
  std::vector<double> sorted = empty_excess_us_;
  std::sort(sorted.begin(), sorted.end());
  const double undisturbed_us = sorted.empty() ? 0 : sorted[sorted.size() / 8];
  const auto late = std::count_if(sorted.begin(), sorted.end(),
                                  [&](double excess_us) { return excess_us > undisturbed_us + kBusy_us; });
  return static_cast<double>(late) >= kBusyShare * static_cast<double>(sorted.size()) && late > 0;
}

}  // namespace kevin
