#include <algorithm>
#include <chrono>
#include <map>
#include <set>

#include "env/error.h"
#include "env/gpu/judge/gpu_ceilings.h"
#include "env/gpu/judge/gpu_judge.h"
#include "env/gpu/judge/gpu_requests.h"
#include "env/gpu/judge/time_launches.h"
#include "env/process/machine.h"
#include "env/process/wire.h"

namespace kevin {
namespace {

using nlohmann::json;

constexpr size_t kSessions = 24;

class CudaRequests : public GpuRequests {
 public:
  explicit CudaRequests(const GpuServing& serving) : serving_(serving) {}

  json Answer(const json& request) override {
    if (request.at("command") == "evaluate") return WithRoom([&] { return JudgeOrStartAgain(request); });
    if (request.at("command") == "get-ready") return WithRoom([&] { return GetReady(request); });
    if (request.at("command") == "diagnose") return Diagnose(request);
    sessions_.Clear();  // the others measure what a new session takes, and use all of the memory
    if (request.at("command") == "ceilings") return CeilingFacts();
    GpuSession& session = PrepareSession(request);
    if (request.at("command") == "prepare") return Preparation(session);
    return DecoysToJson(AdmitOnGpu(session));
  }

  std::vector<std::string> Sessions() const override { return sessions_.Keys(); }

  void DropSessions() override {
    sessions_.Clear();
    serving_.spares->idle.clear();
    serving_.spares->clients.clear();
  }

 private:
  json CeilingFacts() const {
    const DeviceLock lock(serving_.LockName(), LockMode::kExclusive, nullptr);
    ReleaseTorchCache();
    const Ceilings ceilings = MeasureGpuCeilings(serving_.options.device, serving_.trusted_cubin);
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
      serving_.spares->idle.clear();  // each has a context
      serving_.spares->clients.clear();
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
    serving_.spares->clients.clear();
    DropOtherSessions();
  }

  void SeeReferenceBytes(const std::string& session) {
    int64_t& seen = reference_bytes_[session];
    seen = std::max(seen, TakeTorchBytes(serving_.options.device).most - torch_bytes_);
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
    judge.on_phase = serving_.on_phase;
    JudgeResult result = JudgeOnGpu(session, judge);
    SeeReferenceBytes(request.at("session"));
    return result;
  }

  GpuSession& PrepareSession(const json& request) {
    const std::string key = request.at("session");
    const int64_t seen = reference_bytes_[key];
    if (GpuSession* session = sessions_.Find(key)) {
      if (crowded_.count(key) > 0 && sessions_.size() > 1) DropOtherSessions();
      while (serving_.FreeBytes() < ReferenceBytesOnGpu(session->sized(), seen) &&
             sessions_.DropOldestOther()) {
      }
      torch_bytes_ = TakeTorchBytes(serving_.options.device).now;
      session->reference().Activate();
      return *session;
    }
    GpuSessionOptions options = serving_.SessionOptionsOf(request);
    options.reference_bytes = seen;
    const int64_t needed = SessionBytesOnGpu(AtSize(options.problem, options.size), seen);
    sessions_.MakeRoomForOne();
    while ((serving_.FreeBytes() < needed || crowded_.count(key) > 0) && sessions_.DropOldest()) {
    }
    ReleaseTorchCache();  // slots are not taken from it
    torch_bytes_ = TakeTorchBytes(serving_.options.device).now;
    // What it measures, and what it disturbs.
    const DeviceLock lock(serving_.LockName(), LockMode::kExclusive, nullptr);
    const auto start = std::chrono::steady_clock::now();
    GpuSession& session = sessions_.Add(key, std::make_unique<GpuSession>(std::move(options)));
    session_s_ = SecondsSince(start);
    return session;
  }

  const GpuServing& serving_;
  ResidentSessions<GpuSession> sessions_{kSessions};
  // What the reference's tensors and the truth of a session's problem took, the most; it outlives the session.
  std::map<std::string, int64_t> reference_bytes_;
  bool has_made_room_ = false;     // for the request in hand
  std::set<std::string> crowded_;  // eager found the device full; these have it to themselves
  int64_t torch_bytes_ = 0;        // of all sessions, before the request was judged
  double session_s_ = 0;           // that the making of the latest one took
};

}  // namespace

std::unique_ptr<GpuRequests> MakeCudaRequests(const GpuServing& serving) {
  return std::make_unique<CudaRequests>(serving);
}

}  // namespace kevin
