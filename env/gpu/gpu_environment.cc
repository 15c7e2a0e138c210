#include "env/gpu/gpu_environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <fstream>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "env/ceilings.h"
#include "env/error.h"
#include "env/gpu/compile/compile_cache.h"
#include "env/gpu/compile/compile_farm.h"
#include "env/gpu/compile/gpu_module.h"
#include "env/gpu/find_gpus.h"
#include "env/gpu/gpu_python.h"
#include "env/gpu/judge/gpu_ceilings.h"
#include "env/gpu/judge/gpu_evaluator.h"
#include "env/gpu/launch/launch_function.h"
#include "env/gpu/machine_key.h"
#include "env/gpu/runner/device_memory.h"
#include "env/gpu/runner/launch_plan.h"
#include "env/graph_source.h"
#include "env/problem/precision.h"
#include "env/problem/text.h"
#include "env/process/evaluator_client.h"
#include "env/process/machine.h"
#include "env/process/runner_protocol.h"
#include "env/process/spawn.h"
#include "env/sandbox/self_test.h"
#include "env/verdict/begin_evaluation.h"
#include "env/verdict/verify.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using Clock = std::chrono::steady_clock;

constexpr int kGpuEnvironmentVersion = 5;  // bump when verdicts or times may change
constexpr double kCrashCheck_s = 5, kProfile_s = 120;

// A candidate as machine code, or its failure.
struct Built {
  std::optional<Outcome> failure;
  LaunchPlan plan;
  LaunchList list;
  GpuModule module;
  std::string log;
  double compile_s = 0;
};

class DeviceEnvironment final : public GpuEnvironment {
 public:
  DeviceEnvironment(const EnvironmentOptions& options, const GpuFound& gpu);

  Evaluation EvaluateShape(const Problem& problem, const Candidate& candidate,
                           const EvaluateOptions& options) override;
  std::string EvaluationKey(const Problem& problem, const Candidate& candidate,
                            const EvaluateOptions& options) override;
  std::string MachineKey(const Problem& problem, const Candidate& candidate,
                         const EvaluateOptions& options) override;
  Examination Examine(const Problem& problem, const Candidate& candidate,
                      const ExamineOptions& options) override;
  std::vector<DecoyResult> Admit(const Problem& problem, const EvaluateOptions& options) override;
  Preparation Prepare(const Problem& problem, const EvaluateOptions& options) override;
  std::string Graph(const Problem& problem, const std::string& size) override {
    return graphs_.Graph(problem, size);
  }
  std::optional<Diagnosis> Diagnose(const Problem& problem, const Candidate& candidate,
                                    const EvaluateOptions& options) override;
  const EnvironmentFacts& Facts() const override { return facts_; }
  void ReleaseMemory() override {
    evaluator_.TellIfStarted({{"command", "release"}});
    python_.ReleaseMemory();
  }

 private:
  void AddCeilings(const std::atomic<bool>* stop, Evaluation* evaluation);
  std::map<std::string, std::string> KeyParts(const Problem& problem, const Candidate& candidate,
                                              const EvaluateOptions& options);
  Built Build(const SizedProblem& sized, const Candidate& candidate, bool debug = false);
  std::string MachineKeyOf(const Problem& problem, const Built& built, const EvaluateOptions& options);
  Examiner MakeExaminer(const std::string& inputs, double timeout_s);
  void NameCrashedLine(const SizedProblem& sized, const std::string& plan, const EvaluateOptions& options,
                       Evaluation* evaluation);
  void ReadCounters(const SizedProblem& sized, const std::string& plan, const EvaluateOptions& options,
                    Evaluation* evaluation);
  std::vector<KernelReport> Reports(const Built& built) const;
  std::string TrustedCubin();
  void SayShared(const std::string& others);
  std::unique_ptr<EvaluatorClient> StartEvaluator();
  void DescribeDevice(const json& device);
  Ceilings MeasureCeilings(const std::atomic<bool>* stop, double* wait_s);
  void DescribeCeilings();

  const EnvironmentOptions options_;
  GpuFound gpu_;
  std::string architecture_;
  bool namespaces_ = NamespacesAvailable();
  CudaToolchain toolchain_;
  CompileFarm farm_;
  FolderHashes include_hashes_;
  MultiprocessorLimits limits_;
  EnvironmentFacts facts_;
  std::string driver_, torch_, lock_name_;
  std::string trusted_cubin_;  // path
  std::atomic<bool> said_shared_ = false;
  std::atomic<int> reports_ = 0;  // of the profiler, written so far
  GraphSource graphs_{options_.program_directory, options_.cache_directory};
  std::mutex ceilings_mutex_;
  std::optional<CeilingStore> ceilings_;  // once the device is known
  SharedEvaluator evaluator_{[this] { return StartEvaluator(); }};
  GpuPython python_{{options_, gpu_.index, namespaces_, architecture_, toolchain_.version,
                     [this] { return trusted_cubin_.empty() ? TrustedCubin() : trusted_cubin_; }}};
};

std::string ArchitectureOf(const GpuFound& gpu) {
  const int capability = gpu.capability_major * 10 + gpu.capability_minor;
  // From 9.0 on, architecture-specific features (wgmma, setmaxnreg) need the suffix.
  return fmt::format("sm_{}{}", capability, capability >= 90 ? "a" : "");
}

CompileFarmOptions FarmOptions(const EnvironmentOptions& options) {
  CompileFarmOptions farm;
  farm.compiler_program = RequireProgram(options.program_directory, "kevin-gpu-compiler");
  farm.runner_program = RequireProgram(options.program_directory, "kevin-runner");
  farm.cache_directory = options.cache_directory;
  farm.namespaces = NamespacesAvailable();
  farm.limits = options.limits;
  return farm;
}

DeviceEnvironment::DeviceEnvironment(const EnvironmentOptions& options, const GpuFound& gpu)
    : options_(options),
      gpu_(gpu),
      architecture_(ArchitectureOf(gpu)),
      toolchain_(FindCudaToolchain()),
      farm_(toolchain_, FarmOptions(options)) {
  facts_.kinds = {"cuda", "ptx", "modelnew", "triton"};
  facts_.default_size = "full";
  facts_.isolation = namespaces_ ? "full" : "reduced (no namespaces on this machine)";
  if (!namespaces_ && !options.reduced_isolation) {
    throw Error(
        ExitCode::kMachine, "this machine does not allow namespaces for the GPU runner",
        "run `kevin doctor`, or accept the risk with --isolation reduced (every report then says so)");
  }
  if (options.reduced_isolation && namespaces_)
    facts_.isolation = "reduced (asked for; namespaces are on all the same)";
  const std::string holes =
      RequireSandbox({.runner = RequireProgram(options.program_directory, "kevin-runner"),
                      .canary_folder = options.cache_directory / "self-test",
                      .namespaces = namespaces_,
                      .profile = SandboxProfile::kGpuRunner},
                     options.reduced_isolation);
  if (!holes.empty()) facts_.isolation = "reduced (a candidate that breaks out can: " + holes + ")";
  double wait_s = 0;
  DescribeDevice(evaluator_.AskOrThrow({{"command", "device"}}, {}, nullptr, &wait_s));
  DescribeCeilings();
}

std::string DeviceEnvironment::TrustedCubin() {
  GpuCompileRequest request;
  request.device_text = TrustedKernelText();
  request.kernels = TrustedKernelNames();
  request.architecture = architecture_;
  const GpuCompiled compiled = farm_.Compile(request);
  if (compiled.module.cubin.empty()) {
    throw Error(ExitCode::kMachine, "NVRTC does not compile Kevin's own kernels: " + compiled.log,
                "install NVRTC 13.0 (tools/setup.sh does), or point KEVIN_CUDA at a CUDA 13 toolkit");
  }
  const fs::path folder = options_.cache_directory / "gpu-trusted";
  fs::create_directories(folder);
  const fs::path path = folder / (Sha256Hex(compiled.module.cubin) + ".cubin");
  if (fs::exists(path)) return path;
  const fs::path partial = path.string() + "." + std::to_string(getpid());
  std::ofstream out(partial, std::ios::binary);
  out << compiled.module.cubin;
  if (!out.flush())
    throw Error(ExitCode::kBroken, "cannot write " + partial.string(), "free some disk space");
  out.close();
  fs::rename(partial, path);
  return path;
}

std::unique_ptr<EvaluatorClient> DeviceEnvironment::StartEvaluator() {
  const fs::path evaluator = RequireProgram(options_.program_directory, "kevin-evaluator");
  const fs::path runner = RequireProgram(options_.program_directory, "kevin-gpu-runner");
  RequireProgram(options_.program_directory, kGpuJudgePlugin);
  trusted_cubin_ = TrustedCubin();
  std::vector<std::string> environment = TrustedEnvironment(1);
  environment.emplace_back("CUDA_DEVICE_ORDER=PCI_BUS_ID");
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES"))
    environment.push_back(std::string("CUDA_VISIBLE_DEVICES=") + visible);
  return std::make_unique<EvaluatorClient>(
      std::vector<std::string>{evaluator.string(), "serve-gpu", std::to_string(gpu_.index), runner.string(),
                               namespaces_ ? "namespaces" : "plain", trusted_cubin_},
      std::move(environment), namespaces_);
}

void DeviceEnvironment::DescribeDevice(const json& device) {
  limits_ = {device.at("threads"), device.at("registers"), device.at("blocks"), device.at("shared_bytes"),
             device.at("reserved_shared_bytes")};
  const std::string name = device.at("name");
  driver_ = std::to_string(device.at("driver").get<int>());
  torch_ = device.at("torch");
  lock_name_ = DeviceLock::NameOfGpu(gpu_.pci_bus);
  facts_.device = fmt::format("cuda:{}: {}", gpu_.index, name);
  ceilings_.emplace(
      options_.cache_directory / "ceilings",
      fmt::format("gpu {}\n{} {}, {} multiprocessors, {} MHz\ndriver {}, torch {}", kGpuCeilingsVersion, name,
                  architecture_, device.at("multiprocessors").get<int>(), device.at("clock_mhz").get<int>(),
                  driver_, torch_));
  facts_.compiler = toolchain_.version;
  facts_.compiler_flags = "for " + architecture_;
  facts_.gpu = {gpu_.capability_major * 10 + gpu_.capability_minor, device.at("multiprocessors").get<int>(),
                device.at("block_shared_bytes").get<int64_t>()};
  facts_.machine = fmt::format(
      "{} ({}), {} multiprocessors, {:.0f} GB of memory, {} MB L2, {} KiB of shared memory and {} registers "
      "a multiprocessor, at most {} bytes of shared memory a block",
      name, architecture_, device.at("multiprocessors").get<int>(),
      device.at("memory_bytes").get<double>() * 1e-9, device.at("l2_bytes").get<int64_t>() >> 20,
      limits_.shared_bytes >> 10, limits_.registers, facts_.gpu.block_shared_bytes);
}

Built DeviceEnvironment::Build(const SizedProblem& sized, const Candidate& candidate, bool debug) {
  Built built;
  const auto start = Clock::now();
  try {
    InterpretedLaunch launch = InterpretLaunch(sized, candidate.kind, candidate.source);
    GpuCompileRequest request;
    request.kind = candidate.kind;
    request.device_text = launch.split.device_text;
    request.kernels.assign(launch.kernels.begin(), launch.kernels.end());
    for (const ConstantValue& constant : launch.list.constants) request.variables.push_back(constant.symbol);
    request.symbols = sized.symbols;
    request.architecture = architecture_;
    request.include_directories = options_.include_directories;
    request.debug = debug;
    GpuCompiled compiled = farm_.Compile(request);
    built.list = std::move(launch.list);
    for (const std::string& note : launch.split.notes) built.log += note + "\n";
    for (const std::string& note : compiled.notes) built.log += note + "\n";
    built.log += compiled.log;
    if (compiled.timed_out) {
      built.failure = TimedOut{"compile", options_.limits.compile_timeout_s};
    } else if (compiled.module.cubin.empty()) {
      built.failure = CompileFailed{compiled.log};
    } else if (!compiled.refused.empty()) {
      built.failure = Refused{compiled.refused};
    } else {
      std::string error;
      const PtxReport report = InspectPtx(compiled.module.ptx, debug);
      built.plan = MakeLaunchPlan(built.list, compiled.module, report.globals, compiled.variables, &error);
      if (!error.empty()) built.failure = CompileFailed{error};
      built.module = std::move(compiled.module);
    }
  } catch (const LaunchException& exception) {
    built.failure = CompileFailed{exception.error().message};
  }
  built.compile_s = SecondsSince(start);
  return built;
}

std::vector<KernelReport> DeviceEnvironment::Reports(const Built& built) const {
  std::vector<KernelReport> reports;
  for (const PlannedOperation& operation : built.plan.operations) {
    const auto* planned = std::get_if<PlannedLaunch>(&operation);
    if (!planned) continue;
    const KernelLaunch& launch = planned->launch;
    const auto info = std::find_if(built.module.kernels.begin(), built.module.kernels.end(),
                                   [&](const KernelInfo& kernel) { return kernel.name == launch.kernel; });
    if (info == built.module.kernels.end()) continue;
    const auto dimensions = [](const Dim3& d) { return fmt::format("{} x {} x {}", d.x, d.y, d.z); };
    KernelReport report;
    report.name = launch.kernel;
    report.grid = dimensions(launch.grid);
    report.block = dimensions(launch.block);
    report.registers = info->registers;
    report.static_shared_bytes = info->static_shared_bytes;
    report.dynamic_shared_bytes = launch.shared_bytes;
    report.spill_store_bytes = info->spill_store_bytes;
    report.spill_load_bytes = info->spill_load_bytes;
    const Occupancy occupancy =
        OccupancyOf(limits_, static_cast<int>(launch.block.x * launch.block.y * launch.block.z),
                    info->registers, info->static_shared_bytes + launch.shared_bytes);
    report.occupancy = occupancy.share;
    report.limited_by = occupancy.limited_by;
    reports.push_back(std::move(report));
  }
  return reports;
}

std::map<std::string, std::string> DeviceEnvironment::KeyParts(const Problem& problem,
                                                               const Candidate& candidate,
                                                               const EvaluateOptions& options) {
  std::string includes;
  for (const fs::path& folder : options_.include_directories)
    includes += include_hashes_.HashOf(folder) + ";";
  std::map<std::string, std::string> parts = {
      {"threads", "0"},
      {"baseline_version", "eager libtorch " + torch_},
      {"toolchain_version", toolchain_.version + " " + architecture_},
      {"device_model", facts_.device.substr(facts_.device.find(": ") + 2)},
      {"driver", driver_ + ", Linux " + KernelRelease()},
      {"isolation", facts_.isolation},
      {"include_hashes", includes},
      {"environment_version", "gpu " + std::to_string(kGpuEnvironmentVersion)}};
  if (IsPython(candidate.kind)) {
    for (const auto& [name, text] : python_.KeyParts()) parts[name] = text;
    parts["include_hashes"] = "";
  }
  return KeyPartsOf(problem, candidate, options.workload, parts);
}

std::string DeviceEnvironment::MachineKeyOf(const Problem& problem, const Built& built,
                                            const EvaluateOptions& options) {
  std::map<std::string, std::string> parts = KeyParts(problem, {}, options);
  parts["candidate"] = MachinePlanHash(built.plan);
  parts.erase("kind");
  return KeyOf(parts);
}

std::string DeviceEnvironment::MachineKey(const Problem& problem, const Candidate& candidate,
                                          const EvaluateOptions& options) {
  if (IsPython(candidate.kind)) return "";
  if (options.on_phase) options.on_phase("compile");
  const Built built = Build(AtSize(problem, options.workload.size), candidate);
  return built.failure ? "" : MachineKeyOf(problem, built, options);
}

std::string DeviceEnvironment::EvaluationKey(const Problem& problem, const Candidate& candidate,
                                             const EvaluateOptions& options) {
  return KeyOf(KeyParts(problem, candidate, options));
}

Evaluation DeviceEnvironment::EvaluateShape(const Problem& problem, const Candidate& candidate,
                                            const EvaluateOptions& options) {
  if (std::find(facts_.kinds.begin(), facts_.kinds.end(), candidate.kind) == facts_.kinds.end()) {
    throw Error(ExitCode::kBadRequest,
                "candidates of kind `" + candidate.kind + "` cannot be judged on a GPU",
                "use kind cuda, ptx, modelnew or triton, or --device cpu");
  }
  RequireKindTakes(problem, candidate.kind);
  Evaluation evaluation = BeginEvaluation(KeyParts(problem, candidate, options), options, facts_);
  if (IsPython(candidate.kind)) {
    const std::string others = python_.Evaluate(problem, candidate, options, &evaluation);
    if (!others.empty()) SayShared(others);
    if (!options.screen && std::holds_alternative<Measured>(evaluation.outcome))
      AddCeilings(options.stop, &evaluation);
    return evaluation;
  }
  if (options.on_phase) options.on_phase("compile");
  const SizedProblem sized = AtSize(problem, options.workload.size);
  const Built built = Build(sized, candidate);
  evaluation.compile_s = built.compile_s;
  evaluation.log = built.log.substr(0, static_cast<size_t>(options_.limits.max_log_bytes));
  evaluation.launch_list = LaunchListToText(built.list);
  if (built.failure) {
    evaluation.outcome = *built.failure;
    return evaluation;
  }
  evaluation.kernels = Reports(built);
  evaluation.machine_key = MachineKeyOf(problem, built, options);
  if (options.known && !options.confirm) {
    if (const std::optional<Evaluation> known = options.known(evaluation.machine_key)) {
      evaluation.outcome = known->outcome;
      evaluation.cached_from = known->cached_from;
      evaluation.rules_version = known->rules_version;
      evaluation.shared_gpu = known->shared_gpu;
      evaluation.profile = known->profile;
      evaluation.peak_gb_per_s = known->peak_gb_per_s;
      evaluation.peak_gflop_per_s = known->peak_gflop_per_s;
      return evaluation;
    }
  }
  std::string start_plan;
  if (!options.start_source.empty()) {
    const Built start = Build(
        sized, {options.start_kind.empty() ? candidate.kind : options.start_kind, options.start_source});
    if (start.failure) {
      throw Error(ExitCode::kBadRequest,
                  "the kernel to start from does not compile:\n" + OutcomeReason(*start.failure),
                  "fix it first");
    }
    start_plan = LaunchPlanToText(start.plan);
  }
  const std::string plan = LaunchPlanToText(built.plan);
  json request = RequestOf("evaluate", problem, options.workload);
  request["plan"] = plan;
  request["start_plan"] = start_plan;
  PutJudgeOptions(options, false, &request);
  request["call_timeout_s"] = options_.limits.call_timeout_s;
  const json result = evaluator_.AskOrThrow(request, options.on_phase, options.stop, &evaluation.wait_s);
  TakeJudgeResult(result, options_.limits.max_log_bytes, &evaluation);
  if (evaluation.shared_gpu) SayShared(result.at("others"));
  if (options.screen) return evaluation;
  if (std::holds_alternative<Measured>(evaluation.outcome)) AddCeilings(options.stop, &evaluation);
  if (std::holds_alternative<Crashed>(evaluation.outcome)) NameCrashedLine(sized, plan, options, &evaluation);
  if (options.profile && !options.confirm && std::holds_alternative<Measured>(evaluation.outcome))
    ReadCounters(sized, plan, options, &evaluation);
  return evaluation;
}

// By the evaluator, between its evaluations.
Ceilings DeviceEnvironment::MeasureCeilings(const std::atomic<bool>* stop, double* wait_s) {
  const json result = evaluator_.AskOrThrow({{"command", "ceilings"}}, {}, stop, wait_s);
  Ceilings ceilings;
  ceilings.gb_per_s = result.at("gb_per_s");
  ceilings.gflop_per_s = result.at("gflop_per_s").get<std::map<std::string, double>>();
  return ceilings;
}

void DeviceEnvironment::DescribeCeilings() {
  double wait_s = 0;
  const Ceilings& known = options_.measure_ceilings && ceilings_->Known().gb_per_s == 0
                              ? ceilings_->Get([&] { return MeasureCeilings(nullptr, &wait_s); })
                              : ceilings_->Known();
  facts_.peak_gb_per_s = known.gb_per_s;
  facts_.peak_gflop_per_s = GflopCeiling(known, {}, true);
  facts_.unit_gflop_per_s = known.gflop_per_s;
}

void DeviceEnvironment::AddCeilings(const std::atomic<bool>* stop, Evaluation* evaluation) {
  const std::lock_guard one(ceilings_mutex_);
  const auto measure = [&] {
    Ceilings ceilings = MeasureCeilings(stop, &evaluation->wait_s);
    ceilings.is_quiet = !evaluation->shared_gpu;
    return ceilings;
  };
  ceilings_->Get(measure);
  ceilings_->See(std::get<Measured>(evaluation->outcome).gflop_per_s, UnitFor(evaluation->workload, true),
                 measure);
  const Ceilings& ceilings = ceilings_->Get(measure);
  evaluation->peak_gb_per_s = ceilings.gb_per_s;
  evaluation->peak_gflop_per_s = GflopCeiling(ceilings, evaluation->workload, true);
  evaluation->unit_gflop_per_s = ceilings.gflop_per_s;
}

std::optional<Diagnosis> DeviceEnvironment::Diagnose(const Problem& problem, const Candidate& candidate,
                                                     const EvaluateOptions& options) {
  if (IsPython(candidate.kind)) return std::nullopt;
  if (options.on_phase) options.on_phase("diagnose");
  const auto start = Clock::now();
  const Built built = Build(AtSize(problem, options.workload.size), candidate);  // from the cache
  if (built.failure) return std::nullopt;
  json request = RequestOf("diagnose", problem, options.workload);
  request["plan"] = LaunchPlanToText(built.plan);
  double wait_s = 0;
  const json result = evaluator_.AskOrThrow(request, {}, options.stop, &wait_s);
  Diagnosis diagnosis;
  for (const json& launch : result.at("launches")) diagnosis.launches.push_back({launch.at(0), launch.at(1)});
  diagnosis.seconds = SecondsSince(start);
  return diagnosis;
}

std::vector<DecoyResult> DeviceEnvironment::Admit(const Problem& problem, const EvaluateOptions& options) {
  double wait_s = 0;
  return DecoysFromJson(evaluator_.AskOrThrow(RequestOf("admit", problem, options.workload), options.on_phase,
                                              options.stop, &wait_s));
}

Preparation DeviceEnvironment::Prepare(const Problem& problem, const EvaluateOptions& options) {
  double wait_s = 0;
  const json result = evaluator_.AskOrThrow(RequestOf("prepare", problem, options.workload), options.on_phase,
                                            options.stop, &wait_s);
  return {result.at("session_s"),    result.at("draw_s"), result.at("reference_s"), result.at("truth_s"),
          result.at("reference_us"), result.at("slots"),  result.at("used_bytes"),  result.at("total_bytes")};
}

Examiner DeviceEnvironment::MakeExaminer(const std::string& inputs, double timeout_s) {
  ExaminerOptions examiner;
  examiner.program = RequireProgram(options_.program_directory, "kevin-gpu-examiner");
  examiner.work_directory = options_.cache_directory / "gpu-work";
  examiner.trusted_cubin = trusted_cubin_;
  examiner.device = gpu_.index;
  examiner.namespaces = namespaces_;
  examiner.inputs = inputs == "kernelbench" ? InputMode::kKernelBench : InputMode::kDefault;
  examiner.timeout_s = timeout_s;
  return Examiner(std::move(examiner));
}

// Once: a run may go on for hours beside another process.
void DeviceEnvironment::SayShared(const std::string& others) {
  if (said_shared_.exchange(true)) return;
  fmt::print(
      stderr,
      "kevin: another process computes on cuda:{}: {}. What it disturbs is measured again; evaluations "
      "during which it computed are marked `shared_gpu`. For times without doubt end it, or use another "
      "GPU with --device cuda:N.\n",
      gpu_.index, others);
}

// Where compute-sanitizer is installed and finds the same fault; the outcome does not depend on it.
void DeviceEnvironment::NameCrashedLine(const SizedProblem& sized, const std::string& plan,
                                        const EvaluateOptions& options, Evaluation* evaluation) {
  if (!namespaces_ || Examiner::FindTool("compute-sanitizer").empty()) return;
  try {
    const DeviceLock lock(lock_name_, LockMode::kExclusive, &evaluation->wait_s, options.stop);
    const CheckReport report =
        MakeExaminer(options.workload.inputs, kCrashCheck_s).Check("memcheck", sized, plan);
    if (report.finding.empty()) return;
    auto& crashed = std::get<Crashed>(evaluation->outcome);
    if (report.line > 0) crashed.message += fmt::format("; line {}", report.line);
    crashed.message += ": " + report.finding;
  } catch (const Error&) {
  }
}

void DeviceEnvironment::ReadCounters(const SizedProblem& sized, const std::string& plan,
                                     const EvaluateOptions& options, Evaluation* evaluation) {
  fs::path report = options.profile_report;
  const int number = ++reports_;
  if (!report.empty() && number > 1) {
    report.replace_filename(
        fmt::format("{}-{}{}", report.stem().string(), number, report.extension().string()));
  }
  const DeviceLock lock(lock_name_, LockMode::kExclusive, &evaluation->wait_s, options.stop);
  evaluation->profile = MakeExaminer(options.workload.inputs, kProfile_s).Profile(sized, plan, report);
}

Examination DeviceEnvironment::Examine(const Problem& problem, const Candidate& candidate,
                                       const ExamineOptions& options) {
  Examination examination;
  if (IsPython(candidate.kind)) {
    throw Error(ExitCode::kBadRequest, "kernels in Python cannot be examined by NVIDIA's tools here",
                "leave the option out, or use a .cu file");
  }
  const SizedProblem sized = AtSize(problem, options.size);
  const Built built = Build(sized, candidate, options.debug);
  if (built.failure) {
    examination.failure = fmt::format("{}: {}", OutcomeName(*built.failure), OutcomeReason(*built.failure));
    return examination;
  }
  const Examiner examiner = MakeExaminer(options.inputs, kProfile_s);
  if (options.sass) examination.sass = examiner.Disassemble(built.module.cubin);
  const std::string plan = LaunchPlanToText(built.plan);
  double wait_s = 0;
  const DeviceLock lock(lock_name_, LockMode::kExclusive, &wait_s);
  if (options.debug) examination.printed = examiner.Print(sized, plan);
  for (const std::string& check : options.checks)
    examination.checks.push_back(examiner.Check(check, sized, plan));
  return examination;
}

}  // namespace

std::unique_ptr<GpuEnvironment> MakeGpuEnvironment(const EnvironmentOptions& options, const GpuFound& gpu) {
  const GpuObstacle obstacle = ObstacleTo(gpu);
  if (!obstacle.reason.empty())
    throw Error(ExitCode::kMachine, obstacle.reason, obstacle.fix + ", or use --device cpu");
  return std::make_unique<DeviceEnvironment>(options, gpu);
}

}  // namespace kevin
