#include "tools/kernelbench_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <vector>

#include "agent/events.h"
#include "agent/machine.h"
#include "agent/parse.h"
#include "agent/records.h"
#include "agent/terminal.h"
#include "agent/text.h"
#include "env/error.h"
#include "env/printable.h"
#include "env/process/files.h"
#include "env/process/lasting_threads.h"
#include "env/process/machine.h"
#include "env/verdict/words.h"
#include "tools/report/format.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr const char* kPublishedKind = "modelnew";
constexpr int kMostThreads = 16;
constexpr size_t kMostFailures = 3;  // problems that cannot be judged, without a verdict between them

std::string ResultsFolder(const KernelBenchRunOptions& options) {
  if (!options.results.empty()) return options.results;
  std::error_code error;
  if (!std::filesystem::is_directory(options.path, error)) return options.path + "-results";
  return HasResultsOfOthers(options.path) ? (std::filesystem::path(options.path) / "kevin").string()
                                          : options.path;
}

void Count(const Json& event, KernelBenchTally* tally) {
  const auto text = [&](const char* field) {
    return event.contains(field) && event[field].is_string() ? event[field].get<std::string>()
                                                             : std::string();
  };
  const auto is_true = [&](const char* field) {
    return event.contains(field) && event[field].is_boolean() && event[field].get<bool>();
  };
  ++tally->outcomes[text("outcome")];
  tally->compiled += is_true("compiled");
  tally->correct += is_true("correct");
  tally->faster +=
      event.contains("speedup_low") && event["speedup_low"].is_number() && event["speedup_low"] > 1.0;
}

std::string ResultLine(const Json& event) {
  const auto text = [&](const char* field) {
    return event[field].is_string() ? event[field].get<std::string>() : "";
  };
  std::string line = fmt::format("{:<12} {:<44} {}", text("problem"), text("name"), text("outcome"));
  if (event["speedup"].is_number())
    line += fmt::format("  {}", RatioText(event["speedup"].get<double>(), event["speedup_low"].get<double>(),
                                          event["speedup_high"].get<double>()));
  const std::string reason = FirstSentence(text("reason"), 160);
  return Printable(reason.empty() ? line : line + ": " + reason);
}

std::string TallyText(const KernelBenchTally& tally, const std::string& rules,
                      const std::filesystem::path& folder) {
  std::vector<std::string> outcomes;
  for (const auto& [outcome, count] : tally.outcomes)
    outcomes.push_back(fmt::format("{} {}", count, outcome));
  std::string text = fmt::format(
      "\n{} candidates: {} judged now, {} before, {} left out\n{} compiled, {} correct, {} faster than eager ({}), "
      "rules {}\nresults in {}\n",
      tally.candidates, tally.judged, tally.stored, tally.left_out.size(), tally.compiled, tally.correct,
      tally.faster, outcomes.empty() ? "none" : fmt::format("{}", fmt::join(outcomes, ", ")), rules,
      folder.string());
  return text;
}

Json TallyEvent(const KernelBenchTally& tally, const std::string& rules, const std::filesystem::path& folder,
                double seconds) {
  Json event = {{"event", "kernelbench"},   {"candidates", tally.candidates}, {"judged", tally.judged},
                {"stored", tally.stored},   {"left_out", tally.left_out},     {"compiled", tally.compiled},
                {"correct", tally.correct}, {"faster", tally.faster},         {"outcomes", tally.outcomes},
                {"rules", rules},           {"results", folder.string()},     {"seconds", seconds}};
  if (!tally.compared.empty() || !tally.not_compared.empty()) {
    event["compared"] = tally.compared.size();
    event["not_compared"] = tally.not_compared;
    event["disagreements"] = std::count_if(tally.compared.begin(), tally.compared.end(),
                                           [](const CompatRow& row) { return !row.reason.empty(); });
  }
  return event;
}

// A build has one core and takes seconds; a verdict on a GPU holds the device for less. On a CPU nothing else may run while a
// pair is timed.
int ThreadsFor(const EnvironmentFacts& facts) {
  return facts.device.starts_with("cpu") ? 1 : std::clamp(ReadMachine().cores / 2, 1, kMostThreads);
}

// One run over published candidates. `parallel` threads take them in order: while one is timed, the next ones are built.
// The environment gives the device to one at a time.
class PublishedRun {
 public:
  PublishedRun(const PublishedCandidates& published, const PublishedProblemFinder& find,
               Environment& environment, KernelBenchResults& results, const KernelBenchRunOptions& options,
               const std::function<void(const Json&)>& on_result, const std::atomic<bool>* stop)
      : published_(published),
        find_(find),
        environment_(environment),
        results_(results),
        options_(options),
        on_result_(on_result),
        stop_(stop) {
    tally_.candidates = static_cast<int>(published.candidates.size() + published.left_out.size());
    tally_.left_out = published.left_out;
    if (options.judge_as_kernelbench) compat_.emplace(results.folder());
  }

  KernelBenchTally Run() {
    // On lasting threads: a worker that ends early must not end the processes that it started and others use.
    RunSideBySide(options_.parallel, [this] { Work(); });
    if (failure_) std::rethrow_exception(failure_);
    return std::move(tally_);
  }

 private:
  // A candidate with what it needs. Its problem stays where it is.
  struct Item {
    const PublishedCandidate* one = nullptr;
    std::shared_ptr<const Problem> problem;
    Candidate candidate;
    EvaluateOptions evaluate;
    std::string key;
    std::optional<Json> stored;                        // the event of an earlier call
    std::shared_ptr<const std::string> own_file;       // of KernelBench; empty: Kevin's form is compared with
    std::string compat_key;                            // of KernelBench's verdict
    std::optional<KernelBenchVerdict> of_kernelbench;  // of an earlier call
    std::string not_compared;                          // the reason
  };

  // The result of KernelBench's side.
  struct Compared {
    std::optional<KernelBenchVerdict> verdict;
    std::string reason;  // without a verdict: why
  };

  void Work() {
    try {
      while (std::optional<Item> item = Next()) JudgeItem(*item);
    } catch (...) {
      const std::lock_guard lock(mutex_);
      if (!failure_) failure_ = std::current_exception();
    }
  }

  std::optional<Item> Next() {
    const std::lock_guard lock(mutex_);
    while (next_ < published_.candidates.size() && !failure_ && (stop_ == nullptr || !*stop_)) {
      std::optional<Item> item = ItemOf(published_.candidates[next_++]);
      if (!item) continue;
      NoteSize(*item);
      return item;
    }
    return std::nullopt;
  }

  // Needs mutex_.
  void NoteSize(const Item& item) {
    const std::string& size = item.evaluate.workload.size;
    if (size == AskedSize() || noted_ == item.problem->id) return;
    noted_ = item.problem->id;
    tally_.sizes.push_back(fmt::format(
        "{} is judged at {}: it has no size '{}' of its own, because KernelBench's shapes have not changed",
        noted_, size, AskedSize()));
  }

  std::string AskedSize() const {
    return options_.size.empty() ? environment_.Facts().default_size : options_.size;
  }

  // nullopt: it is left out. Needs mutex_.
  std::optional<Item> ItemOf(const PublishedCandidate& one) {
    if (!FindProblem(one)) return std::nullopt;
    Item item;
    item.one = &one;
    item.problem = problem_;
    item.candidate = {kPublishedKind, one.source};
    item.evaluate = options_.evaluate;
    std::string reason;
    item.evaluate.workload.size = SizeOfPublished(*problem_, AskedSize(), &reason);
    item.evaluate.stop = stop_;
    if (item.evaluate.workload.size.empty()) {
      tally_.left_out.push_back(fmt::format("{}: {}", one.name, reason));
      return std::nullopt;
    }
    item.key = environment_.EvaluationKey(*problem_, item.candidate, item.evaluate);
    if (const Json* stored = results_.Find(one.name, item.key)) item.stored = (*stored)["evaluation"];
    const bool has_work = (compat_ && !FindCompat(&item)) || !item.stored;
    if (!has_work) return item;
    if (options_.most == 0 || begun_ < options_.most) {
      ++begun_;
      return item;
    }
    if (!item.stored) return std::nullopt;
    item.not_compared = "--most leaves it to the next call";
    return item;
  }

  // False: KernelBench's side has to judge it. Needs mutex_.
  bool FindCompat(Item* item) {
    item->own_file = own_file_;
    if (!options_.compat_from.empty() && own_file_->empty()) {
      item->not_compared = fmt::format("{} has no file of {} (KernelBench/level1/19_ReLU.py and so on)",
                                       options_.compat_from, item->one->problem);
      return true;
    }
    item->compat_key = CompatKey(item->key, *own_file_);
    if (const KernelBenchVerdict* known = compat_->Find(item->one->name, item->compat_key))
      item->of_kernelbench = *known;
    return item->of_kernelbench.has_value();
  }

  bool FindProblem(const PublishedCandidate& one) {
    if (problem_ && problem_->id == one.problem) return true;
    if (one.problem != unknown_) {
      try {
        problem_ = std::make_shared<const Problem>(find_(one.problem));
        own_file_ = std::make_shared<const std::string>(
            options_.compat_from.empty() ? "" : OwnProblemFile(options_.compat_from, one.level, one.number));
        return true;
      } catch (const Error& error) {
        if (error.code() != ExitCode::kBadRequest) throw;
        unknown_ = one.problem;
      }
    }
    tally_.left_out.push_back(fmt::format("{}: there is no problem {}", one.name, one.problem));
    return false;
  }

  void JudgeItem(const Item& item) {
    if (item.stored) return Keep(item, *item.stored, nullptr);
    const auto start = Clock::now();
    Evaluation evaluation;
    try {
      evaluation = environment_.Evaluate(*item.problem, item.candidate, item.evaluate);
    } catch (const Error& error) {
      const std::lock_guard lock(mutex_);
      // One problem that cannot be judged ends no run; a machine that judges nothing does.
      if (error.code() == ExitCode::kInterrupted) throw;
      failed_.insert(item.problem->id);
      if (failed_.size() > kMostFailures) throw;
      tally_.left_out.push_back(fmt::format("{}: {}", item.one->name, error.what()));
      --begun_;  // --most counts verdicts: else each call ends at the same candidates
      return;
    }
    Json event = EvaluationEvent(ToRecord(evaluation, item.candidate, *item.problem, "bench"),
                                 item.problem->id, item.one->name, SecondsSince(start));
    event["name"] = item.one->name;
    event["sample"] = item.one->sample;
    Keep(item, std::move(event), &evaluation);
  }

  // `fresh`: the verdict of this call; null where it is of an earlier one. It is kept before KernelBench's side begins.
  void Keep(const Item& item, Json event, const Evaluation* fresh) {
    if (fresh != nullptr) {
      const std::lock_guard lock(mutex_);
      failed_.clear();
      results_.Add(*item.one, item.key, *fresh, event);
    }
    const Compared compared = compat_ ? CompareWithKernelBench(item) : Compared();
    const std::lock_guard lock(mutex_);
    ++(fresh != nullptr ? tally_.judged : tally_.stored);
    event["stored"] = fresh == nullptr;
    if (compat_) AddCompat(item, compared, &event);
    Count(event, &tally_);
    if (on_result_) on_result_(event);
  }

  Compared CompareWithKernelBench(const Item& item) const {
    if (item.of_kernelbench) return {item.of_kernelbench, ""};
    if (!item.not_compared.empty()) return {std::nullopt, item.not_compared};
    try {
      return {options_.judge_as_kernelbench(*item.one, *item.problem, item.evaluate.workload, *item.own_file),
              ""};
    } catch (const Error& error) {
      if (error.code() == ExitCode::kInterrupted) throw;
      return {std::nullopt, error.what()};
    }
  }

  // Needs mutex_.
  void AddCompat(const Item& item, const Compared& compared, Json* event) {
    (*event)["kernelbench"] = compared.verdict ? ToJson(*compared.verdict) : Json(nullptr);
    (*event)["disagreement"] = nullptr;
    (*event)["not_compared"] = compared.verdict ? Json(nullptr) : Json(Printable(compared.reason));
    if (!compared.verdict) {
      tally_.not_compared.push_back(fmt::format("{}: {}", item.one->name, compared.reason));
      return;
    }
    const CompatRow row = Compare(*event, *compared.verdict);
    if (!item.of_kernelbench) compat_->Add(item.one->name, item.compat_key, *compared.verdict, row);
    if (!row.reason.empty()) (*event)["disagreement"] = row.reason;
    tally_.compared.push_back(row);
    tally_.of_kernelbench.push_back(*compared.verdict);
  }

  const PublishedCandidates& published_;
  const PublishedProblemFinder& find_;
  Environment& environment_;
  KernelBenchResults& results_;
  const KernelBenchRunOptions& options_;
  const std::function<void(const Json&)>& on_result_;
  const std::atomic<bool>* const stop_;
  std::mutex mutex_;  // of what follows, and of results_
  KernelBenchTally tally_;
  std::optional<CompatResults> compat_;
  std::shared_ptr<const Problem> problem_;       // of the latest candidate
  std::shared_ptr<const std::string> own_file_;  // of this problem, in the checkout of KernelBench
  std::string unknown_;                          // the id of the last problem that is not there
  std::string noted_;                            // the id of the last problem in tally_.sizes
  size_t next_ = 0;
  int begun_ = 0;
  std::set<std::string> failed_;  // problems, since the last verdict
  std::exception_ptr failure_;
};

}  // namespace

KernelBenchTally JudgePublished(const PublishedCandidates& published, const PublishedProblemFinder& find,
                                Environment& environment, KernelBenchResults& results,
                                const KernelBenchRunOptions& options,
                                const std::function<void(const Json&)>& on_result,
                                const std::atomic<bool>* stop) {
  return PublishedRun(published, find, environment, results, options, on_result, stop).Run();
}

int RunKernelBench(const KernelBenchRunOptions& options) {
  const PublishedCandidates published = ReadPublishedCandidates(options.path);
  KernelBenchResults results(ResultsFolder(options));
  const InterruptGuard interrupt;
  Progress progress(options.json ? stderr : stdout);
  const EnvironmentOptions asked =
      EnvironmentOptionsFor(options.device, ChooseDevice(options.device, kPublishedKind));
  progress.Phase("starting the evaluator, testing the sandbox");
  const std::unique_ptr<Environment> environment = MakeEnvironment(asked);
  const EnvironmentFacts& facts = environment->Facts();
  RequireKind(facts, options.device, kPublishedKind);
  KernelBenchRunOptions judged = options;
  const std::string size = options.size.empty() ? facts.default_size : options.size;
  judged.evaluate.workload = WorkloadFor(options.device, size, options.evaluate.workload.inputs,
                                         RulesFor(options.device.rules, kPublishedKind, {}));
  if (!options.compat.empty()) {
    judged.judge_as_kernelbench = [&, gpu = GpuOf(facts)](const PublishedCandidate& one,
                                                          const Problem& problem, const Workload& workload,
                                                          const std::string& own_file) {
      if (judged.parallel == 1) progress.Phase(one.name + "  as KernelBench judges");
      KernelBenchJudgeOptions method;
      method.environment = asked, method.compiler = facts.compiler, method.gpu = gpu;
      if (gpu) environment->ReleaseMemory();  // the method has a process and an allocator of its own
      method.stop = interrupt.flag();
      return JudgeAsKernelBench(method, AtSize(problem, ShapesOf(problem, workload.size).front().size),
                                {kPublishedKind, one.source}, own_file);
    };
  }
  progress.Line(fmt::format("{} of {}, at size {}, rules {}, on {}, isolation {}",
                            Counted(static_cast<int64_t>(published.candidates.size()), "candidate"),
                            options.path, size, judged.evaluate.workload.rules, facts.device,
                            facts.isolation));
  const ProblemSet problems;
  if (judged.parallel == 0) judged.parallel = ThreadsFor(facts);
  if (judged.parallel == 1)
    judged.evaluate.on_phase = [&](const std::string& phase) { progress.Phase(phase); };
  const auto start = Clock::now();
  const KernelBenchTally tally = JudgePublished(
      published, [&](const std::string& id) { return AsAsked(problems.Find(id), options.device); },
      *environment, results, judged,
      [&](const Json& event) {
        if (options.json) Print(stdout, ToLine(event));
        if (!event["stored"].get<bool>()) progress.Line(ResultLine(event));
      },
      interrupt.flag());
  progress.Phase("");
  for (const std::string& one : tally.sizes) progress.Line("size: " + one);
  for (const std::string& one : tally.left_out) progress.Line("left out: " + one);
  for (const std::string& one : tally.not_compared) progress.Line("not compared: " + one);
  if (options.json) {
    Print(stdout,
          ToLine(TallyEvent(tally, judged.evaluate.workload.rules, results.folder(), SecondsSince(start))));
  } else {
    Print(stdout, TallyText(tally, judged.evaluate.workload.rules, results.folder()));
    if (!tally.compared.empty()) Print(stdout, CompatText(tally.compared, tally.of_kernelbench));
  }
  return static_cast<int>(*interrupt.flag() ? ExitCode::kInterrupted : ExitCode::kDone);
}

}  // namespace kevin
