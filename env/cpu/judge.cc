#include "env/cpu/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "env/cpu/cpu_judgement.h"
#include "env/cpu/own_share.h"
#include "env/cpu/peak.h"
#include "env/error.h"
#include "env/process/machine.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kVerifyCalls = kMixtureMembers;  // one slot for each member of the input mixture, at least
constexpr size_t kScreenBatches = 7, kMinScreenBatches = 3, kScreenBatchesIfSlow = 2;
static_assert(kScreenBatches <= kMostScreenTimings);
constexpr double kScreenBudget_s = 0.3;

// A time-out, or SIGKILL, which the kernel sends where the machine's memory runs out.
bool MayBeTheMachine(const Outcome& outcome) {
  const auto* crashed = std::get_if<Crashed>(&outcome);
  return std::holds_alternative<TimedOut>(outcome) ||
         (crashed != nullptr && crashed->message.starts_with("killed by signal 9 "));
}

}  // namespace

JudgeResult CpuJudgement::Run() {
  try {
    auto first = VerifyPhase();
    // Other rules do not ask for it.
    const bool asks_for_share = request_.rules == "kevin" && !request_.screen && !request_.verify_only;
    if (session_.is_python() && asks_for_share) CheckOwnShare(*first);
    if (request_.verify_only) {
      result_.outcome = ReportErrors(verified_);
    } else if (request_.screen) {
      result_.outcome = ScreenPhase(*first);
    } else {
      MeasurePhase(std::move(first));
    }
  } catch (const Ended& ended) {
    result_.outcome = ended.outcome;
  }
  return std::move(result_);
}

int CpuJudgement::VerifyCalls() {
  if (request_.screen) return 1;
  return std::min(kVerifyCalls + static_cast<int>(session_.random()() % 2), session_.slots());
}

// Of the candidate and of the kernel it is compared with, for verification and for pairs.
int CpuJudgement::ProcessesToCome() const {
  if (request_.screen || request_.verify_only) return 1;
  const bool has_start = request_.start_library_fd >= 0;
  return 1 + (has_start && request_.start_in_test ? 1 : 0) + request_.plan.processes * (has_start ? 2 : 1);
}

std::unique_ptr<TimedProcess> CpuJudgement::VerifyPhase() {
  Phase("verify");
  session_.AskForProcesses(ProcessesToCome());
  const auto start = Clock::now();
  std::unique_ptr<TimedProcess> process;
  bool may_be_the_machine = false;
  {
    const DeviceLock lock("cpu", LockMode::kShared, &result_.wait_s);
    try {
      process = StartCandidate();
      VerifyOnce(*process, VerifyCalls());
    } catch (const Ended& ended) {
      if (!MayBeTheMachine(ended.outcome) || request_.screen) {
        if (process) result_.log = process->Log();
        result_.verify_s = SecondsSince(start) - result_.wait_s;
        throw;
      }
      may_be_the_machine = true;
    }
  }
  if (may_be_the_machine) {  // confirmed once, in exclusive execution and with a single call
    const DeviceLock lock("cpu", LockMode::kExclusive, &result_.wait_s);
    try {
      process = StartCandidate();
      VerifyOnce(*process, 1);
    } catch (const Ended&) {
      result_.verify_s = SecondsSince(start) - result_.wait_s;
      throw;
    }
  }
  result_.log = process->Log();
  result_.verify_s = SecondsSince(start) - result_.wait_s;
  return process;
}

// A pass of its own, before anything is timed.
void CpuJudgement::CheckOwnShare(TimedProcess& process) {
  const bool is_interpreted = request_.kernel_form == KernelForm::kInterpreted;
  const std::vector<uint16_t> slots =
      session_.DrawSlots(is_interpreted ? std::min(2, session_.slots()) : session_.slots());
  Fill(slots);
  const OwnShare share =
      MeasureOwnShare(session_, process, request_.own_libraries_fd, slots, request_.kernel_form);
  result_.own_share = share.Value();
  const Problem& problem = *session_.sized().problem;
  if (problem.least_own_share == 0) return;
  if (share.moments == 0 && share.unreadable > 0)
    throw Error(
        ExitCode::kMachine,
        "this machine does not show where a process computes (/proc/PID/task/TID/syscall), and the rules `kevin` "
        "ask for it",
        "use --rules open or kernelbench");
  if (share.all == 0)
    throw Ended{Refused{fmt::format(
        "kernels of its own must do {:.3g} % of the work, and at none of {} moments a thread computed: it waits "
        "(--rules open permits that)",
        problem.least_own_share * 100, share.moments)}};
  if (!result_.own_share)
    throw Ended{Refused{fmt::format(
        "kernels of its own must do {:.3g} % of the work, and at {} of {} moments its threads were in a kernel: Python "
        "itself takes the time (--rules open permits that)",
        problem.least_own_share * 100, share.own + share.library, share.all)}};
  if (*result_.own_share >= problem.least_own_share) return;
  const std::string libraries = share.Libraries();
  throw Ended{Refused{fmt::format(
      "kernels of its own do {:.0f} % of the work, and {}: the rest is done by "
      "libraries{} (--rules open permits that)",
      *result_.own_share * 100, AskedOwnShare(problem), libraries.empty() ? "" : ": " + libraries)}};
}

void CpuJudgement::VerifyOnce(TimedProcess& process, int calls) {
  const std::vector<uint16_t> slots = session_.DrawSlots(calls);
  // Not the first call: an output that is never written fails there, and is recognised by its poison.
  const int ordinary_call =
      slots.size() > 1 ? 1 + static_cast<int>(session_.random()() % (slots.size() - 1)) : -1;
  Fill(slots, static_cast<int>(session_.random()() % kMixtureMembers), ordinary_call);
  // As many calls in a batch as there will be in timed ones.
  const size_t calls_of_batch = session_.reference_us() < kMinBatch_us ? slots.size() : 1;
  double total_us = 0;
  for (size_t first = 0; first < slots.size(); first += calls_of_batch) {
    total_us += RunCandidate(process, std::span(slots).subspan(first, calls_of_batch), "verify");
  }
  candidate_us_ = total_us / calls;
  CheckGuards(process, slots);
  RunReference(slots);
  PublishReference();
  for (size_t call = 0; call < slots.size(); ++call) {
    CheckResult check = CheckCall(slots[call], call);
    if (!check.ok) check.message += NoteOf(call, call);
    if (!check.ok && call > 0 && !request_.screen && IsCorrectAlone(slots[call], call))
      check.message += kKeepsState;
    if (!check.ok) throw Ended{WrongAnswer(check)};
    if (!IsNearerItsBound(verified_, check)) verified_ = check;
  }
}

CheckResult CpuJudgement::CheckCall(uint16_t slot, size_t call) {
  return checker_.AgainstTruth(slot, session_.OutputsOf(session_.CandidateOutputs(), slot),
                               session_.ReferenceOutputsOf(call));
}

// As the first call of a process, with the same inputs.
bool CpuJudgement::IsCorrectAlone(uint16_t slot, size_t call) {
  try {
    const auto process = StartCandidate();
    RunCandidate(*process, std::span(&slot, 1), "verify");
    return CheckCall(slot, call).ok;
  } catch (const Ended&) {
    return false;
  }
}

// The candidate alone, by batches like those of pairs. Their outputs are not checked: what is chosen by these times is
// judged by the rules.
Measured CpuJudgement::ScreenPhase(TimedProcess& process) {
  const DeviceLock lock("cpu", LockMode::kExclusive, &result_.wait_s);
  session_.AwaitProcesses();
  Phase("screen");
  const auto begin = Clock::now();
  // A call that takes as long as the whole budget is timed once.
  const bool is_long = candidate_us_ > kScreenBudget_s * 1e6;
  if (!is_long) ChooseCalls(process);
  std::vector<double> times_us;
  const auto is_slow = [&] {
    return request_.screen_limit_us > 0 && times_us.size() >= kScreenBatchesIfSlow &&
           *std::min_element(times_us.begin(), times_us.end()) > request_.screen_limit_us;
  };
  const size_t least = is_long ? 1 : kMinScreenBatches;
  while (times_us.size() < kScreenBatches && !is_slow() &&
         (times_us.size() < least || SecondsSince(begin) < kScreenBudget_s)) {
    const std::vector<uint16_t> slots = session_.DrawSlots(max_calls_);
    Fill(slots);
    FlushCaches(session_.options().threads);
    const double total_us = RunCandidate(process, slots, "screen");
    times_us.push_back(session_.WorkUs(total_us, slots.size()) / static_cast<double>(slots.size()));
  }
  Measured measured = ReportErrors(verified_);
  measured.candidate_us = Median(times_us);
  result_.measure_s = SecondsSince(begin);
  return measured;
}

void CpuJudgement::MeasurePhase(std::unique_ptr<TimedProcess> first) {
  const DeviceLock lock("cpu", LockMode::kExclusive, &result_.wait_s);
  session_.AwaitProcesses();
  Phase(request_.confirm ? "confirm" : "measure");
  const auto begin = Clock::now();
  try {
    ChooseCalls(*first);
    Processes processes{std::move(first), request_.start_in_test ? StartOther() : nullptr};
    TimedRound(processes.All(), 0, -1, "warm-up");
    for (TimedProcess* process : processes.All()) process->StartCounting();
    if (HasSequentialTest()) Sequential(std::move(processes));
    processes = {};
    Fixed();
  } catch (const Ended&) {
    result_.measure_s = SecondsSince(begin);
    throw;
  }
  result_.measure_s = SecondsSince(begin);
}

// A busy machine may have hidden how fast its memory is: a floor that would refuse is measured again first.
double CpuJudgement::FloorFor(double candidate_us) {
  constexpr int kTries = 20;
  for (int i = 0; i < kTries && candidate_us < session_.FloorMicroseconds(); ++i) session_.MeasureFloor();
  return session_.FloorMicroseconds();
}

Measured CpuJudgement::Report(const std::vector<std::vector<RoundTimes>>& rounds) {
  Measured measured = ReportRounds(rounds, {}, {}, session_.sized(), verdicts_, verified_);
  measured.floor_us = FloorFor(measured.candidate_us);
  RefuseImpossibleTime(measured, "on this machine");
  return measured;
}

JudgeResult JudgeLibrary(Session& session, const JudgeRequest& request) {
  return CpuJudgement(session, request).Run();
}

}  // namespace kevin
