#include "env/gpu/judge/gpu_judge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>
#include <random>
#include <thread>

#include "env/error.h"
#include "env/gpu/judge/round_answers.h"
#include "env/process/generator.h"
#include "env/process/machine.h"
#include "env/process/resident_sessions.h"
#include "env/verdict/call_clock.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kVerifyCalls = kMixtureMembers;
constexpr int kVerifyCallsWhenLong = 2;  // the timed calls see the mixture too, and all of them are checked
constexpr double kLong_us = 1000;
constexpr int kSequentialRounds = 80, kMinSequentialRounds = 6;
constexpr double kSequentialBudget_s = 0.12;
constexpr int kMinFixedRounds = 6, kMaxFixedRounds = 80;
// Of calls that long four pairs are as exact as six of shorter ones, and nothing needs to warm up. Four pairs have all members of
// the mixture.
constexpr double kVeryLong_us = 3000, kLongest_us = 10000;
constexpr int kRoundsIfVeryLong = kMixtureMembers;
constexpr double kFixedBudget_s = 0.1, kConfirmFactor = 1.5;
constexpr size_t kScreenCallsWhenLong = 3, kScreenCallsIfSlow = 2;
constexpr int kQuietTries = 3;
constexpr std::chrono::milliseconds kRestOnBusyHost(300);
constexpr const char* kKeepsGlobals =
    "; with fresh __device__ variables this call is correct: they keep what the call before has left in them, so each "
    "call must set them again (its last block can do so at the end)";
constexpr double kSameClock = 0.03;  // halves of a pair may differ by that share of the clock
// Noise that more pairs do not average away, as A/A measurements show it (tests/bench, the clock on a GPU).
constexpr ClockCalibration kGpuCalibration{0.003, 0.001, true};

struct TimedKernel {
  std::string name;  // "candidate" or "start"
  const LaunchPlan* plan = nullptr;
  GpuSession::Calibrated runner;
};

class GpuJudgement {
 public:
  GpuJudgement(GpuSession& session, const GpuJudgeRequest& request)
      : session_(session), request_(request), checker_(session) {
    result_.seeds = session.RenewKeys();
  }

  JudgeResult Run();

 private:
  void Phase(const std::string& name) const {
    if (request_.on_phase) request_.on_phase(name);
  }
  [[noreturn]] void Fail(const TimedKernel& kernel, const RunnerFault& fault, const std::string& phase) const;
  [[noreturn]] void End(const TimedKernel& kernel, const Outcome& outcome) const;
  void StartTimedKernels();
  CallTimes Time(TimedKernel& kernel, int slot, const std::string& phase, bool keeps_globals = false);
  void EmptyCall();
  int NextSlot() { return std::uniform_int_distribution<int>(0, session_.slots() - 1)(session_.random()); }
  void Verify();
  Measured Screen();
  void VerifyCall(int member, bool keeps_globals = false);
  CheckResult CheckedCall(int slot, bool keeps_globals);
  ClockCalibration CalibrationFor(size_t kernels) const;
  RoundTimes TimedRound(int process, int pair, const std::string& phase);
  void Sequential();
  std::vector<RoundTimes> Fixed();
  std::vector<RoundTimes> MeasureUndisturbed();
  std::vector<RoundTimes> MeasureOnQuietHost();
  static std::vector<int> ProcessIds();
  void RefuseForgedTimes() const;
  Measured Report(const std::vector<RoundTimes>& rounds);
  void GiveRunnersBack();

  GpuSession& session_;
  const GpuJudgeRequest& request_;
  GpuChecker checker_;
  JudgeResult result_;
  std::vector<TimedKernel> kernels_;  // the candidate first
  size_t sides_ = 1;                  // of them in a round
  CheckResult verified_;
  SequentialVerdicts verdicts_;
  CallClock clock_;
  MixtureOrder members_;
  bool is_verified_round_ = false;  // the candidate's answer is checked by the whole rule
  std::string disbelieved_;         // why there are too few fixed pairs; empty: there are enough
  double timeout_s_ = 0, round_s_ = 0.01, candidate_us_ = 0;  // candidate_us_: of its latest call
};

JudgeResult GpuJudgement::Run() {
  const DeviceLock lock(session_.LockName(), LockMode::kExclusive, &result_.wait_s);
  const auto begin = Clock::now();
  auto measuring = begin;
  timeout_s_ = std::min(request_.call_timeout_s, 2 + 100e-6 * session_.reference_us());
  bool verified = false;
  try {
    StartTimedKernels();
    session_.StartSpares();
    Phase("verify");
    if (request_.screen) {
      VerifyCall(static_cast<int>(session_.random()() % kMixtureMembers));
    } else {
      Verify();
    }
    verified = true;
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

RoundTimes GpuJudgement::TimedRound(int process, int pair, const std::string& phase) {
  const auto start = Clock::now();
  const size_t samples = result_.samples.size();
  const int slot = NextSlot();
  session_.Draw(slot, members_.Next(session_.random()));
  std::vector<int> order{RoundAnswers::kReference};
  for (size_t i = 0; i < sides_; ++i) order.push_back(static_cast<int>(i));
  std::shuffle(order.begin(), order.end(), session_.random());
  const int verified = is_verified_round_ ? 0 : RoundAnswers::kReference;
  RoundAnswers answers(session_, checker_, slot, verified, [this](int side, const Wrong& wrong) {
    End(kernels_[static_cast<size_t>(side)], wrong);
  });
  RoundTimes round;
  std::vector<double> clocks;
  const bool empty_first = (session_.random()() & 1) != 0;
  if (empty_first) EmptyCall();
  for (const int side : order) {
    double us = 0;
    if (side == RoundAnswers::kReference) {
      us = round.reference_us = session_.TimeReferenceUs(slot);
    } else {
      TimedKernel& kernel = kernels_[static_cast<size_t>(side)];
      answers.BeforeCall();
      const CallTimes times = Time(kernel, slot, "measure");
      us = std::max(times.event_us - kernel.runner.offset_us, 1e-3);
      (side == 0 ? round.candidate_us : round.start_us) = us;
      if (side == 0) candidate_us_ = us;
      if (side == 0) round.believed = clock_.Believes(times.event_us, times.wall_us);
    }
    clocks.push_back(session_.ClockMhz());
    const std::string name =
        side == RoundAnswers::kReference ? "reference" : kernels_[static_cast<size_t>(side)].name;
    result_.samples.push_back({process, pair, phase, name, 1, us});
    answers.After(side);
  }
  if (!empty_first) EmptyCall();
  const auto [slowest, fastest] = std::minmax_element(clocks.begin(), clocks.end());
  round.same_clock = *slowest > *fastest * (1 - kSameClock);
  if (!round.believed) MarkSamples(samples, "disbelieved", &result_);
  round_s_ = SecondsSince(start);
  return round;
}

void GpuJudgement::Sequential() {
  SequentialPlan plan;
  sides_ = request_.start_in_test ? kernels_.size() : 1;
  plan.has_start = sides_ > 1;
  plan.patience = request_.patience;
  plan.most_rounds = kSequentialRounds;
  plan.least_rounds = kMinSequentialRounds;
  if (session_.reference_us() > kVeryLong_us) plan.least_rounds = plan.first_look = kRoundsIfVeryLong;
  plan.budget_s = kSequentialBudget_s;
  if (session_.reference_us() < kLong_us)
    TimedRound(0, -1, "warm-up");  // a long call warms up after verification
  plan.against_reference = CalibrationFor(1);
  plan.against_start = CalibrationFor(sides_);
  verdicts_ = RunSequentialTest(plan, [this](int pair) { return TimedRound(0, pair, "sequential"); });
}

// The context of each runner adds its own offset to a time. It is the same in all pairs, so no number of them
// averages it away: twice the error of the first `kernels` offsets is added.
ClockCalibration GpuJudgement::CalibrationFor(size_t kernels) const {
  ClockCalibration calibration = kGpuCalibration;
  for (size_t i = 0; i < kernels; ++i) {
    calibration.residual =
        std::hypot(calibration.residual, 2 * kernels_[i].runner.offset_se_us / std::max(candidate_us_, 1.0));
  }
  return calibration;
}

std::vector<RoundTimes> GpuJudgement::Fixed() {
  const bool very_long = session_.reference_us() > kVeryLong_us;
  const double factor = request_.confirm && session_.reference_us() < kLongest_us ? kConfirmFactor : 1;
  const int wanted = static_cast<int>(kFixedBudget_s * factor / round_s_);
  const int pairs = very_long
                        ? static_cast<int>(kRoundsIfVeryLong * factor)
                        : std::clamp(wanted, kMinFixedRounds, static_cast<int>(kMaxFixedRounds * factor));
  std::vector<RoundTimes> rounds;
  const bool start_joins = sides_ < kernels_.size();
  sides_ = kernels_.size();
  if (!very_long && (request_.confirm || start_joins)) TimedRound(1, -1, "warm-up");
  const int verified = static_cast<int>(session_.random()() % static_cast<uint64_t>(pairs));
  // A round that is not believed is made again, as long as most are believed.
  for (int tries = 0; static_cast<int>(rounds.size()) < pairs && tries < 2 * pairs; ++tries) {
    const int pair = static_cast<int>(rounds.size());
    is_verified_round_ = pair == verified;
    const RoundTimes round = TimedRound(1, pair, request_.confirm ? "confirm" : "fixed");
    is_verified_round_ = false;
    if (round.believed) rounds.push_back(round);
  }
  disbelieved_ = static_cast<int>(rounds.size()) < pairs
                     ? fmt::format("clock: in {} of {} timed calls the wall clock contradicts the events",
                                   2 * pairs - static_cast<int>(rounds.size()), 2 * pairs)
                     : "";
  const auto moved = [](const RoundTimes& round) { return !round.same_clock; };
  // Where the clock of the device changes in most pairs, all pairs count.
  if (2 * std::count_if(rounds.begin(), rounds.end(), moved) <= static_cast<int>(rounds.size()))
    std::erase_if(rounds, moved);
  return rounds;
}

std::vector<int> GpuJudgement::ProcessIds() {
  std::vector<int> ids = RunnerClient::ProcessIds();
  ids.push_back(getpid());
  return ids;
}

// What another process disturbed is measured again. Whether to do so depends on that process and on no time, so
// that nothing is chosen. Where it never ends, the last measurement stands, marked.
std::vector<RoundTimes> GpuJudgement::MeasureUndisturbed() {
  const OtherProcesses* others = session_.options().others;
  for (int tries = 1;; ++tries) {
    const size_t samples = result_.samples.size();
    const bool present = others && !others->Present(ProcessIds()).empty();
    const uint64_t since_us = OtherProcesses::NowUs();
    result_.shared_gpu = false;
    clock_ = CallClock();
    for (int i = 0; i < CallClock::kLeastEmpty; ++i) EmptyCall();
    if (!request_.confirm) Sequential();
    std::vector<RoundTimes> rounds = Fixed();
    if (!others || (!present && others->Present(ProcessIds()).empty())) return rounds;
    const std::vector<std::string> computed = others->Computed(ProcessIds(), since_us);
    if (computed.empty()) {
      session_.was_disturbed = false;
      return rounds;
    }
    result_.shared_gpu = true;
    result_.others = fmt::format("{}", fmt::join(computed, ", "));
    const bool last = session_.was_disturbed || tries == kQuietTries;
    session_.was_disturbed |= last;
    if (last) return rounds;
    MarkSamples(samples, "disturbed", &result_);
  }
}

// Device code could write to the memory of the events, but not to the clock of this process.
void GpuJudgement::RefuseForgedTimes() const {
  const std::string contradiction = clock_.Contradiction();
  if (!contradiction.empty()) throw Ended{Refused{contradiction}};
  if (!disbelieved_.empty()) throw Ended{Refused{disbelieved_}};
}

// Where the host is too busy for its clock to check the events, all is measured again after a rest. It was not the
// candidate: no code of its own runs in the empty calls that show it.
std::vector<RoundTimes> GpuJudgement::MeasureOnQuietHost() {
  for (int tries = 1;; ++tries) {
    const size_t samples = result_.samples.size();
    std::vector<RoundTimes> rounds = MeasureUndisturbed();
    const std::string contradiction = clock_.Contradiction();
    if ((contradiction.empty() && disbelieved_.empty()) || !clock_.IsHostBusy()) return rounds;
    if (tries == kQuietTries) {
      throw Error(ExitCode::kBroken,
                  "the host is too busy to check the GPU's clock: " +
                      (contradiction.empty() ? disbelieved_ : contradiction),
                  "end other programs, or give Kevin processors of its own (taskset)");
    }
    MarkSamples(samples, "disturbed", &result_);
    std::this_thread::sleep_for(kRestOnBusyHost);
  }
}

Measured GpuJudgement::Report(const std::vector<RoundTimes>& rounds) {
  RefuseForgedTimes();
  Measured measured = ReportRounds({&rounds, 1}, CalibrationFor(1), CalibrationFor(kernels_.size()),
                                   session_.sized(), verdicts_, verified_);
  if (measured.candidate_us < session_.FloorMicroseconds()) session_.MeasureFloorAgain();
  measured.floor_us = session_.FloorMicroseconds();
  RefuseImpossibleTime(measured, "on this device");
  return measured;
}

void GpuJudgement::GiveRunnersBack() {
  for (TimedKernel& kernel : kernels_) session_.GiveBack(std::move(kernel.runner));
  kernels_.clear();
}

}  // namespace

JudgeResult JudgeOnGpu(GpuSession& session, const GpuJudgeRequest& request) {
  return NamingDriverFailures([&] { return GpuJudgement(session, request).Run(); });
}

}  // namespace kevin
