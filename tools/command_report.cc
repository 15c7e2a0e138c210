#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "agent/events.h"
#include "agent/terminal.h"
#include "env/error.h"
#include "env/process/files.h"
#include "tools/command_line.h"
#include "tools/commands.h"
#include "tools/record_options.h"
#include "tools/report/page.h"
#include "tools/report/report_text.h"
#include "tools/report/sides.h"
#include "tools/report/training.h"

namespace kevin {
namespace {

struct ReportOptions {
  SideRequest request;
  BootstrapOptions bootstrap;
  PageOptions page;
  std::vector<double> price;
  std::vector<std::string> training;  // folders
  std::string html;                   // empty: none
  bool force = false, json = false;
};

constexpr const char* kReportExamples = R"(Examples:
  kevin report                                   everything in kevin.db, with intervals
  kevin report --html report.html                the same, and a page with every problem's episodes and kernels
  kevin report 01K9J4 01KA02                     two runs side by side; the second against the first
  kevin report --db monday.db --db tuesday.db    two databases side by side
  kevin report --by policy                       the policies in kevin.db side by side
  kevin report --by rules                        what was judged by different rules side by side (--rules: one of them)
  kevin report --problems level1/ --json         one level, one JSON object a side and a comparison
  kevin report --train RUN --train OTHER         training runs: the curves of their steps
  kevin report --price 3 15                      cost at 3 and 15 US dollars per million tokens, in and out)";

int RunTrainingReport(const ReportOptions& options) {
  const std::string& first = options.training.front();
  if (options.json) {
    throw Error(ExitCode::kBadRequest, "--train with --json was removed",
                fmt::format("read {}/metrics.jsonl: it has every step as one JSON object a line", first));
  }
  if (!options.html.empty()) {
    throw Error(ExitCode::kBadRequest, "--train with --html was removed",
                fmt::format("tensorboard --logdir {}/tensorboard shows the curves", first));
  }
  Print(stdout, TrainingText(ReadTrainingRuns(options.training)));
  return static_cast<int>(ExitCode::kDone);
}

int RunReport(const ReportOptions& options) {
  if (!options.training.empty()) return RunTrainingReport(options);
  if (!options.html.empty()) RequireWritable(options.html, options.force, "--html");
  SideRequest request = options.request;
  if (!options.price.empty()) request.price = {options.price[0], options.price[1]};
  ChosenSides chosen = ChooseSides(request);
  const Report report = MakeReport(std::move(chosen.sides), options.bootstrap);
  for (const LeftOutProblem& one : chosen.left_out) {
    PrintFormat(stderr, "left out    {}, {} episode{}: {} (--inadmissible counts them)\n", one.id,
                one.episodes, one.episodes == 1 ? "" : "s", one.reason);
  }
  if (!chosen.doubtful_verdicts.empty()) PrintFormat(stderr, "left out    {}\n", chosen.doubtful_verdicts);
  if (options.json) {
    for (const Json& event : ReportEvents(report)) Print(stdout, ToLine(event));
  } else {
    Print(stdout, BestKernelsText(report, chosen) + ReportText(report));
  }
  if (!options.html.empty()) {
    const Page page = MakePage(report, chosen, options.page);
    WriteFile(options.html, page.html, options.force);
    PrintFormat(stderr, "page        {} ({:.1f} MB{})\n", options.html,
                static_cast<double>(page.html.size()) / 1e6,
                page.left_out.empty() ? "" : "; " + page.left_out);
  }
  return static_cast<int>(ExitCode::kDone);
}

void AddOptions(CLI::App* command, ReportOptions* o) {
  command->add_option("run", o->request.runs,
                      "Runs, each a side: ids, unique beginnings, or latest (default: all)");
  command->add_option("--db", o->request.databases, "A database; with several, each is a side")
      ->allow_extra_args(false)
      ->capture_default_str();
  command->add_option("--by", o->request.by, "What makes a side")
      ->check(CLI::IsMember({"run", "policy", "model", "device", "rules", "db", "all"}));
  command->add_option("--problems", o->request.problems, "Only problems whose ids begin so: level1/");
  command
      ->add_option("--rules", o->request.rules,
                   "Only episodes judged by these rules (kevin collect --help describes them)")
      ->check(CLI::IsMember({"kevin", "kernelbench", "open"}));
  command->add_flag("--inadmissible", o->request.inadmissible,
                    "Also problems that do not count, because incorrect answers pass on them");
  AddAcceptedVerdicts(command, &o->request.accept);
  command
      ->add_option("--confidence", o->bootstrap.confidence,
                   "Confidence of the means' intervals (a kernel's own is 0.99)")
      ->check(CLI::Range(0.5, 0.999))
      ->capture_default_str();
  command->add_option("--draws", o->bootstrap.replicates, "Bootstrap replicates; fewer for big databases")
      ->check(CLI::Range(10, 100000))
      ->capture_default_str();
  command->add_option("--seed", o->bootstrap.seed, "Seed of the bootstrap")
      ->check(WhyNotWhole)
      ->capture_default_str();
  command
      ->add_option(
          "--price", o->price,
          "US dollars per million tokens, in and out (default: the cost that is stored with the requests)")
      ->expected(2);
  command
      ->add_option("--train", o->training,
                   "Instead: the curves of a training run, given by its folder; several side by side")
      ->allow_extra_args(false);
  command->add_option("--html", o->html, "Also write one self-contained page to this file");
  command
      ->add_option("--episodes", o->page.episodes,
                   "Episodes of each problem and side on the page, the best first")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command
      ->add_option("--megabytes", o->page.megabytes,
                   "The most that kernels, prompts and replies take on the page")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_flag("--force", o->force, "Overwrite the page if it exists");
  command->add_flag("--json", o->json, "One JSON object a side and a comparison, a line each");
}

}  // namespace

int ReportRun(const std::string& run, const std::string& database, bool json) {
  ReportOptions options;
  options.request.runs = {run};
  options.request.databases = {database};
  options.json = json;
  try {
    return RunReport(options);
  } catch (const Error& error) {  // a run that was made under older rules: it is done all the same
    if (error.code() != ExitCode::kBadRequest) throw;
    PrintFormat(stderr, "{}\n", error.what());
    return static_cast<int>(ExitCode::kDone);
  }
}

void AddReportCommand(CLI::App& app, Action* action) {
  auto options = std::make_shared<ReportOptions>();
  CLI::App* command = app.add_subcommand(
      "report", "What was solved, how fast, at what cost, with intervals; as text or a page");
  command->footer(kReportExamples);
  AddOptions(command, options.get());
  command->callback([options, action] { *action = [options] { return RunReport(*options); }; });
}

}  // namespace kevin
