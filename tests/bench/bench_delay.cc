#include "tests/bench/bench_delay.h"

#include <algorithm>
#include <cmath>

namespace kevin {
namespace {

constexpr int kFirstSteps = 32, kMaxProbes = 12;

// Regula falsi over whole numbers. An end that stays twice in a row counts half (the Illinois rule), or a
// curve that is flat first and steep later would be approached from one side only.
class Bracket {
 public:
  explicit Bracket(double share) : low_off_(-share) {}

  int Next() const {
    if (high_ == 0) return std::max(kFirstSteps, 2 * low_);
    const double part = low_off_ / (low_off_ - high_off_);
    const int next = low_ + static_cast<int>(std::lround(part * (high_ - low_)));
    return std::clamp(next, low_ + 1, high_ - 1);
  }

  void Add(int steps, double off) {
    const bool is_low = off < 0;
    if (high_ != 0 && is_low == was_low_) (is_low ? high_off_ : low_off_) /= 2;
    (is_low ? low_ : high_) = steps;
    (is_low ? low_off_ : high_off_) = off;
    was_low_ = is_low;
  }

  bool IsClosed() const { return high_ == low_ + 1; }

 private:
  int low_ = 0, high_ = 0;  // no high one yet: 0
  double low_off_, high_off_ = 0;
  bool was_low_ = true;
};

}  // namespace

CalibratedDelay CalibrateDelay(double share, const std::function<double(int)>& slowdown_of) {
  CalibratedDelay nearest;
  Bracket bracket(share);
  for (int probe = 1; probe <= kMaxProbes && !nearest.is_reached && !bracket.IsClosed(); ++probe) {
    const int steps = bracket.Next();
    const double slowdown = slowdown_of(steps), off = slowdown - share;
    if (nearest.steps == 0 || std::abs(off) < std::abs(nearest.slowdown - share)) {
      nearest.steps = steps;
      nearest.slowdown = slowdown;
      nearest.is_reached = std::abs(off) <= kDelayTolerance * share;
    }
    nearest.probes = probe;
    bracket.Add(steps, off);
  }
  return nearest;
}

}  // namespace kevin
