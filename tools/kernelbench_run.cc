#include "tools/kernelbench_run.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <optional>

#include "agent/events.h"
#include "agent/machine.h"
#include "agent/parse.h"
#include "agent/records.h"
#include "agent/terminal.h"
#include "agent/text.h"
#include "env/error.h"
#include "env/printable.h"
#include "env/process/files.h"
#include "env/process/machine.h"
#include "env/verdict/words.h"
#include "tools/report/format.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;
using Json = nlohmann::ordered_json;

constexpr const char* kPublishedKind = "modelnew";
constexpr int kMostFailures = 3;  // evaluations without a verdict, one after the other
constexpr const char* kFirstShapes =
    "v0";  // KernelBench's first shapes; where they have not changed there are none

std::string ResultsFolder(const KernelBenchRunOptions& options) {
  if (!options.results.empty()) return options.results;
  std::error_code error;
  if (!std::filesystem::is_directory(options.path, error)) return options.path + "-results";
  return HasResultsOfOthers(options.path) ? (std::filesystem::path(options.path) / "kevin").string()
                                          : options.path;
}

// The size for a problem; empty: none fits, and `reason` says why.
std::string SizeFor(const Problem& problem, const std::string& asked, std::string* reason) {
  const std::string size = asked == kFirstShapes && !problem.sizes.contains(asked) ? "full" : asked;
  if (!problem.sizes.contains(size) && !problem.shape_sets.contains(size)) {
    *reason = fmt::format("{} has no size {}", problem.id, size);
    return "";
  }
  if (problem.model && !ModelFitsSize(problem, size)) {
    *reason = fmt::format("KernelBench's model has other widths at size {}; use --size {}", size,
                          fmt::join(problem.model->sizes, " or "));
    return "";
  }
  return size;
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

std::string TallyText(const KernelBenchTally& tally, const std::filesystem::path& folder) {
  std::vector<std::string> outcomes;
  for (const auto& [outcome, count] : tally.outcomes)
    outcomes.push_back(fmt::format("{} {}", count, outcome));
  std::string text = fmt::format(
      "\n{} candidates: {} judged now, {} before, {} left out\n{} compiled, {} correct, {} faster than eager ({})\n"
      "results in {}\n",
      tally.candidates, tally.judged, tally.stored, tally.left_out.size(), tally.compiled, tally.correct,
      tally.faster, outcomes.empty() ? "none" : fmt::format("{}", fmt::join(outcomes, ", ")),
      folder.string());
  return text;
}

Json TallyEvent(const KernelBenchTally& tally, const std::filesystem::path& folder, double seconds) {
  Json event = {{"event", "kernelbench"},     {"candidates", tally.candidates},
                {"judged", tally.judged},     {"stored", tally.stored},
                {"left_out", tally.left_out}, {"compiled", tally.compiled},
                {"correct", tally.correct},   {"faster", tally.faster},
                {"outcomes", tally.outcomes}, {"results", folder.string()},
                {"seconds", seconds}};
  if (!tally.compared.empty()) {
    event["compared"] = tally.compared.size();
    event["disagreements"] = std::count_if(tally.compared.begin(), tally.compared.end(),
                                           [](const CompatRow& row) { return !row.reason.empty(); });
  }
  return event;
}

// KernelBench's verdict on one candidate, of an earlier call if it is there.
void AddCompat(const PublishedCandidate& one, const Problem& problem, const std::string& key,
               const KernelBenchRunOptions& options, const Workload& workload, CompatResults* compat,
               Json* event, KernelBenchTally* tally) {
  const KernelBenchVerdict* known = compat->Find(one.name, key);
  const KernelBenchVerdict verdict =
      known != nullptr ? *known : options.judge_as_kernelbench(one, problem, workload);
  const CompatRow row = Compare(*event, verdict);
  if (known == nullptr) compat->Add(one.name, key, verdict, row);
  (*event)["kernelbench"] = ToJson(verdict);
  (*event)["disagreement"] = row.reason.empty() ? Json(nullptr) : Json(row.reason);
  tally->compared.push_back(row);
  tally->of_kernelbench.push_back(verdict);
}

// By its own file in the checkout if one was named, else by Kevin's Python form.
KernelBenchVerdict JudgeOne(const PublishedCandidate& one, const Problem& problem, const Workload& workload,
                            const EnvironmentOptions& environment, const std::string& checkout,
                            const std::atomic<bool>* stop) {
  KernelBenchJudgeOptions options;
  options.environment = environment;
  options.stop = stop;
  const std::string own = checkout.empty() ? "" : OwnProblemFile(checkout, one.level, one.number);
  if (!checkout.empty() && own.empty())
    throw Error(ExitCode::kBadRequest, fmt::format("{} has no file of {}", checkout, one.problem),
                "give --compat-from a checkout of KernelBench, with KernelBench/level1/19_ReLU.py and so on");
  return JudgeAsKernelBench(options, AtSize(problem, ShapesOf(problem, workload.size).front().size),
                            {kPublishedKind, one.source}, own);
}

}  // namespace

KernelBenchTally JudgePublished(const PublishedCandidates& published, const PublishedProblemFinder& find,
                                Environment& environment, KernelBenchResults& results,
                                const KernelBenchRunOptions& options,
                                const std::function<void(const Json&)>& on_result,
                                const std::atomic<bool>* stop) {
  KernelBenchTally tally;
  tally.candidates = static_cast<int>(published.candidates.size() + published.left_out.size());
  tally.left_out = published.left_out;
  const std::string asked = options.size.empty() ? environment.Facts().default_size : options.size;
  std::optional<CompatResults> compat;
  if (options.judge_as_kernelbench) compat.emplace(results.folder());
  std::optional<Problem> problem;
  std::string unknown;  // the id of the last problem that is not there
  int failures = 0;     // one after the other
  for (const PublishedCandidate& one : published.candidates) {
    if (stop != nullptr && *stop) break;
    if (one.problem == unknown) {
      tally.left_out.push_back(fmt::format("{}: there is no problem {}", one.name, one.problem));
      continue;
    }
    if (!problem || problem->id != one.problem) {
      try {
        problem = find(one.problem);
      } catch (const Error& error) {
        if (error.code() != ExitCode::kBadRequest) throw;
        unknown = one.problem;
        tally.left_out.push_back(fmt::format("{}: there is no problem {}", one.name, one.problem));
        continue;
      }
    }
    std::string reason;
    EvaluateOptions evaluate = options.evaluate;
    evaluate.workload.size = SizeFor(*problem, asked, &reason);
    evaluate.stop = stop;
    if (evaluate.workload.size.empty()) {
      tally.left_out.push_back(fmt::format("{}: {}", one.name, reason));
      continue;
    }
    const Candidate candidate{kPublishedKind, one.source};
    const std::string key = environment.EvaluationKey(*problem, candidate, evaluate);
    const Json* stored = results.Find(one.name, key);
    if (stored == nullptr && options.most > 0 && tally.judged >= options.most) continue;
    Json event;
    if (stored != nullptr) {
      event = (*stored)["evaluation"];
      ++tally.stored;
    } else {
      const auto start = Clock::now();
      Evaluation evaluation;
      try {
        evaluation = environment.Evaluate(*problem, candidate, evaluate);
        failures = 0;
      } catch (const Error& error) {
        // One problem that cannot be judged ends no run; a machine that judges nothing does.
        if (error.code() == ExitCode::kInterrupted || ++failures > kMostFailures) throw;
        tally.left_out.push_back(fmt::format("{}: {}", one.name, error.what()));
        continue;
      }
      event = EvaluationEvent(ToRecord(evaluation, candidate, *problem, "bench"), problem->id, one.name,
                              SecondsSince(start));
      event["name"] = one.name;
      event["sample"] = one.sample;
      results.Add(one, key, evaluation, event);
      ++tally.judged;
    }
    event["stored"] = stored != nullptr;
    if (compat) AddCompat(one, *problem, key, options, evaluate.workload, &*compat, &event, &tally);
    Count(event, &tally);
    if (on_result) on_result(event);
  }
  return tally;
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
  judged.evaluate.workload = WorkloadFor(options.device, size, options.evaluate.workload.inputs);
  if (!options.compat.empty()) {
    if (!facts.device.starts_with("cpu"))
      throw Error(ExitCode::kMachine, "--compat kernelbench compares on a CPU only", "add --device cpu");
    judged.judge_as_kernelbench = [&](const PublishedCandidate& one, const Problem& problem,
                                      const Workload& workload) {
      progress.Phase(one.name + "  as KernelBench judges");
      return JudgeOne(one, problem, workload, asked, options.compat_from, interrupt.flag());
    };
  }
  progress.Line(fmt::format("{} of {}, at size {}, on {}, isolation {}",
                            Counted(static_cast<int64_t>(published.candidates.size()), "candidate"),
                            options.path, size, facts.device, facts.isolation));
  const ProblemSet problems;
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
  for (const std::string& one : tally.left_out) progress.Line("left out: " + one);
  if (options.json) {
    Print(stdout, ToLine(TallyEvent(tally, results.folder(), SecondsSince(start))));
  } else {
    Print(stdout, TallyText(tally, results.folder()));
    if (!tally.compared.empty()) Print(stdout, CompatText(tally.compared, tally.of_kernelbench));
  }
  return static_cast<int>(*interrupt.flag() ? ExitCode::kInterrupted : ExitCode::kDone);
}

}  // namespace kevin
