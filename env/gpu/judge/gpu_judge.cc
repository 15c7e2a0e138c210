#include "env/gpu/judge/gpu_judge.h"

#include <algorithm>
#include <chrono>
#include <random>

#include "env/gpu/judge/gpu_judgement.h"
#include "env/process/machine.h"
#include "env/process/resident_sessions.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kVerifyCalls = kMixtureMembers;
constexpr int kVerifyCallsWhenLong = 2;  // the timed calls see the mixture too, and all of them are checked
constexpr size_t kScreenCallsWhenLong = 3, kScreenCallsIfSlow = 2;
constexpr const char* kKeepsGlobals =
    "; with fresh __device__ variables this call is correct: they keep what the call before has left in them, so each "
    "call must set them again (its last block can do so at the end)";

}  // namespace

JudgeResult GpuJudgement::Run() {
  const DeviceLock lock(session_.LockName(), LockMode::kExclusive, &result_.wait_s);
  const auto begin = Clock::now();
  auto measuring = begin;
  timeout_s_ = std::min(request_.call_timeout_s, 2 + 100e-6 * session_.reference_us());
  bool verified = false;
  try {
    StartTimedKernels();
    session_.StartSpares(request_.screen ? 0 : session_.verify_s);
    Phase("verify");
    const auto verifying = Clock::now();
    if (request_.screen) {
      VerifyCall(static_cast<int>(session_.random()() % kMixtureMembers));
    } else {
      Verify();
    }
    verified = true;
    if (!request_.screen) session_.verify_s = SecondsSince(verifying);
    if (!request_.verify_only) session_.AwaitSpares();
    session_.ForgetWaits();
    measuring = Clock::now();
    result_.verify_s = std::chrono::duration<double>(measuring - begin).count();
    if (request_.verify_only) {
      result_.outcome = ReportErrors(verified_);
    } else if (request_.screen) {
      Phase("screen");
      result_.outcome = Screen();
    } else {
      Phase(request_.confirm ? "confirm" : "measure");
      result_.outcome = Report(MeasureOnQuietHost());
    }
  } catch (const Ended& ended) {
    result_.outcome = ended.outcome;
  }
  (verified ? result_.measure_s : result_.verify_s) = SecondsSince(verified ? measuring : begin);
  GiveRunnersBack();
  session_.AwaitSpares();
  result_.device_s = SecondsSince(begin);
  return std::move(result_);
}

void GpuJudgement::StartTimedKernels() {
  kernels_.push_back({"candidate", &request_.plan, session_.TakeRunner(request_.confirm)});
  if (request_.start_plan) {
    const bool fresh = request_.confirm || request_.start_in_test;
    kernels_.push_back({"start", &*request_.start_plan, session_.TakeRunner(fresh)});
  }
  for (TimedKernel& kernel : kernels_) {
    if (const auto fault = kernel.runner.client->Load(*kernel.plan, 20)) Fail(kernel, *fault, "load");
  }
  // What an earlier kernel has left between the outputs of unused slots is not this one's.
  for (int slot = 0; slot < session_.slots(); ++slot) session_.PoisonOutputs(slot);
}

void GpuJudgement::End(const TimedKernel& kernel, const Outcome& outcome) const {
  EndJudgement(kernel.name == "candidate", outcome);
}

void GpuJudgement::Fail(const TimedKernel& kernel, const RunnerFault& fault, const std::string& phase) const {
  if (fault.kind == RunnerFault::Kind::kOutOfMemory && !request_.is_alone) throw OutOfMemory(fault.message);
  if (fault.kind == RunnerFault::Kind::kHung) End(kernel, TimedOut{phase, timeout_s_});
  End(kernel, Crashed{fault.message + " during " + phase});
}

// Every call is made here.
CallTimes GpuJudgement::Time(TimedKernel& kernel, int slot, const std::string& phase, bool keeps_globals) {
  session_.PoisonOutputs(slot);
  session_.Synchronize();
  CallTimes times;
  if (const auto fault =
          kernel.runner.client->Time(slot, true, session_.random()(), timeout_s_, &times, keeps_globals))
    Fail(kernel, *fault, phase);
  times.event_us = std::max(times.event_us, 1e-3);
  return times;
}

// For the excess of the wall clock over the events.
void GpuJudgement::EmptyCall() {
  TimedKernel& candidate = kernels_.front();
  session_.Synchronize();
  CallTimes times;
  if (const auto fault =
          candidate.runner.client->Time(NextSlot(), false, session_.random()(), timeout_s_, &times))
    Fail(candidate, *fault, "measure");
  clock_.AddEmpty(times.event_us, times.wall_us);
}

CheckResult GpuJudgement::CheckedCall(int slot, bool keeps_globals) {
  // The calibration of the pairs needs it, before the first of them where they are long.
  TimedKernel& candidate = kernels_.front();
  const CallTimes times = Time(candidate, slot, "verify", keeps_globals);
  candidate_us_ = std::max(times.event_us - candidate.runner.offset_us, 1e-3);
  const std::string broken = session_.AnyBrokenGuard();
  if (!broken.empty()) throw Ended{Wrong{broken, 0, 0}};
  session_.TimeReferenceUs(slot);
  return checker_.Verify(slot);
}

void GpuJudgement::VerifyCall(int member, bool keeps_globals) {
  const int slot = NextSlot();
  session_.Draw(slot, member);
  CheckResult check = CheckedCall(slot, keeps_globals);
  if (!check.ok && keeps_globals && CheckedCall(slot, false).ok) check.message += kKeepsGlobals;
  if (!check.ok) check.message += InputsNote(session_.sized(), session_.options().inputs, member);
  if (!check.ok) throw Ended{WrongAnswer(check)};
  if (!IsNearerItsBound(verified_, check)) verified_ = check;
}

void GpuJudgement::Verify() {
  // The candidate must not be able to tell by the number of calls that it is verified.
  const bool is_long = session_.reference_us() > kLong_us;
  const int least = is_long ? kVerifyCallsWhenLong : kVerifyCalls;
  const int calls = least + static_cast<int>(session_.random()() % (is_long ? 4 : 2) == 0);
  const int first = static_cast<int>(session_.random()() % kMixtureMembers);
  for (int call = 0; call < calls; ++call) {
    try {
      VerifyCall(first + call, call > 0);
    } catch (const Ended& ended) {
      if (call > 0 || !std::holds_alternative<TimedOut>(ended.outcome)) throw;
      // Confirmed once with a new runner: the machine may have been busy.
      kernels_.front().runner = session_.TakeRunner(true);
      if (const auto fault = kernels_.front().runner.client->Load(request_.plan, 20))
        Fail(kernels_.front(), *fault, "load");
      VerifyCall(first + call);
    }
  }
  if (is_long && checker_.has_computed_truth()) session_.WarmReference(NextSlot());
}

// The candidate alone, by calls like those of pairs. Their outputs are not checked: what is chosen by these times is
// judged by the rules.
Measured GpuJudgement::Screen() {
  TimedKernel& candidate = kernels_.front();
  std::vector<double> times_us;
  const auto is_slow = [&] {
    return request_.screen_limit_us > 0 && times_us.size() >= kScreenCallsIfSlow &&
           *std::min_element(times_us.begin(), times_us.end()) > request_.screen_limit_us;
  };
  const size_t calls = session_.reference_us() > kLong_us ? kScreenCallsWhenLong : kMostScreenTimings;
  while (times_us.size() < calls && !is_slow()) {
    const int slot = NextSlot();
    session_.Draw(slot);
    const CallTimes times = Time(candidate, slot, "screen");
    times_us.push_back(std::max(times.event_us - candidate.runner.offset_us, 1e-3));
  }
  Measured measured = ReportErrors(verified_);
  measured.candidate_us = Median(times_us);
  return measured;
}

void GpuJudgement::GiveRunnersBack() {
  for (TimedKernel& kernel : kernels_) session_.GiveBack(std::move(kernel.runner));
  kernels_.clear();
}

JudgeResult JudgeOnGpu(GpuSession& session, const GpuJudgeRequest& request) {
  return NamingDriverFailures([&] { return GpuJudgement(session, request).Run(); });
}

}  // namespace kevin
