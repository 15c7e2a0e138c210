#include "tools/examination.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "env/error.h"

namespace kevin {

void AddExamineOptions(CLI::App* command, ExamineChoice* choice) {
  command->add_flag("--sass", choice->sass, "On a GPU: also print the machine code, with the source's lines");
  command->add_flag("--sanitize", choice->sanitize,
                    "On a GPU: also look for bad accesses, races and reads of unwritten memory "
                    "(compute-sanitizer; size small unless --size is given)");
  command->add_flag("--debug", choice->debug,
                    "On a GPU: instead of judging, make one call with printf allowed (size small unless "
                    "--size is given)");
}

void RequireGpuFor(const ExamineChoice& choice, Environment& environment) {
  if (!choice.any() || dynamic_cast<GpuEnvironment*>(&environment)) return;
  throw Error(
      ExitCode::kBadRequest,
      "--sass, --sanitize and --debug are for kernels on a GPU; this is " + environment.Facts().device,
      "leave them out, or use a machine with an NVIDIA GPU (kevin doctor)");
}

Examination Examine(Environment& environment, const Problem& problem, const Candidate& candidate,
                    const ExamineChoice& choice, const std::string& size, const std::string& inputs) {
  RequireGpuFor(choice, environment);
  ExamineOptions options;
  if (!size.empty()) options.size = size;
  options.inputs = inputs;
  options.sass = choice.sass;
  options.debug = choice.debug;
  if (choice.sanitize) options.checks = {"memcheck", "racecheck", "initcheck"};
  return dynamic_cast<GpuEnvironment&>(environment).Examine(problem, candidate, options);
}

std::string ExaminationText(const Examination& examination, const ExamineChoice& choice) {
  if (!examination.failure.empty()) return examination.failure + "\n";
  std::string text;
  for (const CheckReport& check : examination.checks) {
    text += fmt::format("{}: {}\n", check.tool,
                        check.finding.empty() && check.errors == 0 ? std::string("nothing found")
                                                                   : fmt::format("{} errors", check.errors));
    if (check.line > 0) text += fmt::format("  line {} of the kernel's file\n", check.line);
    if (!check.finding.empty()) text += "  " + check.finding + "\n";
  }
  if (choice.debug) text += examination.printed.empty() ? "(nothing was printed)\n" : examination.printed;
  return text + examination.sass;
}

Json ExaminationEvent(const Examination& examination, const ExamineChoice& choice, const std::string& problem,
                      const std::string& source_path) {
  const auto text = [](bool chosen, const std::string& value) { return chosen ? Json(value) : Json(); };
  Json checks;
  if (choice.sanitize) checks = Json::array();
  for (const CheckReport& check : examination.checks) {
    checks.push_back({{"tool", check.tool},
                      {"errors", check.errors},
                      {"line", check.line > 0 ? Json(check.line) : Json()},
                      {"finding", check.finding}});
  }
  return {{"event", "examination"},
          {"problem", problem},
          {"source_path", source_path},
          {"failure", examination.failure.empty() ? Json() : Json(examination.failure)},
          {"checks", checks},
          {"printed", text(choice.debug, examination.printed)},
          {"sass", text(choice.sass, examination.sass)}};
}

}  // namespace kevin
