#include "env/gpu/gpu_examination.h"

#include <fmt/format.h>

#include <filesystem>
#include <variant>

#include "env/error.h"
#include "env/process/machine.h"
#include "env/process/spawn.h"

namespace kevin {
namespace {

constexpr double kCrashCheck_s = 5, kProfile_s = 120;

}  // namespace

Examiner GpuExaminations::MakeExaminer(const std::string& inputs, double timeout_s) const {
  ExaminerOptions examiner;
  examiner.program = RequireProgram(options_.environment.program_directory, "kevin-gpu-examiner");
  examiner.work_directory = options_.environment.cache_directory / "gpu-work";
  examiner.trusted_cubin = options_.trusted_cubin();
  examiner.device = options_.device;
  examiner.namespaces = options_.namespaces;
  examiner.inputs = inputs == "kernelbench" ? InputMode::kKernelBench : InputMode::kDefault;
  examiner.timeout_s = timeout_s;
  return Examiner(std::move(examiner));
}

Examination GpuExaminations::Examine(const SizedProblem& sized, const GpuBuild& built,
                                     const ExamineOptions& options) const {
  Examination examination;
  if (built.failure) {
    examination.failure = fmt::format("{}: {}", OutcomeName(*built.failure), OutcomeReason(*built.failure));
    return examination;
  }
  const Examiner examiner = MakeExaminer(options.inputs, kProfile_s);
  if (options.sass) examination.sass = examiner.Disassemble(built.module.cubin);
  const std::string plan = LaunchPlanToText(built.plan);
  double wait_s = 0;
  const DeviceLock lock(options_.lock_name, LockMode::kExclusive, &wait_s);
  if (options.debug) examination.printed = examiner.Print(sized, plan);
  for (const std::string& check : options.checks)
    examination.checks.push_back(examiner.Check(check, sized, plan));
  return examination;
}

void GpuExaminations::NameCrashedLine(const SizedProblem& sized, const GpuBuild& built,
                                      const EvaluateOptions& options, Evaluation* evaluation) const {
  if (built.failure || !options_.namespaces || Examiner::FindTool("compute-sanitizer").empty()) return;
  try {
    const DeviceLock lock(options_.lock_name, LockMode::kExclusive, &evaluation->wait_s, options.stop);
    const CheckReport report = MakeExaminer(options.workload.inputs, kCrashCheck_s)
                                   .Check("memcheck", sized, LaunchPlanToText(built.plan));
    if (report.finding.empty()) return;
    auto& crashed = std::get<Crashed>(evaluation->outcome);
    if (report.line > 0) crashed.message += fmt::format("; line {}", report.line);
    crashed.message += ": " + report.finding;
  } catch (const Error&) {
  }
}

void GpuExaminations::ReadCounters(const SizedProblem& sized, const std::string& plan,
                                   const EvaluateOptions& options, Evaluation* evaluation) {
  std::filesystem::path report = options.profile_report;
  const int number = ++reports_;
  if (!report.empty() && number > 1) {
    report.replace_filename(
        fmt::format("{}-{}{}", report.stem().string(), number, report.extension().string()));
  }
  const DeviceLock lock(options_.lock_name, LockMode::kExclusive, &evaluation->wait_s, options.stop);
  evaluation->profile = MakeExaminer(options.workload.inputs, kProfile_s).Profile(sized, plan, report);
}

}  // namespace kevin
