#include "env/gpu/gpu_environment.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>

#include "env/ceilings.h"
#include "env/error.h"
#include "env/gpu/compile/compile_cache.h"
#include "env/gpu/find_gpus.h"
#include "env/gpu/gpu_build.h"
#include "env/gpu/gpu_examination.h"
#include "env/gpu/gpu_python.h"
#include "env/gpu/judge/gpu_ceilings.h"
#include "env/gpu/judge/gpu_evaluator.h"
#include "env/gpu/machine_key.h"
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

constexpr int kGpuEnvironmentVersion = 8;  // bump when verdicts or times may change

class DeviceEnvironment final : public GpuEnvironment {
 public:
  DeviceEnvironment(const EnvironmentOptions& options, const GpuFound& gpu);
  ~DeviceEnvironment() override { is_ending_ = true; }

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
  void Expect(const Problem& problem, const std::string& kind, const Workload& workload) override {
    if (!IsPython(kind) && !problem.shape_sets.contains(workload.size)) PrepareEarly(problem, workload);
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
  std::string MachineKeyOf(const Problem& problem, const GpuBuild& built, const EvaluateOptions& options);
  void SayShared(const std::string& others);
  void PrepareEarly(const Problem& problem, const Workload& workload);
  std::unique_ptr<EvaluatorClient> StartEvaluator();
  void DescribeDevice(const json& device);
  Ceilings MeasureCeilings(const std::atomic<bool>* stop, double* wait_s);
  void DescribeCeilings();

  const EnvironmentOptions options_;
  GpuFound gpu_;
  bool namespaces_ = NamespacesAvailable();
  GpuBuilder builder_;
  FolderHashes include_hashes_;
  MultiprocessorLimits limits_;
  EnvironmentFacts facts_;
  std::string driver_, torch_;
  std::string trusted_cubin_;  // path
  std::atomic<bool> said_shared_ = false;
  GraphSource graphs_{options_.program_directory, options_.cache_directory};
  std::mutex ceilings_mutex_;
  std::optional<CeilingStore> ceilings_;  // once the device is known
  SharedEvaluator evaluator_{[this] { return StartEvaluator(); }};
  std::atomic<bool> is_ending_ = false;
  std::mutex preparing_mutex_;
  std::future<void> preparing_;  // a session; ends before evaluator_
  const std::function<std::string()> trusted_path_ = [this] {
    return trusted_cubin_.empty() ? builder_.TrustedCubin() : trusted_cubin_;
  };
  GpuPython python_{
      {options_, gpu_.index, namespaces_, builder_.architecture(), builder_.compiler(), trusted_path_}};
  GpuExaminations examinations_{
      {options_, gpu_.index, DeviceLock::NameOfGpu(gpu_.pci_bus), namespaces_, trusted_path_}};
};

DeviceEnvironment::DeviceEnvironment(const EnvironmentOptions& options, const GpuFound& gpu)
    : options_(options), gpu_(gpu), builder_(options, gpu) {
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

std::unique_ptr<EvaluatorClient> DeviceEnvironment::StartEvaluator() {
  const fs::path evaluator = RequireProgram(options_.program_directory, "kevin-evaluator");
  const fs::path runner = RequireProgram(options_.program_directory, "kevin-gpu-runner");
  RequireProgram(options_.program_directory, kGpuJudgePlugin);
  trusted_cubin_ = builder_.TrustedCubin();
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
  limits_ = {device.at("threads"),
             device.at("registers"),
             device.at("blocks"),
             device.at("shared_bytes"),
             device.at("reserved_shared_bytes"),
             device.at("multiprocessors")};
  const std::string name = device.at("name");
  driver_ = std::to_string(device.at("driver").get<int>());
  torch_ = device.at("torch");
  facts_.device = fmt::format("cuda:{}: {}", gpu_.index, name);
  ceilings_.emplace(
      options_.cache_directory / "ceilings",
      fmt::format("gpu {}\n{} {}, {} multiprocessors, {} MHz\ndriver {}, torch {}", kGpuCeilingsVersion, name,
                  builder_.architecture(), device.at("multiprocessors").get<int>(),
                  device.at("clock_mhz").get<int>(), driver_, torch_));
  facts_.compiler = builder_.compiler();
  facts_.compiler_flags = "for " + builder_.architecture();
  facts_.gpu = {gpu_.capability_major * 10 + gpu_.capability_minor, device.at("multiprocessors").get<int>(),
                device.at("block_shared_bytes").get<int64_t>()};
  facts_.machine = fmt::format(
      "{} ({}), {} multiprocessors, {:.0f} GB of memory, {} MB L2, {} KiB of shared memory and {} registers "
      "a multiprocessor, at most {} bytes of shared memory a block",
      name, builder_.architecture(), device.at("multiprocessors").get<int>(),
      device.at("memory_bytes").get<double>() * 1e-9, device.at("l2_bytes").get<int64_t>() >> 20,
      limits_.shared_bytes >> 10, limits_.registers, facts_.gpu.block_shared_bytes);
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
      {"toolchain_version", builder_.compiler() + " " + builder_.architecture()},
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

std::string DeviceEnvironment::MachineKeyOf(const Problem& problem, const GpuBuild& built,
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
  const GpuBuild built = builder_.Build(AtSize(problem, options.workload.size), candidate);
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
  PrepareEarly(problem, options.workload);
  if (options.on_phase) options.on_phase("compile");
  const SizedProblem sized = AtSize(problem, options.workload.size);
  const GpuBuild built = builder_.Build(sized, candidate);
  evaluation.compile_s = built.compile_s;
  evaluation.log = built.log.substr(0, static_cast<size_t>(options_.limits.max_log_bytes));
  evaluation.launch_list = LaunchListToText(built.list);
  if (built.failure) {
    evaluation.outcome = *built.failure;
    return evaluation;
  }
  evaluation.kernels = GpuBuilder::Reports(built, limits_);
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
    const GpuBuild start = builder_.Build(
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
  if (const std::string others = result.at("others"); !others.empty()) SayShared(others);
  if (options.screen) return evaluation;
  if (std::holds_alternative<Measured>(evaluation.outcome)) AddCeilings(options.stop, &evaluation);
  if (std::holds_alternative<Crashed>(evaluation.outcome))
    examinations_.NameCrashedLine(sized, builder_.Build(sized, candidate, BuildPurpose::kExamine), options,
                                  &evaluation);
  if (options.profile && !options.confirm && std::holds_alternative<Measured>(evaluation.outcome))
    examinations_.ReadCounters(sized, plan, options, &evaluation);
  return evaluation;
}

// Beside a compilation. One at a time: what waits longer gains nothing.
void DeviceEnvironment::PrepareEarly(const Problem& problem, const Workload& workload) {
  const std::lock_guard one(preparing_mutex_);
  if (preparing_.valid() && preparing_.wait_for(std::chrono::seconds(0)) != std::future_status::ready) return;
  preparing_ = std::async(std::launch::async, [this, request = RequestOf("get-ready", problem, workload)] {
    evaluator_.GetReady(request, &is_ending_);
  });
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
  if (IsPython(candidate.kind)) return python_.Diagnose(problem, candidate, options);
  if (options.on_phase) options.on_phase("diagnose");
  const auto start = Clock::now();
  const GpuBuild built = builder_.Build(AtSize(problem, options.workload.size), candidate);  // from the cache
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

// Once: a run may go on for hours beside another process.
void DeviceEnvironment::SayShared(const std::string& others) {
  if (said_shared_.exchange(true)) return;
  fmt::print(
      stderr,
      "kevin: another process computes on cuda:{}: {}. What it disturbs is measured again; where it never "
      "ends, the evaluation is marked `shared_gpu`, and train and report leave it out. For times without "
      "doubt end it, or use another GPU with --device cuda:N.\n",
      gpu_.index, others);
}

Examination DeviceEnvironment::Examine(const Problem& problem, const Candidate& candidate,
                                       const ExamineOptions& options) {
  if (IsPython(candidate.kind)) {
    throw Error(ExitCode::kBadRequest, "kernels in Python cannot be examined by NVIDIA's tools here",
                "leave the option out, or use a .cu file");
  }
  const SizedProblem sized = AtSize(problem, options.size);
  const BuildPurpose purpose = options.debug ? BuildPurpose::kDebug : BuildPurpose::kExamine;
  return examinations_.Examine(sized, builder_.Build(sized, candidate, purpose), options);
}

}  // namespace

std::unique_ptr<GpuEnvironment> MakeGpuEnvironment(const EnvironmentOptions& options, const GpuFound& gpu) {
  const GpuObstacle obstacle = ObstacleTo(gpu);
  if (!obstacle.reason.empty())
    throw Error(ExitCode::kMachine, obstacle.reason, obstacle.fix + ", or use --device cpu");
  return std::make_unique<DeviceEnvironment>(options, gpu);
}

}  // namespace kevin
