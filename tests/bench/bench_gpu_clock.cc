#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "env/error.h"
#include "tests/bench/bench_gpu_parts.h"
#include "tests/bench/bench_kernels.h"

namespace kevin {
namespace {

// Sizes that take about these times at the 4 to 4.5 TB/s of an H200.
struct KernelTime {
  const char* name;
  int64_t elements;
  double slower;          // the planted share
  double deviation_goal;  // of the median |log-ratio|
};
constexpr KernelTime kTimes[] = {{"5us", 1'310'720, 0.06, 0.02},
                                 {"50us", 25'165'824, 0.03, 0.005},
                                 {"1ms", 503'316'480, 0.03, 0.005},
                                 {"4ms", 2'013'265'920, 0.05, 0.005}};

constexpr int kEvaluationsAProbe = 3;

constexpr int kFirstSteps = 32, kMaxProbes = 12;

// Regula falsi over whole numbers. An end that stays twice in a row counts half (the Illinois rule), else a
// curve that is flat first and steep later is approached from one side only.
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
  int low_ = 0, high_ = 0;  // high_ is 0 until there is one
  double low_off_, high_off_ = 0;
  bool was_low_ = true;
};

struct Tally {
  int measured = 0, others = 0, holds = 0, fast = 0, slow = 0;
  std::vector<double> deviations, widths, slowdowns, candidate_us;
};

class ClockPart {
 public:
  ClockPart(Environment* environment, int repeats, BenchFigures* figures)
      : environment_(environment), repeats_(repeats), figures_(figures) {}

  void Run(const KernelTime& time) {
    const Problem problem = ReluProblem(time.elements);
    figures_->Note(fmt::format("clock: {}, A/A and slower by {:.0f} %, {} each", time.name, 100 * time.slower,
                               repeats_));
    Judge(problem, DelayedRelu(0), "");  // starts the problem's session
    AddSame(time, Repeat(problem, DelayedRelu(0), repeats_));
    const CalibratedDelay delay = Calibrate(time, problem);
    AddSlower(time, delay, Repeat(problem, DelayedRelu(delay.steps), repeats_));
    AddEagerForm(time, problem);
  }

 private:
  std::optional<Measured> Judge(const Problem& problem, const std::string& source, const std::string& start) {
    EvaluateOptions options;
    options.workload.size = "full";
    options.start_source = start;
    const Evaluation evaluation = environment_->Evaluate(problem, {"cuda", source}, options);
    if (const Measured* measured = std::get_if<Measured>(&evaluation.outcome)) return *measured;
    figures_->Note(fmt::format("{}: {}: {}", problem.name, OutcomeName(evaluation.outcome),
                               OutcomeReason(evaluation.outcome)));
    return std::nullopt;
  }

  Tally Repeat(const Problem& problem, const std::string& source, int repeats) {
    Tally tally;
    for (int i = 0; i < repeats; ++i) {
      const std::optional<Measured> measured = Judge(problem, source, DelayedRelu(0));
      if (!measured || !measured->against_start) {
        ++tally.others;
        continue;
      }
      const Ratio& ratio = *measured->against_start;
      ++tally.measured;
      tally.holds += ratio.low <= 1 && 1 <= ratio.high;
      tally.fast += measured->verdict_against_start == Verdict::kFast;
      tally.slow += measured->verdict_against_start == Verdict::kSlow;
      tally.deviations.push_back(std::abs(std::log(ratio.value)));
      tally.widths.push_back(std::log(ratio.high / ratio.low) / 2);
      tally.slowdowns.push_back(1 / ratio.value - 1);
      tally.candidate_us.push_back(measured->candidate_us);
    }
    if (tally.measured == 0) throw Error(ExitCode::kBroken, problem.name + " was never measured");
    return tally;
  }

  // By the same fixed pairs that later look for the delay, so that what hides a part of it is included.
  CalibratedDelay Calibrate(const KernelTime& time, const Problem& problem) {
    const CalibratedDelay delay = CalibrateDelay(time.slower, [&](int steps) {
      const Tally probe = Repeat(problem, DelayedRelu(steps), kEvaluationsAProbe);
      const double slowdown =
          std::accumulate(probe.slowdowns.begin(), probe.slowdowns.end(), 0.0) / probe.measured;
      figures_->Note(
          fmt::format("clock: {}: {} steps are {:.2f} % slower", time.name, steps, 100 * slowdown));
      return slowdown;
    });
    figures_->Note(fmt::format("clock: {}: {:.0f} % slower {} after {} probes: {} steps, {:.2f} %", time.name,
                               100 * time.slower, delay.is_reached ? "reached" : "could not be reached",
                               delay.probes, delay.steps, 100 * delay.slowdown));
    return delay;
  }

  void AddSame(const KernelTime& time, const Tally& tally) {
    const auto share = [&](int count) { return 100.0 * count / tally.measured; };
    figures_->Add({"clock A/A",
                   time.name,
                   {{"kernel_us", QuantileOf(tally.candidate_us, 0.5), 1, {}},
                    {"measured", static_cast<double>(tally.measured), 0, {}},
                    {"not_measured", static_cast<double>(tally.others), 0, Goal{true, 0}},
                    {"holds_1_pct", share(tally.holds), 1, Goal{false, 95}},
                    {"median_log_ratio_pct", 100 * QuantileOf(tally.deviations, 0.5), 3,
                     Goal{true, 100 * time.deviation_goal}},
                    {"median_half_width_pct", 100 * QuantileOf(tally.widths, 0.5), 3, {}},
                    {"false_fast", static_cast<double>(tally.fast), 0, {}},
                    {"false_slow", static_cast<double>(tally.slow), 0, {}},
                    {"false_pct", share(tally.fast + tally.slow), 1, Goal{true, 5}}}});
  }

  // Without a delay of the planted length the share found means nothing and has no goal.
  void AddSlower(const KernelTime& time, const CalibratedDelay& delay, const Tally& tally) {
    const double off = std::abs(delay.slowdown / time.slower - 1);
    const auto found_goal = delay.is_reached ? std::optional(Goal{false, 95}) : std::nullopt;
    figures_->Add({"clock slower",
                   time.name,
                   {{"planted_pct", 100 * time.slower, 1, {}},
                    {"steps", static_cast<double>(delay.steps), 0, {}},
                    {"calibrated_pct", 100 * delay.slowdown, 2, {}},
                    {"calibrated_off_pct", 100 * off, 1, Goal{true, 100 * kDelayTolerance}},
                    {"measured", static_cast<double>(tally.measured), 0, {}},
                    {"not_measured", static_cast<double>(tally.others), 0, Goal{true, 0}},
                    {"median_slower_pct", 100 * QuantileOf(tally.slowdowns, 0.5), 2, {}},
                    {"found_pct", 100.0 * tally.slow / tally.measured, 1, found_goal},
                    {"called_fast", static_cast<double>(tally.fast), 0, Goal{true, 0}}}});
  }

  void AddEagerForm(const KernelTime& time, const Problem& problem) {
    std::vector<double> values, lows, highs, candidates_us, references_us;
    int same = 0;
    for (int i = 0; i < std::max(3, repeats_ / 10); ++i) {
      const std::optional<Measured> measured = Judge(problem, EagerFormRelu(), "");
      if (!measured) continue;
      values.push_back(measured->speedup.value);
      lows.push_back(measured->speedup.low);
      highs.push_back(measured->speedup.high);
      candidates_us.push_back(measured->candidate_us);
      references_us.push_back(measured->reference_us);
      same += measured->verdict == Verdict::kSame;
    }
    figures_->Add({"clock eager's form",
                   time.name,
                   {{"measured", static_cast<double>(values.size()), 0, {}},
                    {"candidate_us", QuantileOf(candidates_us, 0.5), 2, {}},
                    {"eager_us", QuantileOf(references_us, 0.5), 2, {}},
                    {"speedup", QuantileOf(values, 0.5), 4, {}},
                    {"low", QuantileOf(lows, 0.5), 4, {}},
                    {"high", QuantileOf(highs, 0.5), 4, {}},
                    {"called_same", static_cast<double>(same), 0, {}}}});
  }

  Environment* environment_;
  int repeats_;
  BenchFigures* figures_;
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

void BenchClock(Environment* environment, int repeats, const std::string& only, BenchFigures* figures) {
  ClockPart part(environment, repeats, figures);
  for (const KernelTime& time : kTimes) {
    if (only.empty() || only == time.name) part.Run(time);
  }
}

}  // namespace kevin
