#include <algorithm>
#include <set>

#include "env/diagnosis/diagnosis_run.h"
#include "env/error.h"
#include "env/gpu/judge/gpu_judge.h"
#include "env/gpu/judge/gpu_requests.h"
#include "env/gpu/judge/python_judge.h"
#include "env/gpu/judge/time_stages.h"
#include "env/process/machine.h"
#include "env/process/wire.h"

namespace kevin {
namespace {

using nlohmann::json;

constexpr size_t kPythonSessions = 2;  // each has a reference worker with a pool and a context

PythonWorkers WorkersFor(const GpuServing& serving) {
  const int device = serving.options.device,
            capability = AttributeOf(device, kCuMajor) * 10 + AttributeOf(device, kCuMinor);
  return PythonWorkers(PythonSetupFromJson(json::parse(serving.options.python_setup)), 1,
                       serving.options.namespaces, GpuOfWorkers{capability});
}

class PythonRequests : public GpuRequests {
 public:
  explicit PythonRequests(const GpuServing& serving)
      : serving_(serving),
        python_workers_(WorkersFor(serving)),
        spares_(SparesFor(UsableCpus(), static_cast<size_t>(serving.FreeBytes()))),
        workers_(python_workers_, GpuWorkersOptions{.device = serving.options.device, .spares = spares_}) {}

  // A problem for which memory was too little beside others has the GPU to itself from then on, with fewer spares.
  json Answer(const json& request) override {
    const auto judge = [&] {
      GpuPythonSession& session = PrepareSession(request);
      if (request.at("command") == "get-ready") return json::object();
      return request.at("command") == "diagnose" ? Diagnose(session, request) : Judge(session, request);
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
      workers_.DropSpares();
      ReleaseTorchCache();
    };
    return AttemptWithRoom(sessions_, attempt, release);
  }

  std::vector<std::string> Sessions() const override { return sessions_.Keys(); }

  void DropSessions() override {
    sessions_.Clear();
    workers_.DropSpares();
  }

  // For the next evaluations, which then wait for none. Nothing is timed on the device meanwhile.
  void PrepareWhileIdle() override {
    if (sessions_.size() == 0) return;
    try {
      const DeviceLock lock(serving_.LockName(), LockMode::kShared, nullptr);
      workers_.RefillIfFew(2);  // before an evaluation has to wait
      workers_.Settle();
    } catch (...) {  // the next evaluation tells why
      workers_.DropSpares();
    }
  }

 private:
  static Fd OpenBundle(const std::string& path) { return OpenNamed(path, "the prepared candidate"); }

  json Judge(GpuPythonSession& session, const json& request) {
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
    judge.first_calls_apart = request.at("first_calls_apart");
    judge.rules = WorkloadFromJson(request.at("workload")).rules;
    judge.on_phase = serving_.on_phase;
    return JudgeResultToJson(JudgePythonOnGpu(session, judge));
  }

  static json Diagnose(GpuPythonSession& session, const json& request) {
    const Fd bundle = OpenBundle(request.at("library")), marked = OpenBundle(request.at("marked_library"));
    return DiagnosisRunToJson(TimeStages(session, {.key = request.at("library"),
                                                   .bundle_fd = bundle.get(),
                                                   .marked_fd = marked.get(),
                                                   .call_timeout_s = request.at("call_timeout_s"),
                                                   .examine_timeout_s = request.at("examine_timeout_s")}));
  }

  GpuPythonSession& PrepareSession(const json& request) {
    const std::string key = request.at("session");
    const bool is_alone = alone_.count(key) > 0;
    workers_.KeepSpares(is_alone ? kLeastSpares : spares_);
    GpuPythonSession* session = sessions_.Find(key);
    if (session == nullptr || session->is_alone() != is_alone) session = &NewSession(request, is_alone);
    session->base().reference().Activate();
    while (!session->PlanPools() && sessions_.DropOldestOther()) {
    }
    return *session;
  }

  GpuPythonSession& NewSession(const json& request, bool is_alone) {
    const GpuSessionOptions options = serving_.SessionOptionsOf(request);
    const int64_t needed = 3 * SessionBytesOnGpu(AtSize(options.problem, options.size));
    if (is_alone || HasSessionAlone()) sessions_.Clear();
    sessions_.MakeRoomForOne();
    while (serving_.FreeBytes() < needed && sessions_.DropOldest()) {
    }
    ReleaseTorchCache();
    const DeviceLock lock(serving_.LockName(), LockMode::kExclusive, nullptr);
    return sessions_.Add(request.at("session"),
                         std::make_unique<GpuPythonSession>(options, workers_, is_alone));
  }

  bool HasSessionAlone() const {
    const std::vector<std::string> keys = sessions_.Keys();
    return std::any_of(keys.begin(), keys.end(), [this](const auto& key) { return alone_.count(key) > 0; });
  }

  const GpuServing& serving_;
  PythonWorkers python_workers_;
  const size_t spares_;
  GpuWorkers workers_;
  ResidentSessions<GpuPythonSession> sessions_{kPythonSessions};
  std::set<std::string> alone_;  // of the sessions
};

}  // namespace

std::unique_ptr<GpuRequests> MakePythonRequests(const GpuServing& serving) {
  return std::make_unique<PythonRequests>(serving);
}

}  // namespace kevin
