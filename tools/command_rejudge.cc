#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "agent/events.h"
#include "agent/rejudge.h"
#include "agent/terminal.h"
#include "agent/text.h"
#include "env/error.h"
#include "env/printable.h"
#include "tools/commands.h"
#include "tools/device_options.h"
#include "trajectories/engine.h"

namespace kevin {
namespace {

struct RejudgeOptions {
  std::string database = "kevin.db";
  RejudgeRequest request;
  DeviceOptions device;
  bool json = false;
};

constexpr const char* kRejudgeExamples = R"(Examples:
  kevin db rejudge kevin.db                              all that was measured under older rules or beside another
                                                         process on the GPU, winners first
  kevin db rejudge kevin.db --limit 100                  the first hundred; the next start goes on after them
  kevin db rejudge kevin.db --problem level1/19 --problem level2/
  kevin db rejudge kevin.db --device cuda:0 --json       on a GPU; one JSON object a candidate on stdout
  kevin db rejudge kevin.db --failures                   then also the candidates that were not measured

Verdicts from before the last security fix are evaluated again, on the device model that they were measured on: first
the fastest turn of each episode, then the other measured turns, by their speed-up. With --failures the others follow:
compile errors, incorrect results, crashes, refusals. A rule that was too lenient gave no kernel its failure, so
reports and training do without that.
The old rows stay, marked as superseded; turns, rewards and returns follow the new verdicts, and the best kernel of an
episode is confirmed anew. Each verdict is stored at once: interrupted or killed, the same command goes on from there.
Exit code 4 when the environment failed for some: they stay for the next start.)";

// The problem as installed where its text is still the same, else as the database has it.
std::optional<Problem> FindProblemOf(Store& store, const ProblemSet& installed, const std::string& id,
                                     const std::string& hash, std::string* why_not) {
  std::string why = "its text is not in the database";
  try {
    Problem problem = installed.Find(id);
    if (problem.content_hash == hash) return problem;
  } catch (const Error&) {  // not installed
  }
  try {
    if (const auto record = store.FindProblem(hash)) return ParseProblem(record->text, id);
  } catch (const Error& error) {
    why = error.what();
  }
  if (why_not != nullptr) *why_not = why;
  return std::nullopt;
}

std::string OneLine(const std::string& text) { return Clip(PrintableLine(text), 300); }

std::string WasText(const DoubtfulVerdict& verdict) {
  return verdict.speedup > 0 ? fmt::format("{:.3f}x", verdict.speedup) : verdict.outcome;
}

std::string NowText(const EvaluationRecord& now) {
  if (!now.speedup) return now.outcome + (now.reason.empty() ? "" : ": " + OneLine(now.reason));
  return fmt::format("{:.3f}x ({:.3f}x to {:.3f}x)", now.speedup->value, now.speedup->low, now.speedup->high);
}

class RejudgeRun {
 public:
  explicit RejudgeRun(const RejudgeOptions& options) : options_(options), progress_(stderr) {}

  int Run() {
    Store store = Store::Open(options_.database, OpenMode::kWrite);
    const ProblemSet installed;
    const InterruptGuard interrupt(2);
    progress_.Phase("starting the evaluator, testing the sandbox");
    const std::unique_ptr<Environment> environment =
        MakeEnvironment(EnvironmentOptionsFor(options_.device, ChooseDevice(options_.device, "")));
    device_ = environment->Facts().device;
    progress_.Phase("reading the verdicts");
    const ProblemFinder find = [&](const std::string& id, const std::string& hash, std::string* why_not) {
      return FindProblemOf(store, installed, id, hash, why_not);
    };
    const RejudgeEnd end =
        RunRejudge(store, *environment, find, options_.request, Hooks(), interrupt.flag(), interrupt.again());
    progress_.Phase("");
    Report(end);
    if (!end.failure.empty()) {
      throw Error(ExitCode::kBroken,
                  fmt::format("{} errors in a row, the last: {}", kMostErrorsInARow, OneLine(end.failure)),
                  "kevin doctor says what this machine lacks; the same command goes on where this one ended");
    }
    if (end.is_interrupted) return static_cast<int>(ExitCode::kInterrupted);
    return static_cast<int>(end.errors > 0 ? ExitCode::kBroken : ExitCode::kDone);
  }

 private:
  RejudgeHooks Hooks() {
    RejudgeHooks hooks;
    hooks.on_plan = [this](const RejudgePlan& plan) { Announce(plan); };
    hooks.on_phase = [this](const DoubtfulVerdict& verdict, const std::string& phase) {
      progress_.Phase(Place(verdict) + "  " + phase);
    };
    hooks.on_verdict = [this](const Rejudgement& done) { Show(done); };
    hooks.on_error = [this](const DoubtfulVerdict& verdict, const std::string& error) {
      progress_.Line(fmt::format("{}: not judged: {}", Place(verdict), OneLine(error)));
    };
    return hooks;
  }

  static std::string Place(const DoubtfulVerdict& verdict) {
    return OneLine(fmt::format("{} {} turn {}", verdict.problem, verdict.episode, verdict.turn));
  }

  void Announce(const RejudgePlan& plan) {
    plan_ = plan;
    progress_.Phase("");
    progress_.Line(fmt::format("{}: {} candidates to judge again on {}{}", WithoutPassword(options_.database),
                               plan.verdicts.size(), device_,
                               plan.left > 0 ? fmt::format("; {} more beyond --limit", plan.left) : ""));
    for (const auto& [device, count] : plan.elsewhere)
      progress_.Line(
          fmt::format("  {} belong to {}: run this there (--device, --threads)", count, OneLine(device)));
    for (const auto& [problem, why] : plan.missing)
      progress_.Line(fmt::format("  {} cannot be judged: {}", OneLine(problem), OneLine(why)));
    if (plan.failures > 0)
      progress_.Line(fmt::format("  {} that were not measured stay as they are (--failures)", plan.failures));
  }

  void Show(const Rejudgement& done) {
    progress_.Line(fmt::format("{}/{}  {}: {}, was {}{}", done.number, plan_.verdicts.size(),
                               Place(done.before), NowText(done.now), WasText(done.before),
                               done.contradicts ? "  CONTRADICTION" : ""));
    if (done.contradicts)
      contradictions_.push_back(
          fmt::format("{}: {} before, now {}", Place(done.before), WasText(done.before), NowText(done.now)));
    if (!options_.json) return;
    Json event = EvaluationEvent(done.now, done.before.problem, "", done.total_s);
    event["event"] = "rejudgement";
    event["episode"] = done.before.episode, event["turn"] = done.before.turn;
    event["turns"] = done.before.turns;
    event["outcome_before"] = done.before.outcome;
    event["speedup_before"] = done.before.speedup > 0 ? Json(done.before.speedup) : Json(nullptr);
    event["contradiction"] = done.contradicts;
    Print(stdout, ToLine(event));
  }

  void Report(const RejudgeEnd& end) {
    const auto remaining = static_cast<int64_t>(plan_.verdicts.size()) - end.judged + plan_.left;
    if (options_.json) {
      Json missing = Json::array();
      for (const auto& [problem, why] : plan_.missing) missing.push_back(problem);
      Print(stdout, ToLine({{"event", "rejudge"},
                            {"database", WithoutPassword(options_.database)},
                            {"judged", end.judged},
                            {"contradictions", end.contradictions},
                            {"confirmed", end.confirmed},
                            {"without_best", end.without_best},
                            {"errors", end.errors},
                            {"remaining", remaining},
                            {"missing", missing}}));
      return;
    }
    for (const std::string& line : contradictions_) PrintFormat(stdout, "contradiction  {}\n", line);
    PrintFormat(
        stdout,
        "{}: {} candidates judged again, {} contradictions; best kernels: {} confirmed anew, {} episodes have none "
        "any more; {} remain{}\n",
        WithoutPassword(options_.database), end.judged, end.contradictions, end.confirmed, end.without_best,
        remaining, end.errors > 0 ? fmt::format(", {} of them after an error", end.errors) : "");
  }

  const RejudgeOptions& options_;
  Progress progress_;
  std::string device_;
  RejudgePlan plan_;
  std::vector<std::string> contradictions_;
};

}  // namespace

void AddRejudgeCommand(CLI::App& app, Action* action) {
  auto options = std::make_shared<RejudgeOptions>();
  CLI::App* command = app.add_subcommand(
      "rejudge", "Evaluate again what was judged under older rules, or timed beside another process");
  command->footer(kRejudgeExamples);
  command->add_option("file,--db", options->database, "The database")->capture_default_str();
  command
      ->add_option("--problem", options->request.problems,
                   "Only this problem (may be repeated): an id, or level1/ for all that begin so")
      ->allow_extra_args(false);
  command->add_option("--limit", options->request.limit, "The most candidates of this start (default: all)")
      ->check(CLI::PositiveNumber);
  command->add_flag("--failures", options->request.failures, "Also candidates that were not measured");
  command
      ->add_option("--device", options->device.device,
                   "auto (the first usable GPU, else the CPU), cpu, or cuda:N")
      ->check(WhyNoDevice)
      ->capture_default_str();
  command
      ->add_option("--threads", options->device.threads,
                   "On a CPU: threads of kernel and reference; 0: all cores")
      ->check(CLI::NonNegativeNumber)
      ->capture_default_str();
  command
      ->add_option("--isolation", options->device.isolation,
                   "reduced: run kernels even where the sandbox leaks")
      ->check(CLI::IsMember({"full", "reduced"}))
      ->capture_default_str();
  command
      ->add_option("--include", options->device.include,
                   "On a GPU: a folder of headers for the kernels; repeatable")
      ->allow_extra_args(false);
  command->add_flag("--unsafe-python", options->device.unsafe_python, kUnsafePythonHelp);
  command->add_flag("--json", options->json, "One JSON object a candidate, and one at the end");
  command->callback([options, action] { *action = [options] { return RejudgeRun(*options).Run(); }; });
}

}  // namespace kevin
