#include "env/gpu/judge/gpu_evaluator.h"

#include <chrono>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "env/error.h"
#include "env/gpu/judge/gpu_judge.h"
#include "env/process/machine.h"
#include "env/process/wire.h"

namespace kevin {
namespace {

using nlohmann::json;

constexpr int kRequests = 3;

int Attribute(int device, CuDeviceAttribute attribute) {
  int value = 0;
  KEVIN_CU(DeviceGetAttribute, &value, attribute, device);
  return value;
}

class GpuEvaluator {
 public:
  explicit GpuEvaluator(const GpuEvaluatorOptions& options) : socket_(kRequests), options_(options) {
    std::ifstream cubin(options.trusted_cubin, std::ios::binary);
    trusted_cubin_.assign(std::istreambuf_iterator<char>(cubin), {});
  }

  void Serve() {
    ServeRequests(
        &socket_, [this](const json& request) { return Answer(request); }, [this] { session_.reset(); });
  }

 private:
  json Answer(const json& request) {
    try {
      Prepare();
      if (request.at("command") == "device") return DeviceFacts();
      PrepareSession(request);
      if (request.at("command") == "prepare") return Preparation();
      if (request.at("command") == "admit") return DecoysToJson(AdmitOnGpu(*session_));
      return Judge(request);
    } catch (const DriverError& error) {
      throw Error(ExitCode::kMachine, "the GPU or its driver fails: " + error.text(),
                  "see `nvidia-smi`; use another GPU with --device cuda:N, or --device cpu");
    }
  }

  void Prepare() {
    if (prepared_) return;
    LoadDriver();
    LoadTorchCuda(options_.device);
    CuHandle context = nullptr;
    KEVIN_CU(DevicePrimaryCtxRetain, &context, options_.device);
    KEVIN_CU(CtxSetCurrent, context);
    char bus[32] = {};
    KEVIN_CU(DeviceGetPCIBusId, bus, sizeof(bus), options_.device);
    others_ = std::make_unique<OtherProcesses>(bus);
    prepared_ = true;
  }

  json DeviceFacts() const {
    char name[256] = {};
    KEVIN_CU(DeviceGetName, name, sizeof(name), options_.device);
    size_t free_bytes = 0, total_bytes = 0;
    KEVIN_CU(MemGetInfo, &free_bytes, &total_bytes);
    int driver = 0;
    KEVIN_CU(DriverGetVersion, &driver);
    const auto attribute = [&](CuDeviceAttribute a) { return Attribute(options_.device, a); };
    return {{"name", name},
            {"major", attribute(kCuMajor)},
            {"minor", attribute(kCuMinor)},
            {"multiprocessors", attribute(kCuMultiprocessors)},
            {"memory_bytes", total_bytes},
            {"l2_bytes", attribute(kCuL2Bytes)},
            {"threads", attribute(kCuThreadsPerMultiprocessor)},
            {"registers", attribute(kCuRegistersPerMultiprocessor)},
            {"shared_bytes", attribute(kCuSharedBytesPerMultiprocessor)},
            {"reserved_shared_bytes", attribute(kCuReservedSharedBytesPerBlock)},
            {"blocks", attribute(kCuBlocksPerMultiprocessor)},
            {"clock_mhz", attribute(kCuClockKhz) / 1000},
            {"driver", driver},
            {"torch", TorchVersion()}};
  }

  json Preparation() {
    const GpuPreparation preparation = PrepareOnGpu(*session_);
    return {{"session_s", session_s_},
            {"draw_s", preparation.draw_s},
            {"reference_s", preparation.reference_s},
            {"truth_s", preparation.truth_s},
            {"reference_us", session_->reference_us()},
            {"slots", preparation.slots},
            {"used_bytes", preparation.used_bytes},
            {"total_bytes", preparation.total_bytes}};
  }

  json Judge(const json& request) {
    GpuJudgeRequest judge;
    judge.plan = LaunchPlanFromText(request.at("plan"));
    const std::string start = request.at("start_plan");
    if (!start.empty()) judge.start_plan = LaunchPlanFromText(start);
    judge.confirm = request.at("confirm");
    judge.patience = request.at("patience");
    judge.verify_only = request.at("verify_only");
    judge.call_timeout_s = request.at("call_timeout_s");
    judge.on_phase = [this](const std::string& phase) { socket_.Write(json{{"phase", phase}}.dump()); };
    return JudgeResultToJson(JudgeOnGpu(*session_, judge));
  }

  // Only the latest problem's session is kept: its slots may fill the GPU.
  void PrepareSession(const json& request) {
    const std::string key =
        request.at("problem_text").get<std::string>() + "\n" + request.at("workload").dump();
    if (session_ && key == session_key_) return;
    session_.reset();
    GpuSessionOptions options;
    const Workload workload = WorkloadFromJson(request.at("workload"));
    options.problem = workload.Apply(
        ParseProblem(request.at("problem_text"), request.at("problem_path").get<std::string>()));
    options.size = workload.size;
    options.inputs = workload.inputs == "kernelbench" ? InputMode::kKernelBench : InputMode::kDefault;
    options.device = options_.device;
    options.tf32 = workload.tf32;
    options.namespaces = options_.namespaces;
    options.runner_path = options_.runner;
    options.trusted_cubin = trusted_cubin_;
    options.others = others_.get();
    const auto start = std::chrono::steady_clock::now();
    session_ = std::make_unique<GpuSession>(std::move(options));
    session_s_ = SecondsSince(start);
    session_key_ = key;
  }

  LineSocket socket_;
  GpuEvaluatorOptions options_;
  std::string trusted_cubin_;
  bool prepared_ = false;
  std::unique_ptr<OtherProcesses> others_;
  std::unique_ptr<GpuSession> session_;
  std::string session_key_;
  double session_s_ = 0;  // that its making took
};

}  // namespace

}  // namespace kevin

int KevinServeGpu(const kevin::GpuEvaluatorOptions* options) {
  kevin::GpuEvaluator(*options).Serve();
  return 0;
}
