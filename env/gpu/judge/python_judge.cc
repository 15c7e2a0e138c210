#include "env/gpu/judge/python_judge.h"

#include <fmt/format.h>

#include <algorithm>

#include "env/error.h"
#include "env/gpu/judge/python_judgement.h"
#include "env/process/machine.h"
#include "env/process/resident_sessions.h"
#include "env/python/own_kernels.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kPythonScreenBatches = 5;
constexpr int kExaminedCalls = 5;
constexpr double kSlowCall_us = 1e5;  // of such calls one is examined

// Behind the driver's words, which name no reason and of which the first line is shown: elsewhere inputs may be written.
std::string WithReason(std::string message) {
  const std::string driver = "an illegal memory access was encountered";
  if (const size_t at = message.find(driver); at != std::string::npos)
    message.insert(
        at + driver.size(),
        " (a kernel reads or writes beyond its tensors, or writes to an input or a weight, as relu_ does: "
        "these are read-only)");
  return message;
}

}  // namespace

JudgeResult GpuPythonJudgement::Run() {
  const DeviceLock lock(base_.LockName(), LockMode::kExclusive, &result_.wait_s);
  begin_ = measuring_ = Clock::now();
  try {
    Judge();
  } catch (const Ended& ended) {
    result_.outcome = ended.outcome;
  } catch (const DriverError& error) {
    if (!error.out_of_memory() || !TookMemory()) throw;
    RefuseTakenMemory();
  } catch (const std::exception& error) {
    if (!IsOutOfMemory(error) || !TookMemory()) throw;
    RefuseTakenMemory();
  }
  (is_verified_ ? result_.measure_s : result_.verify_s) = SecondsSince(is_verified_ ? measuring_ : begin_);
  if (!sides_.empty()) result_.log = sides_.front()->process().Log();
  if (const std::string others = NamesOfOthers(examined_.kernels, request_.own_kernels); !others.empty())
    result_.log += (result_.log.empty() ? "" : "\n") + ("kernels of libraries: " + others);
  sides_.clear();
  session_.workers().Settle();
  result_.device_s = SecondsSince(begin_);
  return std::move(result_);
}

void GpuPythonJudgement::Judge() {
  Phase("verify");
  if (request_.first_calls_apart) {
    Examine();
  } else {
    examined_ = session_.ExamineLater(request_.candidate_key);
    TakeExamined();
  }
  session_.workers().RefillIfFew(1);  // these warm up beside the verification
  VerifyWithCompilersIfNeeded();
  if (!request_.verify_only && !request_.screen) ExamineIfDue();
  is_verified_ = true;
  measuring_ = Clock::now();
  result_.verify_s = std::chrono::duration<double>(measuring_ - begin_).count();
  if (request_.verify_only) {
    result_.outcome = ReportErrors(verified_);
  } else if (request_.screen) {
    Phase("screen");
    session_.workers().Settle();
    result_.outcome = Screen();
  } else {
    CheckOwnShare();
    if (request_.start_bundle_fd >= 0) {
      sides_.push_back(StartSide(
          "start", request_.start_bundle_fd,
          session_.Examine(request_.start_key, request_.start_bundle_fd, request_.examine_timeout_s)));
    }
    Phase(request_.confirm ? "confirm" : "measure");
    session_.workers().Settle();
    result_.outcome = Report(MeasureUnshared());
  }
}

void GpuPythonJudgement::Fail(PythonSide& side, const ProcessEnd& end, const std::string& phase) const {
  const std::string log = side.process().Log();
  const std::string said = log.empty() ? "" : "; it printed: " + log.substr(0, 2000);
  const std::string first = examined_.error.empty() || examined_.error == end.message
                                ? ""
                                : "; with compilers, its first calls: " + examined_.error;
  switch (end.kind) {
    case ProcessEnd::Kind::kTimedOut:
      End(side, TimedOut{phase, request_.call_timeout_s});
    case ProcessEnd::Kind::kLoadFailed:
      End(side, CompileFailed{end.message + first});
    case ProcessEnd::Kind::kWrongOutput:
      End(side, Wrong{end.message, 0, 0});
    case ProcessEnd::Kind::kRefused:
      End(side, Refused{end.message});
    case ProcessEnd::Kind::kRaised:
    case ProcessEnd::Kind::kCrashed:
      break;
  }
  End(side, Crashed{WithReason(end.message) + " during " + phase + first + said});
}

void GpuPythonJudgement::Examine() {
  examined_ = session_.Examine(request_.candidate_key, request_.bundle_fd, request_.examine_timeout_s);
  TakeExamined();
}

void GpuPythonJudgement::TakeExamined() {
  result_.own_share = OwnKernelShare(examined_.kernels, request_.own_kernels);
  result_.device_us = examined_.device_us;
}

// In the process that has just been verified. Where it ends there, the first calls are made apart, as those of texts that may
// compile.
void GpuPythonJudgement::ExamineIfDue() {
  if (!examined_.is_due) return;
  session_.workers().Settle();
  const int calls = candidate_us_ > kSlowCall_us ? 1 : kExaminedCalls;
  const uint64_t since_us = OtherProcesses::NowUs();
  if (session_.ExamineIn(*sides_.front(), request_.candidate_key, session_.DrawSlots(calls),
                         request_.examine_timeout_s, &examined_)) {
    RequireQuiet(*sides_.front(), since_us);
    TakeExamined();
    return;
  }
  sides_.clear();
  Examine();
  VerifyTwiceIfLate();
}

void GpuPythonJudgement::CheckOwnShare() const {
  const Problem& problem = *base_.sized().problem;
  if (request_.rules != "kevin" || problem.least_own_share == 0) return;
  if (!result_.own_share) {
    throw Ended{Refused{
        "the share of its own kernels is not known" +
        (examined_.error.empty() ? std::string(": a profiler saw no kernel") : ": " + examined_.error) +
        ", and " + AskedOwnShare(problem) + " (--rules open permits any)"}};
  }
  if (*result_.own_share >= problem.least_own_share) return;
  throw Ended{
      Refused{fmt::format("kernels of its own do {:.0f} % of the work, and {}: the rest is done by "
                          "libraries: {} (--rules open permits that)",
                          *result_.own_share * 100, AskedOwnShare(problem),
                          NamesOfOthers(examined_.kernels, request_.own_kernels))}};
}

std::unique_ptr<PythonSide> GpuPythonJudgement::StartSide(const std::string& name, int bundle_fd,
                                                          const GpuPythonSession::Examined& examined) {
  auto side = session_.Start(name, bundle_fd, examined);
  if (const auto end = side->process().WaitReady(request_.call_timeout_s)) Fail(*side, *end, "load");
  return side;
}

int GpuPythonJudgement::VerifyCalls() {
  if (request_.screen) return 1;
  return std::min(kMixtureMembers + static_cast<int>(base_.random()() % 2), session_.slots());
}

void GpuPythonJudgement::Verify(int calls) {
  PythonSide& side = *sides_.front();
  const std::vector<uint16_t> slots = session_.DrawSlots(calls);
  const int first = static_cast<int>(base_.random()() % kMixtureMembers);
  session_.Draw(slots, first);
  candidate_us_ = session_.CallUs(RunSide(side, slots, "verify"), slots.size());
  if (std::string reason = session_.Take(side, slots, slots.size()); !reason.empty())
    End(side, Refused{reason});
  ComputeReference(slots);
  for (size_t call = 0; call < slots.size(); ++call) {
    const uint16_t slot = slots[call];
    CheckResult check = checker_.Verify(slot);
    if (!check.ok)
      check.message +=
          InputsNote(base_.sized(), base_.options().inputs, first + static_cast<int>(call), call);
    if (!check.ok && call > 0 && !request_.screen && IsCorrectAlone(slot)) check.message += kKeepsState;
    if (!check.ok) End(side, WrongAnswer(check));
    if (!IsNearerItsBound(verified_, check)) verified_ = check;
  }
  ChooseCalls();
}

// As the first call of a process, with the same inputs.
bool GpuPythonJudgement::IsCorrectAlone(uint16_t slot) {
  const std::span<const uint16_t> slots(&slot, 1);
  try {
    const auto side = StartCandidate();
    RunSide(*side, slots, "verify");
    return session_.Take(*side, slots, 1).empty() && checker_.AgainstTruth(slot).ok;
  } catch (const Ended&) {
    return false;
  } catch (const DriverError& error) {
    if (!error.out_of_memory()) throw;
    return false;  // there is no room for another worker beside the truth
  }
}

void GpuPythonJudgement::StartAndVerify(int calls) {
  sides_.clear();
  sides_.push_back(StartCandidate());
  Verify(calls);
}

// What takes too long is confirmed once, in fresh processes and with a single call: the machine may have been busy.
void GpuPythonJudgement::VerifyTwiceIfLate() {
  try {
    StartAndVerify(VerifyCalls());
    if (!examined_.timed_out || request_.screen || request_.rules != "kevin") return;
    Examine();
  } catch (const Ended& ended) {
    const bool is_late = examined_.timed_out || std::holds_alternative<TimedOut>(ended.outcome);
    if (request_.screen || !is_late) throw;
    sides_.clear();
    if (examined_.timed_out) Examine();
    StartAndVerify(1);
  }
}

// A text that seems to compile nothing may do so all the same: what its first calls have left then lets it go on.
void GpuPythonJudgement::VerifyWithCompilersIfNeeded() {
  try {
    VerifyTwiceIfLate();
    return;
  } catch (const Ended& ended) {
    const bool has_failed = std::holds_alternative<CompileFailed>(ended.outcome) ||
                            std::holds_alternative<Crashed>(ended.outcome);
    if (!examined_.is_due || !has_failed) throw;
    if (!sides_.empty()) result_.log = sides_.front()->process().Log();
    sides_.clear();
    Examine();
    if (!examined_.has_compiled) throw Ended{WithFirstCalls(ended.outcome)};
  }
  VerifyTwiceIfLate();
}

// With what its first calls said where they failed too.
Outcome GpuPythonJudgement::WithFirstCalls(Outcome outcome) const {
  const auto add = [&](std::string* text) {
    if (!examined_.error.empty() && !text->starts_with(WithReason(examined_.error)))
      *text += "; with compilers, its first calls: " + examined_.error;
  };
  if (auto* crashed = std::get_if<Crashed>(&outcome)) add(&crashed->message);
  if (auto* failed = std::get_if<CompileFailed>(&outcome)) add(&failed->log);
  return outcome;
}

// The candidate alone. Its outputs are not checked: what is chosen by these times is judged by the rules.
Measured GpuPythonJudgement::Screen() {
  std::vector<double> times_us;
  for (size_t i = 0; i < kPythonScreenBatches; ++i) {
    const std::vector<uint16_t> slots = session_.DrawSlots(most_calls_);
    session_.Draw(slots);
    times_us.push_back(session_.CallUs(RunSide(*sides_.front(), slots, "screen"), slots.size()));
    if (request_.screen_limit_us > 0 && i > 0 &&
        *std::min_element(times_us.begin(), times_us.end()) > request_.screen_limit_us)
      break;
  }
  Measured measured = ReportErrors(verified_);
  measured.candidate_us = Median(times_us);
  return measured;
}

JudgeResult JudgePythonOnGpu(GpuPythonSession& session, const GpuPythonRequest& request) {
  return NamingDriverFailures([&] { return GpuPythonJudgement(session, request).Run(); });
}

}  // namespace kevin
