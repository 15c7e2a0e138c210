// kevin-gpu-runner: the process in which device code of candidates runs. The evaluator starts it in
// namespaces of its own; it makes a context, sandboxes itself, and answers the requests of runner_link.h
// until its socket closes or it is killed. Its host code is all ours; after a candidate has run, the content
// of its device memory is not.
//
//   kevin-gpu-runner DEVICE namespaces|plain     with its socket on descriptor 3

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdio>
#include <functional>
#include <memory>
#include <string>

#include "env/error.h"
#include "env/gpu/runner/candidate_module.h"
#include "env/gpu/runner/runner_link.h"
#include "env/gpu/runner/stopwatch.h"
#include "env/sandbox/sandbox.h"

namespace kevin {
namespace {

using nlohmann::json;

constexpr size_t kGatedOperations = 400;  // more could fill the stream's queue behind the closed gate
constexpr unsigned kNonBlockingStream = 1;
constexpr unsigned kSpin = 1;

class Runner {
 public:
  explicit Runner(int device) : device_(device) {
    LoadDriver();
    KEVIN_CU(DevicePrimaryCtxSetFlags, device, kSpin);
    UsePrimaryContext(device);
    KEVIN_CU(StreamCreate, &stream_, kNonBlockingStream);
  }

  json Answer(const json& request, std::vector<Fd>* descriptors) {
    try {
      if (request.contains("open")) return Open(request["open"], *descriptors);
      if (request.contains("load")) return Load(request);
      if (request.contains("run")) return Run(request);
      if (request.contains("operations")) return Operations(request);
      if (request.contains("probe")) return Probe(request);
      if (request.contains("canary")) return Canary(request["canary"]);
      candidate_.reset();  // "unload", "close"
      if (request.contains("close")) Close();
      return {{"ok", true}};
    } catch (const DriverError& error) {
      return {{"fault", error.text()}, {"fatal", error.fatal()}, {"out_of_memory", error.out_of_memory()}};
    } catch (const json::exception& error) {
      return {{"fault", std::string("a malformed request: ") + error.what()}, {"fatal", true}};
    }
  }

 private:
  void Close() {
    inputs_ = SharedDeviceMemory();
    outputs_ = SharedDeviceMemory();
    memory_ = SlotMemory();
  }

  // Again for another session.
  json Open(const json& request, const std::vector<Fd>& descriptors) {
    std::string trusted(request.at("trusted_bytes").get<size_t>(), '\0');  // behind the frame
    if (!AwaitBytes(kRunnerSocket, -1, trusted.data(), trusted.size())) _exit(0);
    candidate_.reset();
    Close();
    inputs_ = SharedDeviceMemory::Import(device_, descriptors.at(0).get(), request.at("inputs_bytes"),
                                         Access::kReadOnly);
    outputs_ = SharedDeviceMemory::Import(device_, descriptors.at(1).get(), request.at("outputs_bytes"),
                                          Access::kReadWrite);
    memory_.inputs = inputs_.data();
    memory_.outputs = outputs_.data();
    memory_.slots = request.at("slots");
    for (const json& place : request.at("tensors"))
      memory_.places.push_back({place.at(0), false, place.at(1), place.at(2)});
    if (trusted_ == nullptr) LoadTrusted(trusted);
    return {{"ok", true}};
  }

  void LoadTrusted(const std::string& cubin) {
    KEVIN_CU(ModuleLoadData, &trusted_, cubin.data());
    stopwatch_ = std::make_unique<Stopwatch>(StopwatchOptions{device_, stream_, Trusted("kevin_scrub")});
    call_kernels_ = CallKernelsOf(trusted_);
    copy_ = Trusted("kevin_copy");
    canary_ = Trusted("kevin_canary");
  }

  CuHandle Trusted(const char* name) const {
    CuHandle function = nullptr;
    KEVIN_CU(ModuleGetFunction, &function, trusted_, name);
    return function;
  }

  json Load(const json& request) {
    candidate_.reset();
    candidate_ = std::make_unique<CandidateModule>(LaunchPlanFromText(request.at("load")), memory_,
                                                   call_kernels_, stream_);
    KEVIN_CU(StreamSynchronize, stream_);
    return {{"ok", true}};
  }

  json Run(const json& request) {
    const int slot = request.at("run");
    const bool called = request.at("called");
    const uint64_t seed = request.at("seed");
    candidate_->Restore(seed, request.at("keeps_globals"));
    return Timed([&] { called ? candidate_->Enqueue(slot) : candidate_->EnqueueEmpty(); },
                 candidate_->operations() <= kGatedOperations, seed);
  }

  // As a timed call, with an event after each operation.
  json Operations(const json& request) {
    const int slot = request.at("operations");
    const uint64_t seed = request.at("seed");
    const size_t operations = candidate_->operations();
    while (events_.size() <= operations) KEVIN_CU(EventCreate, &events_.emplace_back(), 0);
    candidate_->Restore(seed);
    const auto enqueue = [&] {
      KEVIN_CU(EventRecord, events_[0], stream_);
      candidate_->Enqueue(
          slot, [this](size_t operation) { KEVIN_CU(EventRecord, events_[operation + 1], stream_); });
    };
    stopwatch_->TimeUs(enqueue, {operations <= kGatedOperations / 2, seed, {}});
    json times = json::array();
    for (size_t i = 1; i <= operations; ++i) {
      float milliseconds = 0;
      KEVIN_CU(EventElapsedTime, &milliseconds, events_[i - 1], events_[i]);
      times.push_back(1e3 * static_cast<double>(milliseconds));
    }
    return {{"us", times}};
  }

  // The same copy that the evaluator makes: the difference is what this context adds to a time.
  json Probe(const json& request) {
    const json& probe = request.at("probe");
    CuDevicePtr out = memory_.outputs + probe.at(0).get<uint64_t>(),
                in = memory_.inputs + probe.at(1).get<uint64_t>();
    long long vectors = probe.at(2);
    void* arguments[] = {&out, &in, &vectors};
    CuLaunchConfig config;
    config.grid_x = probe.at(3);
    config.block_x = 256;
    config.stream = stream_;
    return Timed([&] { KEVIN_CU(LaunchKernelEx, &config, copy_, arguments, nullptr); }, true,
                 request.at("seed"));
  }

  // Answers "ready", waits for the start, and says at once when the device is done.
  json Timed(const std::function<void()>& enqueue, bool gated, uint64_t seed) {
    bool started = false;
    uint32_t number = 0;
    const auto at_gate = [&] {
      if (!SendFrame(kRunnerSocket, {{"ready", true}}) ||
          !AwaitBytes(kRunnerSocket, -1, &number, sizeof(number)))
        _exit(0);
      started = true;
    };
    json answer;
    try {
      answer = {{"us", stopwatch_->TimeUs(enqueue, {gated, seed, at_gate})}};
      stopwatch_->AwaitNumber(number);
    } catch (const DriverError& error) {
      if (!started) throw;
      answer = {{"fault", error.text()}, {"fatal", error.fatal()}};
    }
    const char done = 1;
    if (!SendBytes(kRunnerSocket, &done, 1)) _exit(0);
    return answer;
  }

  json Canary(const json& request) {
    CuDevicePtr out = memory_.outputs + request.at(0).get<uint64_t>();
    int words = request.at(1);
    unsigned seed = request.at(2);
    void* arguments[] = {&out, &words, &seed};
    CuLaunchConfig config;
    config.grid_x = 64;
    config.block_x = 256;
    config.stream = stream_;
    KEVIN_CU(LaunchKernelEx, &config, canary_, arguments, nullptr);
    KEVIN_CU(StreamSynchronize, stream_);
    return {{"ok", true}};
  }

  int device_;
  CuHandle stream_ = nullptr, trusted_ = nullptr, copy_ = nullptr, canary_ = nullptr;
  CallKernels call_kernels_;
  SharedDeviceMemory inputs_, outputs_;
  SlotMemory memory_;
  std::unique_ptr<Stopwatch> stopwatch_;
  std::unique_ptr<CandidateModule> candidate_;
  std::vector<CuHandle> events_;  // kept: between the operations of a call
};

int Serve(int device, bool namespaces) {
  constexpr int64_t kCpuLimit_s = 24 * 3600;
  std::unique_ptr<Runner> runner;
  std::string failure;
  SandboxOptions sandbox;
  sandbox.profile = SandboxProfile::kGpuRunner;
  sandbox.namespaces = namespaces;
  sandbox.cpu_limit_s = kCpuLimit_s;
  sandbox.max_file_bytes = 0;
  sandbox.before_lock = [&] {
    try {
      runner = std::make_unique<Runner>(device);
    } catch (const Error& error) {
      failure = error.what();
    } catch (const DriverError& error) {
      failure = error.text();
    }
  };
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  EnterSandbox(sandbox);
  if (!SendFrame(kRunnerSocket, runner ? json{{"ok", true}} : json{{"fault", failure}, {"fatal", true}}))
    return 1;
  while (runner) {
    std::vector<Fd> descriptors;
    const auto request = ReceiveFrame(kRunnerSocket, -1, &descriptors);
    if (!request || !SendFrame(kRunnerSocket, runner->Answer(*request, &descriptors))) break;
  }
  _exit(0);  // the driver's own clean-up can hang after a fault
}

}  // namespace
}  // namespace kevin

int main(int argc, char** argv) {
  if (argc != 3) {
    std::fprintf(stderr, "kevin-gpu-runner is started by kevin; it has no use of its own\n");
    return 2;
  }
  return kevin::Serve(std::stoi(argv[1]), std::string(argv[2]) == "namespaces");
}
