#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "env/error.h"
#include "tools/bench_candidates.h"
#include "tools/bench_gpu_parts.h"

namespace kevin {
namespace {

// Sizes that take about these times at the 4 to 4.5 TB/s that an H200 reaches.
struct KernelTime {
  const char* name;
  int64_t elements;
  double slower;          // the planted share
  double deviation_goal;  // of the median |log-ratio|
};
constexpr KernelTime kTimes[] = {
    {"5us", 1'310'720, 0.06, 0.02}, {"50us", 25'165'824, 0.03, 0.005}, {"1ms", 503'316'480, 0.03, 0.005}};

struct Tally {
  int measured = 0, others = 0, holds = 0, fast = 0, slow = 0;
  std::vector<double> deviations, widths, slowdowns, candidate_us;
};

class ClockPart {
 public:
  ClockPart(Environment* environment, int repeats, Figures* figures)
      : environment_(environment), repeats_(repeats), figures_(figures) {}

  void Run(const KernelTime& time) {
    const Problem problem = ReluProblem(time.elements);
    figures_->Note(fmt::format("clock: {}, A/A and slower by {:.0f} %, {} each", time.name, 100 * time.slower,
                               repeats_));
    Judge(problem, DelayedRelu(0), "");  // starts the problem's session
    const Tally same = Repeat(problem, DelayedRelu(0));
    AddSame(time, same);
    const double plain_us = QuantileOf(same.candidate_us, 0.5);
    const double step_ns = StepNs(problem, plain_us);
    const int steps = static_cast<int>(std::lround(time.slower * plain_us * 1e3 / step_ns));
    AddSlower(time, steps, step_ns, Repeat(problem, DelayedRelu(steps)));
    AddEagerForm(time, problem);
  }

 private:
  std::optional<Measured> Judge(const Problem& problem, const std::string& source, const std::string& start) {
    EvaluateOptions options;
    options.size = "full";
    options.start_source = start;
    const Evaluation evaluation = environment_->Evaluate(problem, {"cuda", source}, options);
    if (const Measured* measured = std::get_if<Measured>(&evaluation.outcome)) return *measured;
    figures_->Note(fmt::format("{}: {}: {}", problem.name, OutcomeName(evaluation.outcome),
                               OutcomeReason(evaluation.outcome)));
    return std::nullopt;
  }

  Tally Repeat(const Problem& problem, const std::string& source) {
    Tally tally;
    for (int i = 0; i < repeats_; ++i) {
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

  // How long one step of DelayedRelu lasts here: from a delay about as long as the kernel itself, beside
  // which the clock's own error is small.
  double StepNs(const Problem& problem, double plain_us) {
    const int steps = std::max(10'000, static_cast<int>(plain_us * 500));
    std::vector<double> steps_ns;
    for (int i = 0; i < 5; ++i) {
      const auto plain = Judge(problem, DelayedRelu(0), ""), delayed = Judge(problem, DelayedRelu(steps), "");
      if (plain && delayed) steps_ns.push_back((delayed->candidate_us - plain->candidate_us) * 1e3 / steps);
    }
    const double step_ns = QuantileOf(steps_ns, 0.5);
    if (!(step_ns > 0)) throw Error(ExitCode::kBroken, "a delayed kernel is not slower");
    return step_ns;
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

  void AddSlower(const KernelTime& time, int steps, double step_ns, const Tally& tally) {
    figures_->Add({"clock slower",
                   time.name,
                   {{"planted_pct", 100 * time.slower, 1, {}},
                    {"steps", static_cast<double>(steps), 0, {}},
                    {"step_ns", step_ns, 3, {}},
                    {"measured", static_cast<double>(tally.measured), 0, {}},
                    {"not_measured", static_cast<double>(tally.others), 0, Goal{true, 0}},
                    {"median_slower_pct", 100 * QuantileOf(tally.slowdowns, 0.5), 2, {}},
                    {"found_pct", 100.0 * tally.slow / tally.measured, 1, Goal{false, 95}},
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
  Figures* figures_;
};

}  // namespace

void BenchClock(Environment* environment, int repeats, const std::string& only, Figures* figures) {
  ClockPart part(environment, repeats, figures);
  for (const KernelTime& time : kTimes) {
    if (only.empty() || only == time.name) part.Run(time);
  }
}

}  // namespace kevin
