#include "env/gpu/judge/gpu_evaluator.h"

#include <exception>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "env/error.h"
#include "env/gpu/judge/gpu_requests.h"
#include "env/process/machine.h"
#include "env/process/wire.h"

namespace kevin {
namespace {

using nlohmann::json;

constexpr int kRequests = 3;

class GpuEvaluator {
 public:
  explicit GpuEvaluator(const GpuEvaluatorOptions& options) : socket_(kRequests) {
    serving_.options = options;
    std::ifstream cubin(options.trusted_cubin, std::ios::binary);
    serving_.trusted_cubin.assign(std::istreambuf_iterator<char>(cubin), {});
    serving_.on_phase = [this](const std::string& phase) { socket_.Write(json{{"phase", phase}}.dump()); };
  }

  // The driver opens sockets and files that the sandbox refuses. A failure becomes the answer to every request.
  void OpenDevice() {
    Attempt([this] { Prepare(); });
  }

  // In the sandbox.
  void Serve() {
    Attempt([this] {
      requests_ =
          serving_.options.python_setup.empty() ? MakeCudaRequests(serving_) : MakePythonRequests(serving_);
    });
    ServeRequests(
        &socket_,
        {.answer = [this](const json& request) { return Answer(request); },
         .after_error = [this] { DropSessions(); },
         .resident = [this] { return requests_ ? requests_->Sessions() : std::vector<std::string>(); },
         .when_idle =
             [this] {
               if (requests_) requests_->PrepareWhileIdle();
             }});
  }

 private:
  template <typename Work>
  void Attempt(const Work& work) {
    if (failure_) return;
    try {
      work();
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  void Prepare() {
    const int device = serving_.options.device;
    LoadDriver();
    LoadTorchCuda(device);
    UsePrimaryContext(device);
    others_ = std::make_unique<OtherProcesses>(PciBusOf(device));
    serving_.others = others_.get();
  }

  json Answer(const json& request) {
    try {
      if (failure_) std::rethrow_exception(failure_);
      if (request.at("command") == "device") return DeviceFacts();
      if (request.at("command") == "release") return ReleaseMemory();
      return requests_->Answer(request);
    } catch (const DriverError& error) {
      throw Error(ExitCode::kMachine, "the GPU or its driver fails: " + error.text(),
                  "see `nvidia-smi`; use another GPU with --device cuda:N, or --device cpu");
    }
  }

  json DeviceFacts() const {
    char name[256] = {};
    KEVIN_CU(DeviceGetName, name, sizeof(name), serving_.options.device);
    int driver = 0;
    KEVIN_CU(DriverGetVersion, &driver);
    const auto attribute = [&](CuDeviceAttribute a) { return AttributeOf(serving_.options.device, a); };
    return {{"name", name},
            {"major", attribute(kCuMajor)},
            {"minor", attribute(kCuMinor)},
            {"multiprocessors", attribute(kCuMultiprocessors)},
            {"memory_bytes", MemoryOfDevice().total},
            {"l2_bytes", attribute(kCuL2Bytes)},
            {"threads", attribute(kCuThreadsPerMultiprocessor)},
            {"registers", attribute(kCuRegistersPerMultiprocessor)},
            {"shared_bytes", attribute(kCuSharedBytesPerMultiprocessor)},
            {"block_shared_bytes", attribute(kCuSharedBytesPerBlockOptin)},
            {"reserved_shared_bytes", attribute(kCuReservedSharedBytesPerBlock)},
            {"blocks", attribute(kCuBlocksPerMultiprocessor)},
            {"clock_mhz", attribute(kCuClockKhz) / 1000},
            {"driver", driver},
            {"torch", TorchVersion()}};
  }

  json ReleaseMemory() {
    DropSessions();
    ReleaseTorchCache();
    return json::object();
  }

  void DropSessions() {
    if (requests_) requests_->DropSessions();
  }

  LineSocket socket_;
  std::unique_ptr<OtherProcesses> others_;
  GpuServing serving_;
  std::unique_ptr<GpuRequests> requests_;
  std::exception_ptr failure_;  // to open the device, or to start Python; null: none
};

}  // namespace

std::string GpuServing::LockName() const { return DeviceLock::NameOfGpu(PciBusOf(options.device)); }

int64_t GpuServing::FreeBytes() const {
  return static_cast<int64_t>(MemoryOfDevice().free) + TorchCacheBytes(options.device);
}

GpuSessionOptions GpuServing::SessionOptionsOf(const json& request) const {
  GpuSessionOptions made;
  const Workload workload = WorkloadFromJson(request.at("workload"));
  made.problem =
      workload.Apply(ParseProblem(request.at("problem_text"), request.at("problem_path").get<std::string>()));
  made.size = workload.size;
  made.inputs = workload.inputs == "kernelbench" ? InputMode::kKernelBench : InputMode::kDefault;
  made.device = options.device;
  made.tf32 = workload.tf32;
  made.namespaces = options.namespaces;
  made.runner_path = options.runner;
  made.trusted_cubin = trusted_cubin;
  made.spares = spares;
  made.others = others;
  return made;
}

}  // namespace kevin

int KevinServeGpu(const kevin::GpuEvaluatorOptions* options) {
  kevin::GpuEvaluator evaluator(*options);
  evaluator.OpenDevice();
  if (options->enter_sandbox) options->enter_sandbox();
  evaluator.Serve();
  return 0;
}
