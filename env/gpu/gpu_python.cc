#include "env/gpu/gpu_python.h"

#include <chrono>
#include <nlohmann/json.hpp>

#include "env/diagnosis/stages.h"
#include "env/error.h"
#include "env/gpu/judge/gpu_evaluator.h"
#include "env/process/machine.h"
#include "env/process/runner_protocol.h"
#include "env/process/wire.h"
#include "env/python/own_kernels.h"
#include "env/python/python_rules.h"
#include "env/verdict/begin_evaluation.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

// The first calls of a text that compiles at run time may take as long as a compiler.
double ExamineTimeout(const std::string& source, const Limits& limits) {
  const bool may_compile =
      source.find("triton") != std::string::npos || source.find("compile") != std::string::npos;
  return limits.call_timeout_s + (may_compile ? limits.compile_timeout_s : 0);
}

}  // namespace

GpuPython::GpuPython(GpuPythonOptions options)
    : options_(std::move(options)),
      runner_(RequireProgram(options_.environment.program_directory, "kevin-runner")) {}

const GpuPython::Side& GpuPython::Python() {
  const std::lock_guard one(mutex_);
  if (side_) return *side_;
  PythonSetup setup = FindPythonSetup(options_.environment.program_directory);
  if (setup.torch_version.find("+cpu") != std::string::npos) {
    throw Error(
        ExitCode::kMachine, setup.python + " has torch " + setup.torch_version + ", which cannot use a GPU",
        "install the one with CUDA: `python3 -m pip install torch==2.11.0`, or set KEVIN_PYTHON to a Python "
        "that has it");
  }
  std::string isolation;
  for (const SandboxProfile profile : {SandboxProfile::kGpuPythonBuild, SandboxProfile::kGpuPython}) {
    const std::string reduced =
        RequirePythonIsolation(options_.environment, runner_, options_.namespaces, profile);
    if (!reduced.empty()) isolation = reduced;
  }
  side_ = Side{std::move(setup), isolation};
  return *side_;
}

std::map<std::string, std::string> GpuPython::KeyParts() {
  const PythonSetup& setup = Python().setup;
  return {{"baseline_version", "eager Python torch " + setup.torch_version},
          {"toolchain_version", options_.compiler + " " + options_.architecture + ", " + setup.python +
                                    ", torch " + setup.torch_version}};
}

Compiled GpuPython::Build(const Candidate& candidate, const EvaluateOptions& options) {
  CompileOptions compile;
  compile.runner = runner_;
  compile.cache_directory = options_.environment.cache_directory;
  compile.namespaces = options_.namespaces;
  compile.limits = options_.environment.limits;
  compile.stop = options.stop;
  const auto build = [&](const CompileOptions& with) {
    return BuildPython(Python().setup, options_.compiler, candidate, options.confirm, with,
                       TorchArchitecture(options_.architecture));
  };
  return options.screen ? build(compile) : CompileConfirmed(compile, build);
}

std::unique_ptr<EvaluatorClient> GpuPython::StartEvaluator() {
  const fs::path& programs = options_.environment.program_directory;
  const fs::path evaluator = RequireProgram(programs, "kevin-evaluator");
  const fs::path runner = RequireProgram(programs, "kevin-gpu-runner");
  RequireProgram(programs, kGpuJudgePlugin);
  std::vector<std::string> environment = TrustedEnvironment(1);
  environment.emplace_back("CUDA_DEVICE_ORDER=PCI_BUS_ID");
  for (const char* name : {"CUDA_VISIBLE_DEVICES", "KEVIN_OUTER_LIBRARY_PATH"}) {
    if (const char* value = std::getenv(name)) environment.push_back(std::string(name) + "=" + value);
  }
  return std::make_unique<EvaluatorClient>(
      std::vector<std::string>{evaluator.string(), "serve-gpu", std::to_string(options_.device),
                               runner.string(), options_.namespaces ? "namespaces" : "plain",
                               options_.trusted_cubin(), PythonSetupToJson(Python().setup).dump(),
                               BundleFolder(options_.environment.cache_directory).string()},
      std::move(environment), options_.namespaces);
}

void GpuPython::StartEarly(const Problem& problem, const Workload& workload) {
  Python();
  std::call_once(started_, [&] {
    try {
      evaluator_.Start();
    } catch (const Error&) {
      return;
    }
    preparing_ = std::async(std::launch::async, [this, request = RequestOf("get-ready", problem, workload)] {
      evaluator_.GetReady(request, &is_ending_);
    });
  });
}

std::string GpuPython::Evaluate(const Problem& problem, const Candidate& candidate,
                                const EvaluateOptions& options, Evaluation* evaluation) {
  evaluation->backend = BackendOf(candidate.source);
  const std::string refusal =
      options.workload.rules == "kernelbench" ? KernelBenchRefusal(candidate.source) : std::string();
  if (!refusal.empty()) {
    evaluation->outcome = Refused{refusal};
    return "";
  }
  StartEarly(problem, options.workload);
  if (options.on_phase) options.on_phase("compile");
  const auto start = Clock::now();
  const Compiled compiled = Build(candidate, options);
  if (!Python().isolation.empty()) evaluation->isolation = Python().isolation;
  evaluation->wait_s = compiled.wait_s;
  evaluation->compile_s = SecondsSince(start) - compiled.wait_s;
  evaluation->log = compiled.log;
  if (compiled.timed_out) {
    evaluation->outcome = TimedOut{"compile", PythonBuildLimit_s(options_.environment.limits)};
    return "";
  }
  if (compiled.library.empty()) {
    evaluation->outcome = CompileFailed{compiled.log};
    return "";
  }
  json request = RequestOf("evaluate", problem, options.workload);
  request["library"] = compiled.library.string();
  request["own_kernels"] = OwnKernelNames(candidate.source);
  PutJudgeOptions(options, false, &request);
  request["call_timeout_s"] = options_.environment.limits.call_timeout_s;
  request["evaluation_timeout_s"] = options_.environment.limits.evaluation_timeout_s;
  request["examine_timeout_s"] = ExamineTimeout(candidate.source, options_.environment.limits);
  request["first_calls_apart"] = NeedsFirstCallsApart(candidate.source);
  request["start_library"] = "";
  Compiled other;  // in use until the answer
  if (!options.start_source.empty()) {
    RequireStartKind(candidate.kind, options);
    other = Build({candidate.kind, options.start_source}, options);
    if (other.library.empty())
      throw Error(ExitCode::kBadRequest, "the kernel to start from does not compile:\n" + other.log,
                  "fix it first");
    request["start_library"] = other.library.string();
  }
  const json result = evaluator_.AskOrThrow(request, options.on_phase, options.stop, &evaluation->wait_s);
  TakeJudgeResult(result, options_.environment.limits.max_log_bytes, evaluation);
  evaluation->backend = BackendThatRan(evaluation->backend, evaluation->own_share);
  return result.at("others");
}

std::optional<Diagnosis> GpuPython::Diagnose(const Problem& problem, const Candidate& candidate,
                                             const EvaluateOptions& options) {
  const std::vector<std::string> stages = StageNamesInPython(candidate.source);
  if (stages.empty()) return std::nullopt;
  if (options.on_phase) options.on_phase("diagnose");
  const Compiled compiled = Build(candidate, options);  // from the cache
  if (compiled.library.empty()) return std::nullopt;
  json request = RequestOf("diagnose", problem, options.workload);
  request["library"] = compiled.library.string();
  request["call_timeout_s"] = options_.environment.limits.call_timeout_s;
  request["examine_timeout_s"] = ExamineTimeout(candidate.source, options_.environment.limits);
  return DiagnoseStagesInPython(compiled.library, stages, options_.environment.cache_directory,
                                [&](const fs::path& marked) {
                                  request["marked_library"] = marked.string();
                                  double wait_s = 0;
                                  return evaluator_.AskOrThrow(request, {}, options.stop, &wait_s);
                                });
}

}  // namespace kevin
