#include "env/gpu/judge/gpu_evaluator.h"

#include <fcntl.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <fstream>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "env/diagnosis/diagnosis_run.h"
#include "env/error.h"
#include "env/gpu/judge/gpu_ceilings.h"
#include "env/gpu/judge/gpu_judge.h"
#include "env/gpu/judge/python_judge.h"
#include "env/gpu/judge/time_launches.h"
#include "env/gpu/judge/time_stages.h"
#include "env/process/machine.h"
#include "env/process/resident_sessions.h"
#include "env/process/wire.h"

namespace kevin {
namespace {

using nlohmann::json;

constexpr int kRequests = 3;
constexpr size_t kSessions = 24;
constexpr size_t kPythonSessions = 2;  // each has a reference worker with a pool and a context

int Attribute(int device, CuDeviceAttribute attribute) {
  int value = 0;
  KEVIN_CU(DeviceGetAttribute, &value, attribute, device);
  return value;
}

template <typename Work>
json NamingOutOfMemory(const Work& work) {
  try {
    return work();
  } catch (const DriverError& error) {
    if (!error.out_of_memory()) throw;
    throw OutOfMemory(error.text());
  }
}

class GpuEvaluator {
 public:
  explicit GpuEvaluator(const GpuEvaluatorOptions& options) : socket_(kRequests), options_(options) {
    std::ifstream cubin(options.trusted_cubin, std::ios::binary);
    trusted_cubin_.assign(std::istreambuf_iterator<char>(cubin), {});
  }

  // The driver opens sockets and files that the sandbox refuses. A failure becomes the answer to every request.
  void OpenDevice() {
    try {
      Prepare();
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  void Serve() {
    if (IsForPython()) StartPython();
    ServeRequests(&socket_,
                  {.answer = [this](const json& request) { return Answer(request); },
                   .after_error = [this] { DropSessions(); },
                   .resident = [this] { return IsForPython() ? python_sessions_.Keys() : sessions_.Keys(); },
                   .when_idle = [this] { WarmUpWorkers(); }});
  }

 private:
  json Answer(const json& request) {
    try {
      if (failure_) std::rethrow_exception(failure_);
      if (request.at("command") == "device") return DeviceFacts();
      if (request.at("command") == "release") return ReleaseMemory();
      if (IsForPython()) return JudgePythonWithRoom(request);
      if (request.at("command") == "evaluate") return WithRoom([&] { return JudgeOrStartAgain(request); });
      if (request.at("command") == "get-ready") return WithRoom([&] { return GetReady(request); });
      if (request.at("command") == "diagnose") return Diagnose(request);
      sessions_.Clear();  // the others measure what a new session takes, and use all of the memory
      if (request.at("command") == "ceilings") return CeilingFacts();
      GpuSession& session = PrepareSession(request);
      if (request.at("command") == "prepare") return Preparation(session);
      return DecoysToJson(AdmitOnGpu(session));
    } catch (const DriverError& error) {
      throw Error(ExitCode::kMachine, "the GPU or its driver fails: " + error.text(),
                  "see `nvidia-smi`; use another GPU with --device cuda:N, or --device cpu");
    }
  }

  void Prepare() {
    LoadDriver();
    LoadTorchCuda(options_.device);
    CuHandle context = nullptr;
    KEVIN_CU(DevicePrimaryCtxRetain, &context, options_.device);
    KEVIN_CU(CtxSetCurrent, context);
    char bus[32] = {};
    KEVIN_CU(DeviceGetPCIBusId, bus, sizeof(bus), options_.device);
    others_ = std::make_unique<OtherProcesses>(bus);
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
            {"block_shared_bytes", attribute(kCuSharedBytesPerBlockOptin)},
            {"reserved_shared_bytes", attribute(kCuReservedSharedBytesPerBlock)},
            {"blocks", attribute(kCuBlocksPerMultiprocessor)},
            {"clock_mhz", attribute(kCuClockKhz) / 1000},
            {"driver", driver},
            {"torch", TorchVersion()}};
  }

  json CeilingFacts() const {
    const DeviceLock lock(LockName(), LockMode::kExclusive, nullptr);
    ReleaseTorchCache();
    const Ceilings ceilings = MeasureGpuCeilings(options_.device, trusted_cubin_);
    ReleaseTorchCache();
    return {{"gb_per_s", ceilings.gb_per_s}, {"gflop_per_s", ceilings.gflop_per_s}};
  }

  json Diagnose(const json& request) {
    GpuSession& session = PrepareSession(request);
    json times = json::array();
    for (const LaunchTime& launch : TimeLaunches(session, LaunchPlanFromText(request.at("plan"))))
      times.push_back({launch.index, launch.us});
    return {{"launches", times}};
  }

  json Preparation(GpuSession& session) const {
    const GpuPreparation preparation = PrepareOnGpu(session);
    return {{"session_s", session_s_},
            {"draw_s", preparation.draw_s},
            {"reference_s", preparation.reference_s},
            {"truth_s", preparation.truth_s},
            {"reference_us", session.reference_us()},
            {"slots", preparation.slots},
            {"used_bytes", preparation.used_bytes},
            {"total_bytes", preparation.total_bytes}};
  }

  // How much memory a reference needs is estimated: where it was too little, the evaluation has the GPU to itself.
  template <typename Work>
  json WithRoom(const Work& work) {
    const auto attempt = [&] { return NamingOutOfMemory(work); };
    has_made_room_ = false;
    const auto release = [this] {
      has_made_room_ = true;
      spares_->idle.clear();  // each has a context
      spares_->clients.clear();
      ReleaseTorchCache();
    };
    return AttemptWithRoom(sessions_, attempt, release);
  }

  // Eager at its best has the memory that it wants. Where it found the device full, this problem has the device to itself from then
  // on, and what was measured is measured again; where cuDNN has chosen an algorithm for that reason, a new process chooses
  // anew, since it keeps to it.
  json JudgeOrStartAgain(const json& request) {
    GpuSession& session = PrepareSession(request);
    bool is_alone = sessions_.size() == 1;
    const auto make_room = [&] {
      LeaveAlone(request.at("session"));
      is_alone = true;
    };
    const TorchShortages prepared = session.TakeShortages();
    if (prepared.failures > 0 && !is_alone) return StartAgainAnswer();
    if (prepared.waits > 0 && !is_alone) make_room();
    JudgeResult result = Judge(session, request);
    const auto is_measured = [&result] { return std::holds_alternative<Measured>(result.outcome); };
    TorchShortages judged = session.TakeShortages();
    if (judged.failures > 0 && !is_alone) return StartAgainAnswer();
    if (judged.waits > 0 && !is_alone) {
      make_room();
      if (is_measured()) {
        result = Judge(session, request);
        judged = session.TakeShortages();
      }
    }
    if (judged.waits + judged.failures > 0 && is_measured() &&
        !LaunchPlanFromText(request.at("plan")).workspaces.empty())
      result.outcome =
          Refused{"its workspaces leave the reference too little of the GPU's memory to be timed beside it"};
    return JudgeResultToJson(result);
  }

  // The session of an evaluation that is about to come.
  json GetReady(const json& request) {
    GpuSession& session = PrepareSession(request);
    const TorchShortages prepared = session.TakeShortages();
    if (prepared.failures > 0 && sessions_.size() > 1) return StartAgainAnswer();
    if (prepared.waits > 0 && sessions_.size() > 1) LeaveAlone(request.at("session"));
    SeeReferenceBytes(request.at("session"));
    return json::object();
  }

  void LeaveAlone(const std::string& session) {
    crowded_.insert(session);
    DropOtherSessions();
  }

  void SeeReferenceBytes(const std::string& session) {
    int64_t& seen = reference_bytes_[session];
    seen = std::max(seen, TakeTorchBytes(options_.device).most - torch_bytes_);
  }

  void DropOtherSessions() {
    while (sessions_.DropOldestOther()) {
    }
    ReleaseTorchCache();
  }

  JudgeResult Judge(GpuSession& session, const json& request) {
    GpuJudgeRequest judge;
    judge.plan = LaunchPlanFromText(request.at("plan"));
    const std::string start = request.at("start_plan");
    if (!start.empty()) judge.start_plan = LaunchPlanFromText(start);
    static_cast<JudgeOptions&>(judge) = JudgeOptionsOf(request);
    judge.call_timeout_s = request.at("call_timeout_s");
    judge.is_alone = has_made_room_;
    judge.on_phase = [this](const std::string& phase) { socket_.Write(json{{"phase", phase}}.dump()); };
    JudgeResult result = JudgeOnGpu(session, judge);
    SeeReferenceBytes(request.at("session"));
    return result;
  }

  bool IsForPython() const { return !options_.python_setup.empty(); }

  void DropSessions() {
    sessions_.Clear();
    spares_->idle.clear();
    python_sessions_.Clear();
    if (gpu_workers_) gpu_workers_->DropSpares();
  }

  // In the sandbox.
  void StartPython() {
    if (failure_) return;
    try {
      const int capability = Attribute(options_.device, kCuMajor) * 10 + Attribute(options_.device, kCuMinor);
      python_workers_ =
          std::make_unique<PythonWorkers>(PythonSetupFromJson(json::parse(options_.python_setup)), 1,
                                          options_.namespaces, GpuOfWorkers{capability});
      spares_for_python_ = SparesFor(UsableCpus(), static_cast<size_t>(FreeBytes()));
      gpu_workers_ = std::make_unique<GpuWorkers>(
          *python_workers_, GpuWorkersOptions{.device = options_.device, .spares = spares_for_python_});
    } catch (...) {
      failure_ = std::current_exception();
    }
  }

  // For the next evaluations, which then wait for none. Nothing is timed on the device meanwhile.
  void WarmUpWorkers() {
    if (!gpu_workers_ || python_sessions_.size() == 0) return;
    try {
      const DeviceLock lock(LockName(), LockMode::kShared, nullptr);
      gpu_workers_->RefillIfFew(2);  // before an evaluation has to wait
      gpu_workers_->Settle();
    } catch (...) {  // the next evaluation tells why
      gpu_workers_->DropSpares();
    }
  }

  // A problem for which memory was too little beside others has the GPU to itself from then on, with fewer spares.
  json JudgePythonWithRoom(const json& request) {
    const auto judge = [&] {
      GpuPythonSession& session = PreparePythonSession(request);
      if (request.at("command") == "get-ready") return json::object();
      return request.at("command") == "diagnose" ? DiagnosePython(session, request)
                                                 : JudgePython(session, request);
    };
    const auto attempt = [&] {
      try {
        return NamingOutOfMemory(judge);
      } catch (const std::exception& error) {
        if (IsOutOfMemory(error)) alone_.insert(request.at("session"));
        throw;
      }
    };
    const auto release = [this] {
      gpu_workers_->DropSpares();
      ReleaseTorchCache();
    };
    return AttemptWithRoom(python_sessions_, attempt, release);
  }

  static Fd OpenBundle(const std::string& path) {
    if (path.empty()) return Fd();
    Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!fd)
      throw Error(ExitCode::kBroken, "cannot open the prepared candidate " + path,
                  "clear Kevin's cache and try again");
    return fd;
  }

  json JudgePython(GpuPythonSession& session, const json& request) {
    GpuPythonRequest judge;
    const Fd bundle = OpenBundle(request.at("library")), start = OpenBundle(request.at("start_library"));
    judge.bundle_fd = bundle.get();
    judge.start_bundle_fd = start.get();
    judge.candidate_key = request.at("library");
    judge.start_key = request.at("start_library");
    judge.own_kernels = request.at("own_kernels").get<std::set<std::string>>();
    static_cast<JudgeOptions&>(judge) = JudgeOptionsOf(request);
    judge.call_timeout_s = request.at("call_timeout_s");
    judge.examine_timeout_s = request.at("examine_timeout_s");
    judge.evaluation_timeout_s = request.at("evaluation_timeout_s");
    judge.rules = WorkloadFromJson(request.at("workload")).rules;
    judge.on_phase = [this](const std::string& phase) { socket_.Write(json{{"phase", phase}}.dump()); };
    return JudgeResultToJson(JudgePythonOnGpu(session, judge));
  }

  static json DiagnosePython(GpuPythonSession& session, const json& request) {
    const Fd bundle = OpenBundle(request.at("library")), marked = OpenBundle(request.at("marked_library"));
    return DiagnosisRunToJson(TimeStages(session, {.key = request.at("library"),
                                                   .bundle_fd = bundle.get(),
                                                   .marked_fd = marked.get(),
                                                   .call_timeout_s = request.at("call_timeout_s"),
                                                   .examine_timeout_s = request.at("examine_timeout_s")}));
  }

  GpuPythonSession& PreparePythonSession(const json& request) {
    const std::string key = request.at("session");
    const bool is_alone = alone_.count(key) > 0;
    gpu_workers_->KeepSpares(is_alone ? kLeastSpares : spares_for_python_);
    GpuPythonSession* session = python_sessions_.Find(key);
    if (session == nullptr || session->is_alone() != is_alone) session = &NewPythonSession(request, is_alone);
    session->base().reference().Activate();
    while (!session->PlanPools() && python_sessions_.DropOldestOther()) {
    }
    return *session;
  }

  GpuPythonSession& NewPythonSession(const json& request, bool is_alone) {
    const GpuSessionOptions options = SessionOptionsOf(request);
    const int64_t needed = 3 * SessionBytesOnGpu(AtSize(options.problem, options.size));
    if (is_alone || HasPythonSessionAlone()) python_sessions_.Clear();
    python_sessions_.MakeRoomForOne();
    while (FreeBytes() < needed && python_sessions_.DropOldest()) {
    }
    ReleaseTorchCache();
    const DeviceLock lock(LockName(), LockMode::kExclusive, nullptr);
    return python_sessions_.Add(request.at("session"),
                                std::make_unique<GpuPythonSession>(options, *gpu_workers_, is_alone));
  }

  bool HasPythonSessionAlone() const {
    const std::vector<std::string> keys = python_sessions_.Keys();
    return std::any_of(keys.begin(), keys.end(), [this](const auto& key) { return alone_.count(key) > 0; });
  }

  json ReleaseMemory() {
    DropSessions();
    ReleaseTorchCache();
    return json::object();
  }

  // Bytes for new sessions, references and truths.
  int64_t FreeBytes() const {
    size_t free_bytes = 0, total_bytes = 0;
    KEVIN_CU(MemGetInfo, &free_bytes, &total_bytes);
    return static_cast<int64_t>(free_bytes) + TorchCacheBytes(options_.device);
  }

  std::string LockName() const {
    char bus[32] = {};
    KEVIN_CU(DeviceGetPCIBusId, bus, sizeof(bus), options_.device);
    return DeviceLock::NameOfGpu(bus);
  }

  GpuSessionOptions SessionOptionsOf(const json& request) const {
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
    options.spares = spares_;
    options.others = others_.get();
    return options;
  }

  GpuSession& PrepareSession(const json& request) {
    const std::string key = request.at("session");
    const int64_t seen = reference_bytes_[key];
    if (GpuSession* session = sessions_.Find(key)) {
      if (crowded_.count(key) > 0 && sessions_.size() > 1) DropOtherSessions();
      while (FreeBytes() < ReferenceBytesOnGpu(session->sized(), seen) && sessions_.DropOldestOther()) {
      }
      torch_bytes_ = TakeTorchBytes(options_.device).now;
      session->reference().Activate();
      return *session;
    }
    GpuSessionOptions options = SessionOptionsOf(request);
    options.reference_bytes = seen;
    const int64_t needed = SessionBytesOnGpu(AtSize(options.problem, options.size), seen);
    sessions_.MakeRoomForOne();
    while ((FreeBytes() < needed || crowded_.count(key) > 0) && sessions_.DropOldest()) {
    }
    ReleaseTorchCache();  // slots are not taken from it
    torch_bytes_ = TakeTorchBytes(options_.device).now;
    // What it measures, and what it disturbs.
    const DeviceLock lock(LockName(), LockMode::kExclusive, nullptr);
    const auto start = std::chrono::steady_clock::now();
    GpuSession& session = sessions_.Add(key, std::make_unique<GpuSession>(std::move(options)));
    session_s_ = SecondsSince(start);
    return session;
  }

  LineSocket socket_;
  GpuEvaluatorOptions options_;
  std::string trusted_cubin_;
  std::exception_ptr failure_;  // of OpenDevice; null: none
  std::unique_ptr<OtherProcesses> others_;
  std::shared_ptr<SpareRunners> spares_ = std::make_shared<SpareRunners>();
  ResidentSessions<GpuSession> sessions_{kSessions};
  // What the reference's tensors and the truth of a session's problem took, the most; it outlives the session.
  std::map<std::string, int64_t> reference_bytes_;
  bool has_made_room_ = false;     // for the request in hand
  std::set<std::string> crowded_;  // eager found the device full; these have it to themselves
  int64_t torch_bytes_ = 0;        // of all sessions, before the request was judged
  std::unique_ptr<PythonWorkers> python_workers_;
  std::unique_ptr<GpuWorkers> gpu_workers_;
  size_t spares_for_python_ = kLeastSpares;
  ResidentSessions<GpuPythonSession> python_sessions_{kPythonSessions};
  std::set<std::string> alone_;  // of their sessions
  double session_s_ = 0;         // that the making of the latest one took
};

}  // namespace

}  // namespace kevin

int KevinServeGpu(const kevin::GpuEvaluatorOptions* options) {
  kevin::GpuEvaluator evaluator(*options);
  evaluator.OpenDevice();
  if (options->enter_sandbox) options->enter_sandbox();
  evaluator.Serve();
  return 0;
}
