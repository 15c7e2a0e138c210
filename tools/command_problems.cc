#include <fmt/core.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <memory>

#include "agent/events.h"
#include "agent/machine.h"
#include "agent/terminal.h"
#include "env/error.h"
#include "env/graph_source.h"
#include "env/problem/precision.h"
#include "env/problem/problem.h"
#include "env/problem/python_model.h"
#include "env/process/machine.h"
#include "env/process/spawn.h"
#include "tools/admission.h"
#include "tools/baselines.h"
#include "tools/commands.h"
#include "tools/device_options.h"
#include "tools/problem_listing.h"
#include "tools/reference_check.h"

namespace kevin {
namespace {

struct ProblemsOptions {
  std::string id, suite;
  int level = 0;  // 0: all
  std::string size;
  bool json = false;
  bool admit = false;
  bool graph = false;
  bool python = false;
  AdmissionOptions admission;
};

constexpr const char* kProblemsExamples = R"(Examples:
  kevin problems                        all problems that ship with Kevin
  kevin problems level1/19              one problem in full
  kevin problems ./mine.toml            check and show a problem file of your own
  kevin problems --level 1 --json       one JSON object a line, for scripts
  kevin problems level1/19 --graph      what its reference computes: operations and shapes, as JSON
  kevin problems level1/19 --python     as a Python module in KernelBench's form: Model, get_inputs, get_init_inputs
  kevin problems --suite test           the problems of a list (env/problems/suites/), a level, a range
  kevin problems level1/19 --admit      do incorrect answers fail on it and correct ones pass?
  kevin problems --admit --suite level2 --device cuda:0 --results level2.jsonl --seconds 180
                                        in slices on a GPU: the same command continues
  kevin problems --level 1 --admit --precision bf16)";

// Reads the files on all cores: parsing 330 of them takes 0.1 s on one. Of several errors the first by id is
// thrown.
std::vector<Problem> FindAll(const ProblemSet& set, const std::vector<std::string>& ids) {
  std::vector<Problem> problems(ids.size());
  std::vector<std::exception_ptr> errors(ids.size());
  std::atomic<size_t> next = 0;  // files differ in cost by a factor of ten: each thread takes the next one
  const int threads = std::min(UsableCpus(), static_cast<int>(ids.size() / 16) + 1);
  ParallelFor(threads, 1, threads, [&](int64_t, int64_t) {
    for (size_t i = next++; i < ids.size(); i = next++) {
      try {
        problems[i] = set.Find(ids[i]);
      } catch (...) {
        errors[i] = std::current_exception();
      }
    }
  });
  for (const std::exception_ptr& error : errors) {
    if (error) std::rethrow_exception(error);
  }
  return problems;
}

std::vector<std::string> SelectIds(const ProblemsOptions& options, const ProblemSet& set) {
  if (!options.suite.empty()) return ProblemsOfSuite(set, ProblemSet::DefaultDirectory(), options.suite);
  const std::string prefix = options.level == 0 ? "" : fmt::format("level{}/", options.level);
  std::vector<std::string> ids;
  for (const std::string& id : set.Ids()) {
    if (id.starts_with(prefix)) ids.push_back(id);
  }
  if (ids.empty()) {
    throw Error(ExitCode::kBadRequest,
                options.level == 0 ? "no problems in " + ProblemSet::DefaultDirectory().string()
                                   : fmt::format("no problems of level {}", options.level),
                "`kevin problems` lists all; KEVIN_PROBLEMS names their folder");
  }
  return ids;
}

std::vector<Problem> SelectProblems(const ProblemsOptions& options) {
  const auto as_asked = [&](Problem problem) { return options.admission.workload.Apply(std::move(problem)); };
  if (options.id.ends_with(".toml")) return {as_asked(LoadProblemFile(options.id))};
  const ProblemSet set;
  if (!options.id.empty()) return {as_asked(set.Find(options.id))};
  std::vector<Problem> problems = FindAll(set, SelectIds(options, set));
  for (Problem& problem : problems) problem = as_asked(std::move(problem));
  return problems;
}

// The first shape of the size; without one, that of `small`.
std::string OneShape(const Problem& problem, const std::string& size) {
  const std::string asked = size.empty() && problem.sizes.contains("small") ? "small" : size;
  return asked.empty() ? problem.sizes.begin()->first : ShapesOf(problem, asked)[0].size;
}

int PrintGraph(const Problem& problem, const std::string& size) {
  GraphSource graphs(ProgramDirectory(), CacheDirectory());
  Print(stdout, graphs.Graph(problem, OneShape(problem, size)) + "\n");
  return static_cast<int>(ExitCode::kDone);
}

int PrintPython(const Problem& problem, const std::string& size) {
  const bool is_imported = problem.model && !problem.source.empty();  // the user's own file has the class
  Print(stdout, is_imported ? problem.source : PythonModel(AtSize(problem, OneShape(problem, size))));
  return static_cast<int>(ExitCode::kDone);
}

int RunProblems(ProblemsOptions options) {
  const std::vector<Problem> problems = SelectProblems(options);
  if (options.id.ends_with(".toml")) {
    const std::string why_not = CompileReference(problems[0]);
    if (!why_not.empty())
      PrintFormat(stderr, "kevin: {}: the reference was not compiled: {}\n", options.id, why_not);
  }
  if (options.python) return PrintPython(problems.at(0), options.size);
  if (options.graph) return PrintGraph(problems.at(0), options.size);
  if (options.admit) {
    options.admission.workload.size = options.size;
    options.admission.json = options.json;
    return RunAdmission(problems, options.admission);
  }
  if (options.json) {
    for (const Problem& problem : problems) Print(stdout, ToLine(ProblemJson(problem, options.size)));
  } else if (!options.id.empty()) {
    PrintFormat(stdout, "{}{}", ProblemDetails(problems[0], options.size), StoredBaselinesText(problems[0]));
  } else {
    Print(stdout, ProblemTable(problems, options.size));
  }
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace

void AddProblemsCommand(CLI::App& app, Action* action) {
  auto options = std::make_shared<ProblemsOptions>();
  CLI::App* command =
      app.add_subcommand("problems", "List problems, show one, or test that it rejects incorrect answers");
  command->footer(kProblemsExamples);
  CLI::Option* id =
      command->add_option("id", options->id, "A problem's id (level1/19) or the path of its TOML file");
  CLI::Option* level = command->add_option("--level", options->level, "Only this level")
                           ->check(CLI::PositiveNumber)
                           ->excludes(id);
  command->add_option("--suite", options->suite, "Only these: level1, level1/1-20, a list (test), a file")
      ->excludes(id)
      ->excludes(level);
  command->add_option("--size", options->size,
                      "Only this size set (with --admit: small unless given, full on a GPU)");
  AddPrecisionOption(command, &options->admission.workload.precision);
  command->add_flag("--json", options->json, "One JSON object a line");
  command
      ->add_flag(
          "--graph", options->graph,
          "The operations and shapes of the reference as JSON (env/reference/graph.h); --size: small unless "
          "given")
      ->needs(id)
      ->excludes("--json");
  command
      ->add_flag("--python", options->python,
                 "The problem as a Python module in KernelBench's form; --size: small unless given")
      ->needs(id)
      ->excludes("--json")
      ->excludes("--graph");
  CLI::Option* admit = command->add_flag(
      "--admit", options->admit,
      "Run decoys, which must fail, and correct kernels of other forms, which must pass; on a CPU in Python too");
  command
      ->add_option("--inputs", options->admission.workload.inputs,
                   "With --admit: the problem's own inputs, or U[0,1)")
      ->check(CLI::IsMember({"default", "kernelbench"}))
      ->capture_default_str()
      ->needs(admit);
  command
      ->add_option("--threads", options->admission.threads,
                   "With --admit: threads of both sides; 0: all cores")
      ->check(CLI::NonNegativeNumber)
      ->needs(admit);
  command->add_option("--device", options->admission.device, "With --admit: cpu, or cuda:N")
      ->check([](const std::string& device) {
        return device == "cpu" || device.starts_with("cuda:") ? "" : device + " is not cpu or cuda:N";
      })
      ->capture_default_str()
      ->needs(admit);
  CLI::Option* results =
      command
          ->add_option("--results", options->admission.results,
                       "With --admit: also write the results to this file, and skip the problems that it has")
          ->needs(admit);
  command
      ->add_option("--seconds", options->admission.seconds,
                   "With --results: begin no further problem after this time")
      ->check(CLI::PositiveNumber)
      ->needs(results);
  command->callback([options, action] { *action = [options] { return RunProblems(*options); }; });
}

}  // namespace kevin
