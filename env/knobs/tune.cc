#include "env/knobs/tune.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <exception>
#include <optional>
#include <utility>

#include "env/error.h"
#include "env/knobs/choose.h"
#include "env/process/lasting_threads.h"
#include "env/process/machine.h"
#include "env/verdict/shapes.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kClearlySlower = 1.3;  // times the fastest
constexpr int kAtOnceOnGpu = 8, kAtOnceOnCpu = 2;
constexpr int kMostTimeOuts = 2;  // as long as nothing is correct: each takes many seconds

class Tuner {
 public:
  Tuner(const Problem& problem, const Candidate& candidate, Environment& environment,
        const TuneOptions& options, std::vector<DeclaredKnob> knobs)
      : problem_(problem),
        candidate_(candidate),
        environment_(environment),
        options_(options),
        knobs_(std::move(knobs)),
        chooser_(knobs_, options.seed) {}

  std::vector<KnobTrial> Run() {
    const auto most = static_cast<size_t>(std::min<int64_t>(options_.settings, CountSettings(knobs_)));
    const size_t at_once = IsForGpu(candidate_.kind) ? kAtOnceOnGpu : kAtOnceOnCpu;
    while (trials_.size() < most && !IsHopeless()) TryBatch(std::min(at_once, most - trials_.size()), most);
    const size_t chosen = Fastest().value_or(0);
    trials_.at(chosen).chosen = true;
    return std::move(trials_);
  }

 private:
  std::optional<size_t> Fastest() const {
    std::optional<size_t> fastest;
    for (size_t i = 0; i < trials_.size(); ++i) {
      if (!trials_[i].candidate_us) continue;
      if (!fastest || *trials_[i].candidate_us < *trials_[*fastest].candidate_us) fastest = i;
    }
    return fastest;
  }

  bool IsHopeless() const {
    return !Fastest() && std::count_if(trials_.begin(), trials_.end(), [](const KnobTrial& trial) {
                           return trial.outcome == "timed_out";
                         }) >= kMostTimeOuts;
  }

  void TryBatch(size_t count, size_t most) {
    if (options_.evaluate.on_phase) {
      const size_t first = trials_.size() + 1, last = trials_.size() + count;
      options_.evaluate.on_phase(last > first ? fmt::format("tune {} to {} of {}", first, last, most)
                                              : fmt::format("tune {} of {}", first, most));
    }
    const std::optional<size_t> fastest = Fastest();
    const double limit_us = fastest ? kClearlySlower * *trials_[*fastest].candidate_us : 0;
    std::vector<KnobTrial> batch(count);
    for (KnobTrial& trial : batch) trial.setting = *chooser_.Next();
    std::vector<std::exception_ptr> errors(batch.size());
    std::vector<std::function<void()>> tasks;
    for (size_t i = 0; i < batch.size(); ++i) {
      tasks.emplace_back([&, i] {
        try {
          TryTwice(limit_us, &batch[i]);
        } catch (...) {
          errors[i] = std::current_exception();
        }
      });
    }
    RunSideBySide(tasks);
    for (const std::exception_ptr& error : errors) {
      if (error) std::rethrow_exception(error);
    }
    for (KnobTrial& trial : batch) {
      chooser_.Report(trial.setting, trial.candidate_us);
      if (options_.on_trial) options_.on_trial(trial);
      trials_.push_back(std::move(trial));
    }
  }

  void TryTwice(double limit_us, KnobTrial* trial) const {
    try {
      return Try(limit_us, trial);
    } catch (const Error&) {
      const std::atomic<bool>* stop = options_.evaluate.stop;
      if (stop != nullptr && *stop) throw;
    }
    Try(limit_us, trial);
  }

  // At every shape of the size.
  void Try(double limit_us, KnobTrial* trial) const {
    const auto start = Clock::now();
    const Candidate candidate{candidate_.kind,
                              WithSetting(candidate_.source, candidate_.kind, knobs_, trial->setting)};
    const std::vector<WeightedShape> shapes = ShapesOf(problem_, options_.evaluate.workload.size);
    EvaluateOptions screen;
    screen.workload = options_.evaluate.workload;
    screen.stop = options_.evaluate.stop;
    screen.screen = true;
    screen.screen_limit_us = shapes.size() == 1 ? limit_us : 0;
    std::vector<WeightedValue> times_us;
    for (const WeightedShape& shape : shapes) {
      screen.workload.size = shape.size;
      const Evaluation evaluation = environment_.Evaluate(problem_, candidate, screen);
      trial->outcome = OutcomeName(evaluation.outcome);
      trial->reason = OutcomeReason(evaluation.outcome);
      const auto* measured = std::get_if<Measured>(&evaluation.outcome);
      if (measured == nullptr && shapes.size() > 1) trial->reason = "at " + shape.size + ": " + trial->reason;
      times_us.push_back({measured != nullptr ? measured->candidate_us : 0, shape.weight});
      if (measured == nullptr) break;
    }
    if (trial->outcome == "measured") {
      trial->candidate_us = times_us.size() == 1 ? times_us.front().value : WeightedGeometricMean(times_us);
      trial->stopped = screen.screen_limit_us > 0 && *trial->candidate_us > screen.screen_limit_us;
    }
    trial->seconds = SecondsSince(start);
  }

  const Problem& problem_;
  const Candidate& candidate_;
  Environment& environment_;
  const TuneOptions& options_;
  const std::vector<DeclaredKnob> knobs_;
  SettingChooser chooser_;
  std::vector<KnobTrial> trials_;
};

}  // namespace

int DefaultSettings(const std::string& kind) { return IsForGpu(kind) ? 24 : 8; }

Tuned Tune(const Problem& problem, const Candidate& candidate, Environment& environment,
           const TuneOptions& options) {
  Tuned tuned{candidate, "", {}, 0};
  if (!MayHaveKnobs(candidate.source, candidate.kind)) return tuned;
  const auto start = Clock::now();
  const SizedProblem sized = AtFirstShape(problem, options.evaluate.workload.size);
  ReadKnobsResult read = ReadKnobs(candidate.source, candidate.kind, sized.symbols);
  tuned.error = read.error;
  if (read.knobs.empty()) return tuned;
  if (options.settings < 2 || CountSettings(read.knobs) == 1) {
    KnobTrial only;
    only.setting = FirstSetting(read.knobs);
    only.chosen = true;
    tuned.trials = {only};
  } else {
    tuned.trials = Tuner(problem, candidate, environment, options, read.knobs).Run();
  }
  tuned.candidate.source =
      WithSetting(candidate.source, candidate.kind, read.knobs, ChosenTrial(tuned.trials)->setting);
  tuned.seconds = SecondsSince(start);
  return tuned;
}

}  // namespace kevin
