#include "env/cpu/cpu_environment.h"

#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "env/ceilings.h"
#include "env/cpu/compile.h"
#include "env/cpu/cpu_diagnosis.h"
#include "env/cpu/measure_ceilings.h"
#include "env/diagnosis/stages.h"
#include "env/error.h"
#include "env/graph_source.h"
#include "env/problem/precision.h"
#include "env/problem/text.h"
#include "env/process/evaluator_client.h"
#include "env/process/machine.h"
#include "env/process/runner_protocol.h"
#include "env/process/shared_memory.h"
#include "env/process/spawn.h"
#include "env/process/wire.h"
#include "env/python/python_kind.h"
#include "env/python/python_rules.h"
#include "env/sandbox/sandbox.h"
#include "env/sandbox/self_test.h"
#include "env/verdict/begin_evaluation.h"
#include "env/verdict/verify.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr int kEnvironmentVersion = 4;  // bump when verdicts or times may change
constexpr const char* kTorch = "2.11.0";

class CpuEnvironmentImpl final : public CpuEnvironment {
 public:
  explicit CpuEnvironmentImpl(const EnvironmentOptions& options)
      : options_(options),
        evaluator_path_(RequireProgram(options.program_directory, "kevin-evaluator")),
        runner_path_(RequireProgram(options.program_directory, "kevin-runner")),
        compiler_(FindCompiler()),
        namespaces_(NamespacesAvailable()),
        threads_(options.threads > 0 ? options.threads : UsableCpus()) {
    facts_.compiler = compiler_.version;
    facts_.compiler_flags = "-std=c++20 -O3 -march=native -fopenmp";
    facts_.device = "cpu: " + CpuModel() + ", " + std::to_string(threads_) + " threads";
    CheckSandbox();
    DescribeCeilings();
  }

  Evaluation EvaluateShape(const Problem& problem, const Candidate& candidate,
                           const EvaluateOptions& options) override;
  std::string EvaluationKey(const Problem& problem, const Candidate& candidate,
                            const EvaluateOptions& options) override;
  std::vector<DecoyResult> Admit(const Problem& problem, const EvaluateOptions& options) override;
  EagerBaseline MeasureEager(const Problem& problem, const EvaluateOptions& options) override;
  Outcome Verify(const Problem& problem, const Candidate& candidate, const EvaluateOptions& options) override;
  std::string Graph(const Problem& problem, const std::string& size) override {
    return graphs_.Graph(problem, size);
  }
  std::optional<Diagnosis> Diagnose(const Problem& problem, const Candidate& candidate,
                                    const EvaluateOptions& options) override;
  const EnvironmentFacts& Facts() const override { return facts_; }

 private:
  void CheckSandbox();
  Ceilings MeasureCeilings(const std::atomic<bool>* stop, double* wait_s) const;
  void DescribeCeilings();
  void AddCeilings(const std::atomic<bool>* stop, Evaluation* evaluation);
  CompileOptions CompileOptionsWith(const std::atomic<bool>* stop) const;
  std::map<std::string, std::string> KeyParts(const Problem& problem, const Candidate& candidate,
                                              const EvaluateOptions& options) const;
  Compiled Compile(const SizedProblem& sized, const Candidate& candidate, const EvaluateOptions& asked);
  // Found at the first use.
  struct PythonSide {
    PythonSetup setup;
    std::string isolation;
  };
  const PythonSide& Python() const;
  enum class Depth { kVerify, kMeasure };
  Evaluation EvaluateTo(Depth depth, const Problem& problem, const Candidate& candidate,
                        const EvaluateOptions& options);
  Compiled OwnLibraries(Depth depth, const Candidate& candidate, const fs::path& bundle,
                        const EvaluateOptions& options) const;
  void Judge(Depth depth, const Problem& problem, const Candidate& candidate, const fs::path& library,
             const EvaluateOptions& options, Evaluation* evaluation);
  json Request(const std::string& command, const Problem& problem, const EvaluateOptions& options) const;
  json AskAboutProblem(const std::string& command, const Problem& problem, const EvaluateOptions& options);
  EnvironmentOptions options_;
  fs::path evaluator_path_, runner_path_;
  Compiler compiler_;
  bool namespaces_;
  int threads_;
  EnvironmentFacts facts_{"", "full", {"cpp", "modelnew", "triton"}, "small", ""};
  GraphSource graphs_{options_.program_directory, options_.cache_directory};
  std::mutex ceilings_mutex_;
  CeilingStore ceilings_{options_.cache_directory / "ceilings",
                         "cpu " + std::to_string(kCpuCeilingsVersion) + "\n" + CpuModel() + " " +
                             CpuFeatures() + "\n" + std::to_string(UsableCpus()) + " cpus, " +
                             std::to_string(threads_) + " threads"};
  SharedEvaluator evaluator_{[this] {
    const fs::path libraries = LibraryFolder(options_.cache_directory);
    return std::make_unique<EvaluatorClient>(
        std::vector<std::string>{evaluator_path_.string(), "serve", std::to_string(threads_),
                                 runner_path_.string(), namespaces_ ? "namespaces" : "plain",
                                 libraries.string()},
        TrustedEnvironment(threads_), namespaces_);
  }};
  SharedEvaluator python_evaluator_{[this] {
    return std::make_unique<EvaluatorClient>(
        std::vector<std::string>{evaluator_path_.string(), "serve-python", std::to_string(threads_),
                                 runner_path_.string(), namespaces_ ? "namespaces" : "plain",
                                 BundleFolder(options_.cache_directory).string(),
                                 PythonSetupToJson(Python().setup).dump()},
        TrustedEnvironment(threads_), namespaces_);
  }};
  mutable std::mutex python_mutex_;
  mutable std::optional<PythonSide> python_;
};

const CpuEnvironmentImpl::PythonSide& CpuEnvironmentImpl::Python() const {
  const std::lock_guard one(python_mutex_);
  if (!python_) {
    PythonSetup setup = FindPythonSetup(options_.program_directory);
    python_ = PythonSide{std::move(setup), RequirePythonIsolation(options_, runner_path_, namespaces_)};
  }
  return *python_;
}

void CpuEnvironmentImpl::CheckSandbox() {
  SelfTestOptions test;
  test.runner = runner_path_;
  test.canary_folder = options_.cache_directory / "self-test";
  test.namespaces = namespaces_;
  const std::string succeeded = RequireSandbox(test, options_.reduced_isolation);
  if (!succeeded.empty()) {
    facts_.isolation = "reduced (a candidate can: " + succeeded + ")";
  } else if (options_.reduced_isolation) {
    facts_.isolation = "reduced (asked for; the self-test found no hole)";
  } else if (!namespaces_) {
    facts_.isolation = "full (without namespaces)";
  }
}

std::map<std::string, std::string> CpuEnvironmentImpl::KeyParts(const Problem& problem,
                                                                const Candidate& candidate,
                                                                const EvaluateOptions& options) const {
  const bool is_python = IsPython(candidate.kind);
  const std::string toolchain =
      is_python ? compiler_.version + ", " + Python().setup.python + ", torch " + Python().setup.torch_version
                : compiler_.version;
  return KeyPartsOf(
      problem, candidate, options.workload,
      {{"tf32", "off"},
       {"threads", std::to_string(threads_)},
       {"baseline_version", std::string(is_python ? "eager Python torch " : "eager libtorch ") + kTorch},
       {"toolchain_version", toolchain},
       {"device_model", CpuModel() + " (" + CpuFeatures() + ")"},
       {"driver", "Linux " + KernelRelease()},
       {"isolation", facts_.isolation},
       {"include_hashes", ""},
       {"environment_version", std::to_string(kEnvironmentVersion)}});
}

std::string CpuEnvironmentImpl::EvaluationKey(const Problem& problem, const Candidate& candidate,
                                              const EvaluateOptions& options) {
  return KeyOf(KeyParts(problem, candidate, options));
}

json CpuEnvironmentImpl::Request(const std::string& command, const Problem& problem,
                                 const EvaluateOptions& options) const {
  json request = RequestOf(command, problem, options.workload);
  request["call_timeout_s"] = options_.limits.call_timeout_s;
  request["evaluation_timeout_s"] = options_.limits.evaluation_timeout_s;
  request["max_memory_mb"] = options_.limits.max_memory_mb;
  return request;
}

CompileOptions CpuEnvironmentImpl::CompileOptionsWith(const std::atomic<bool>* stop) const {
  CompileOptions options;
  options.runner = runner_path_;
  options.cache_directory = options_.cache_directory;
  options.namespaces = namespaces_;
  options.limits = options_.limits;
  options.stop = stop;
  return options;
}

Compiled CpuEnvironmentImpl::Compile(const SizedProblem& sized, const Candidate& candidate,
                                     const EvaluateOptions& asked) {
  const auto compile = [&](const CompileOptions& options) {
    return IsPython(candidate.kind)
               ? BuildPython(Python().setup, compiler_.version, candidate, asked.confirm, options)
               : CompileCpp(compiler_, sized, candidate.source, options);
  };
  const CompileOptions options = CompileOptionsWith(asked.stop);
  return asked.screen ? compile(options) : CompileConfirmed(options, compile);
}

// Between evaluations, with the CPU to itself: never while a pair is timed.
Ceilings CpuEnvironmentImpl::MeasureCeilings(const std::atomic<bool>* stop, double* wait_s) const {
  const DeviceLock lock("cpu", LockMode::kExclusive, wait_s, stop);
  return MeasureCpuCeilings(threads_);
}

void CpuEnvironmentImpl::DescribeCeilings() {
  double wait_s = 0;
  const Ceilings& known = options_.measure_ceilings && ceilings_.Known().gb_per_s == 0
                              ? ceilings_.Get([&] { return MeasureCeilings(nullptr, &wait_s); })
                              : ceilings_.Known();
  facts_.peak_gb_per_s = known.gb_per_s;
  facts_.peak_gflop_per_s = GflopCeiling(known, {}, false);
}

void CpuEnvironmentImpl::AddCeilings(const std::atomic<bool>* stop, Evaluation* evaluation) {
  const std::lock_guard one(ceilings_mutex_);
  const auto measure = [&] { return MeasureCeilings(stop, &evaluation->wait_s); };
  ceilings_.Get(measure);
  if (const auto* measured = std::get_if<Measured>(&evaluation->outcome))
    ceilings_.See(measured->gflop_per_s, UnitFor(evaluation->workload, false), measure);
  const Ceilings& ceilings = ceilings_.Get(measure);
  evaluation->peak_gb_per_s = ceilings.gb_per_s;
  evaluation->peak_gflop_per_s = GflopCeiling(ceilings, evaluation->workload, false);
}

std::optional<Diagnosis> CpuEnvironmentImpl::Diagnose(const Problem& problem, const Candidate& candidate,
                                                      const EvaluateOptions& options) {
  const bool is_python = IsPython(candidate.kind);
  const std::vector<std::string> stages =
      candidate.kind == "modelnew" ? StageNamesInPython(candidate.source) : std::vector<std::string>();
  if (is_python && stages.empty()) return std::nullopt;
  if (options.on_phase) options.on_phase("diagnose");
  CpuDiagnosisParts parts{compiler_, CompileOptionsWith(options.stop), {}};
  parts.run = [&](const fs::path& library) {
    json request = Request("diagnose", problem, options);
    request["library"] = library.string();
    double wait_s = 0;
    SharedEvaluator& evaluator = is_python ? python_evaluator_ : evaluator_;
    return evaluator.AskOrThrow(request, {}, options.stop, &wait_s);
  };
  const SizedProblem sized = AtSize(problem, options.workload.size);
  if (!is_python) return DiagnoseOnCpu(sized, candidate.source, parts);
  const Compiled compiled = Compile(sized, candidate, options);  // from the cache
  if (compiled.library.empty()) return std::nullopt;
  return DiagnoseStagesInPython(compiled.library, stages, options_.cache_directory, parts.run);
}

Evaluation CpuEnvironmentImpl::EvaluateShape(const Problem& problem, const Candidate& candidate,
                                             const EvaluateOptions& options) {
  return EvaluateTo(Depth::kMeasure, problem, candidate, options);
}

Outcome CpuEnvironmentImpl::Verify(const Problem& problem, const Candidate& candidate,
                                   const EvaluateOptions& options) {
  return EvaluateTo(Depth::kVerify, problem, candidate, options).outcome;
}

Evaluation CpuEnvironmentImpl::EvaluateTo(Depth depth, const Problem& problem, const Candidate& candidate,
                                          const EvaluateOptions& options) {
  if (std::find(facts_.kinds.begin(), facts_.kinds.end(), candidate.kind) == facts_.kinds.end()) {
    throw Error(ExitCode::kMachine, "candidates of kind `" + candidate.kind + "` cannot be judged on a CPU",
                "use kind cpp, modelnew or triton");
  }
  RequireKindTakes(problem, candidate.kind);
  Evaluation evaluation = BeginEvaluation(KeyParts(problem, candidate, options), options, facts_);
  if (IsPython(candidate.kind)) {
    evaluation.backend = BackendOf(candidate.source);
    const std::string refusal =
        options.workload.rules == "kernelbench" ? KernelBenchRefusal(candidate.source) : std::string();
    if (!refusal.empty()) {
      evaluation.outcome = Refused{refusal};
      return evaluation;
    }
  }
  const SizedProblem sized = AtSize(problem, options.workload.size);
  if (options.on_phase) options.on_phase("compile");
  const auto start = Clock::now();
  const Compiled compiled = Compile(sized, candidate, options);
  if (IsPython(candidate.kind) && !Python().isolation.empty()) evaluation.isolation = Python().isolation;
  evaluation.wait_s = compiled.wait_s;
  evaluation.compile_s = SecondsSince(start) - compiled.wait_s;
  evaluation.log = compiled.log;
  if (compiled.timed_out) {
    evaluation.outcome = TimedOut{"compile", IsPython(candidate.kind) ? PythonBuildLimit_s(options_.limits)
                                                                      : options_.limits.compile_timeout_s};
  } else if (compiled.library.empty()) {
    evaluation.outcome = CompileFailed{compiled.log};
  } else {
    Judge(depth, problem, candidate, compiled.library, options, &evaluation);
    if (depth == Depth::kMeasure && !options.screen && std::holds_alternative<Measured>(evaluation.outcome))
      AddCeilings(options.stop, &evaluation);
  }
  return evaluation;
}

// What counts as the candidate's own code, where its share is asked for. Without namespaces a build has another folder each
// time, whose name may stand in what it makes: there the bundle is believed.
Compiled CpuEnvironmentImpl::OwnLibraries(Depth depth, const Candidate& candidate, const fs::path& bundle,
                                          const EvaluateOptions& options) const {
  const bool asks_for_share = IsPython(candidate.kind) && depth == Depth::kMeasure && !options.screen &&
                              options.workload.rules == "kevin";
  Compiled own;
  if (!asks_for_share) return own;
  const CompileOptions with = CompileOptionsWith(options.stop);
  if (namespaces_)
    return CompileConfirmed(with, [&](const CompileOptions& compile) {
      return RebuildExtensions(Python().setup, compiler_.version, bundle, compile);
    });
  own.library = bundle;
  return own;
}

void CpuEnvironmentImpl::Judge(Depth depth, const Problem& problem, const Candidate& candidate,
                               const fs::path& library, const EvaluateOptions& options,
                               Evaluation* evaluation) {
  json request = Request("evaluate", problem, options);
  request["library"] = library.string();
  PutJudgeOptions(options, depth == Depth::kVerify, &request);
  request["interpreted"] = evaluation->backend == "triton";
  request["start_library"] = "";
  const Compiled own = OwnLibraries(depth, candidate, library, options);  // in use until the answer
  evaluation->wait_s += own.wait_s;
  if (own.timed_out) {
    evaluation->outcome = TimedOut{"compile", PythonBuildLimit_s(options_.limits)};
    return;
  }
  if (own.library.empty() && !own.log.empty()) {
    evaluation->outcome = CompileFailed{own.log};
    return;
  }
  evaluation->log += own.log;
  request["own_libraries"] = own.library.string();
  Compiled start;  // in use until the answer
  if (!options.start_source.empty()) {
    RequireStartKind(candidate.kind, options);
    start = Compile(AtSize(problem, options.workload.size), {candidate.kind, options.start_source}, options);
    if (start.library.empty()) {
      throw Error(ExitCode::kBadRequest, "the kernel to start from does not compile:\n" + start.log,
                  "fix it first");
    }
    request["start_library"] = start.library.string();
  }
  SharedEvaluator& evaluator = IsPython(candidate.kind) ? python_evaluator_ : evaluator_;
  const std::optional<json> result =
      evaluator.Ask(request, options.on_phase, options.stop, &evaluation->wait_s);
  if (!result) {
    evaluation->outcome = Crashed{"its output buffers were removed during the check (SIGBUS)"};
    return;
  }
  TakeJudgeResult(*result, options_.limits.max_log_bytes, evaluation);
  evaluation->backend = BackendThatRan(evaluation->backend, evaluation->own_share);
}

// For requests without a candidate: a failure is one of the infrastructure.
json CpuEnvironmentImpl::AskAboutProblem(const std::string& command, const Problem& problem,
                                         const EvaluateOptions& options) {
  double wait_s = 0;
  return evaluator_.AskOrThrow(Request(command, problem, options), options.on_phase, options.stop, &wait_s);
}

std::vector<DecoyResult> CpuEnvironmentImpl::Admit(const Problem& problem, const EvaluateOptions& options) {
  return DecoysFromJson(AskAboutProblem("admit", problem, options));
}

EagerBaseline CpuEnvironmentImpl::MeasureEager(const Problem& problem, const EvaluateOptions& options) {
  const json result = AskAboutProblem("eager", problem, options);
  return {result.at("eager_us"), result.at("low_us"), result.at("high_us"), result.at("batches"),
          result.at("torch")};
}

}  // namespace

std::unique_ptr<CpuEnvironment> MakeCpuEnvironmentForTools(const EnvironmentOptions& options) {
  return std::make_unique<CpuEnvironmentImpl>(options);
}

std::unique_ptr<Environment> MakeCpuEnvironment(const EnvironmentOptions& options) {
  return MakeCpuEnvironmentForTools(options);
}

}  // namespace kevin
