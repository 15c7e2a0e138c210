#include "env/gpu/judge/python_judge.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

#include "env/error.h"
#include "env/gpu/judge/gpu_judge.h"
#include "env/process/machine.h"
#include "env/python/own_kernels.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kBatch_us = 5000;
constexpr int kPythonSequentialRounds = 40, kPythonLeastRounds = 8;
constexpr double kPythonSequentialBudget_s = 0.4, kPythonFixedBudget_s = 0.5, kPythonConfirmFactor = 2;
constexpr int kPythonLeastFixed = 10, kPythonMostFixed = 60;
constexpr double kAuditedRounds = 0.2, kSingleRounds = 0.25;
constexpr int kLeastCallsForSingles = 4;
constexpr size_t kLeastSingles = 5;
constexpr double kLeastShareOfSingle = 0.5, kSingleMargin = 0.9, kSingleSlack_us = 3, kMostWaits = 2;
constexpr int kQuietLooks = 20, kMostLateRounds = 2;
constexpr double kPythonSameClock = 0.03;
constexpr size_t kPythonScreenBatches = 5;
// Noise that more pairs do not average away; to be confirmed by A/A measurements (bench_gpu --part python).
constexpr ClockCalibration kGpuPythonCalibration{0.005, 0.003};

class GpuPythonJudgement {
 public:
  GpuPythonJudgement(GpuPythonSession& session, const GpuPythonRequest& request)
      : session_(session), base_(session.base()), request_(request), checker_(base_) {
    result_.seeds = base_.RenewKeys();
  }

  JudgeResult Run();

 private:
  void Phase(const std::string& name) const {
    if (request_.on_phase) request_.on_phase(name);
  }
  static bool IsCandidate(const PythonSide& side) { return side.name() == "candidate"; }
  [[noreturn]] void End(const PythonSide& side, const Outcome& outcome) const {
    EndJudgement(IsCandidate(side), outcome);
  }
  [[noreturn]] void Fail(PythonSide& side, const ProcessEnd& end, const std::string& phase) const;
  double RandomUnit() { return static_cast<double>(base_.random()() >> 11) * 0x1p-53; }

  const GpuPythonSession::Examined& Examine();
  void CheckOwnShare(const GpuPythonSession::Examined& examined);
  std::unique_ptr<PythonSide> StartSide(const std::string& name, const std::string& key, int bundle_fd);
  double RunReference(std::span<const uint16_t> slots);
  double RunSide(PythonSide& side, std::span<const uint16_t> slots, const std::string& phase,
                 const BatchPauses& pauses = {});
  void RequireQuiet(const PythonSide& side);
  void ComputeReference(std::span<const uint16_t> slots);
  void CheckOutputs(const PythonSide& side, std::span<const uint16_t> slots, size_t calls,
                    const std::vector<char>& changed = {});
  void CheckAlike(std::span<const uint16_t> slots);
  bool IsCorrectAlone(uint16_t slot);
  void Verify();
  void VerifyTwiceIfLate();
  void ChooseCalls();
  Measured Screen();
  RoundTimes TimedRound(int process, int pair, const std::string& phase);
  void SingleCall();
  void Audit();
  void Sequential();
  std::vector<RoundTimes> Fixed();
  std::vector<RoundTimes> MeasureUndisturbed();
  static std::vector<int> OwnProcesses();
  void RefuseSharedWork() const;
  Measured Report(const std::vector<RoundTimes>& rounds);

  GpuPythonSession& session_;
  GpuSession& base_;
  const GpuPythonRequest& request_;
  GpuChecker checker_;
  JudgeResult result_;
  std::string examined_error_;
  std::vector<std::unique_ptr<PythonSide>> sides_;  // the candidate first
  size_t sides_in_round_ = 1;
  CheckResult verified_;
  SequentialVerdicts verdicts_;
  std::vector<double> singles_us_, in_batch_us_, reference_singles_us_, reference_in_batch_us_;
  int least_calls_ = 1, most_calls_ = 1, late_rounds_ = 0;
  double candidate_us_ = 0, round_s_ = 0.05;
};

JudgeResult GpuPythonJudgement::Run() {
  const DeviceLock lock(base_.LockName(), LockMode::kExclusive, &result_.wait_s);
  const auto begin = Clock::now();
  auto measuring = begin;
  bool verified = false;
  try {
    Phase("verify");
    const GpuPythonSession::Examined& examined = Examine();
    sides_.push_back(StartSide("candidate", request_.candidate_key, request_.bundle_fd));
    VerifyTwiceIfLate();
    verified = true;
    measuring = Clock::now();
    result_.verify_s = std::chrono::duration<double>(measuring - begin).count();
    if (!request_.screen && !request_.verify_only) CheckOwnShare(examined);
    if (request_.verify_only) {
      result_.outcome = ReportErrors(verified_);
    } else if (request_.screen) {
      Phase("screen");
      session_.workers().Settle();
      result_.outcome = Screen();
    } else {
      if (request_.start_bundle_fd >= 0)
        sides_.push_back(StartSide("start", request_.start_key, request_.start_bundle_fd));
      Phase(request_.confirm ? "confirm" : "measure");
      session_.workers().Settle();
      result_.outcome = Report(MeasureUndisturbed());
    }
  } catch (const Ended& ended) {
    result_.outcome = ended.outcome;
  }
  (verified ? result_.measure_s : result_.verify_s) = SecondsSince(verified ? measuring : begin);
  if (!sides_.empty()) result_.log = sides_.front()->process().Log();
  sides_.clear();
  session_.workers().Settle();
  result_.device_s = SecondsSince(begin);
  return std::move(result_);
}

void GpuPythonJudgement::Fail(PythonSide& side, const ProcessEnd& end, const std::string& phase) const {
  const std::string log = side.process().Log();
  const std::string said = log.empty() ? "" : "; it printed: " + log.substr(0, 2000);
  const std::string first = examined_error_.empty() || examined_error_ == end.message
                                ? ""
                                : "; with compilers, its first calls: " + examined_error_;
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
  End(side, Crashed{end.message + " during " + phase + first + said});
}

const GpuPythonSession::Examined& GpuPythonJudgement::Examine() {
  const auto& examined =
      session_.Examine(request_.candidate_key, request_.bundle_fd, request_.examine_timeout_s);
  examined_error_ = examined.error;
  result_.own_share = OwnKernelShare(examined.kernels, request_.own_kernels);
  result_.device_us = examined.device_us;
  return examined;
}

void GpuPythonJudgement::CheckOwnShare(const GpuPythonSession::Examined& examined) {
  if (request_.rules != "kevin") return;
  if (!result_.own_share) {
    throw Ended{
        Refused{"the share of its own kernels is not known" +
                (examined.error.empty() ? std::string(": a profiler saw no kernel") : ": " + examined.error) +
                ", and the rules `kevin` ask for " + fmt::format("{:.0f} %", kLeastOwnShare * 100) +
                " (--rules open permits any)"}};
  }
  if (*result_.own_share >= kLeastOwnShare) return;
  throw Ended{Refused{fmt::format(
      "kernels of its own do {:.0f} % of the work, and the rules `kevin` ask for {:.0f} %: the rest is done by "
      "torch's library (--rules open permits that)",
      *result_.own_share * 100, kLeastOwnShare * 100)}};
}

std::unique_ptr<PythonSide> GpuPythonJudgement::StartSide(const std::string& name, const std::string& key,
                                                          int bundle_fd) {
  auto side = session_.Start(name, bundle_fd, session_.Examine(key, bundle_fd, request_.examine_timeout_s));
  if (const auto end = side->process().WaitReady(request_.call_timeout_s)) Fail(*side, *end, "load");
  return side;
}

double GpuPythonJudgement::RunReference(std::span<const uint16_t> slots) {
  const auto batch = session_.Run(session_.reference(), slots, 10 * request_.call_timeout_s);
  if (batch.end)
    throw Error(
        ExitCode::kBroken,
        "the reference worker ended: " + batch.end->message + "\n" + session_.reference().process().Log(),
        "try again; the evaluation is void");
  return batch.total_us;
}

// Every batch of a candidate is made here.
double GpuPythonJudgement::RunSide(PythonSide& side, std::span<const uint16_t> slots,
                                   const std::string& phase, const BatchPauses& pauses) {
  const auto batch = session_.Run(side, slots, request_.call_timeout_s, pauses);
  if (batch.end) Fail(side, *batch.end, phase);
  if (!batch.refused.empty()) End(side, Refused{batch.refused});
  RequireQuiet(side);
  if (std::string reason = session_.Changed(side, slots); !reason.empty())
    End(side, Refused{std::move(reason)});
  return batch.total_us;
}

// Work that goes on would take part of the other side's time.
void GpuPythonJudgement::RequireQuiet(const PythonSide& side) {
  if (session_.IsQuiet()) return;
  const OtherProcesses* others = base_.options().others;
  if (others && !others->Present(OwnProcesses()).empty()) return;  // theirs, and seen by MeasureUndisturbed
  if (session_.workers().Settle() && session_.IsQuiet()) return;   // the first kernels of a spare
  bool is_quiet = false;
  for (int look = 0; look < kQuietLooks && !is_quiet; ++look) is_quiet = session_.IsQuiet();
  if (is_quiet && ++late_rounds_ <= kMostLateRounds) return;
  End(side, Refused{"deferred work: its work goes on on the GPU after the end of a batch"});
}

void GpuPythonJudgement::ComputeReference(std::span<const uint16_t> slots) {
  for (const uint16_t slot : slots) base_.reference().RunSlot(slot);
  base_.Synchronize();
}

// `changed`: of a call, whether its inputs were drawn anew after its batch had begun.
void GpuPythonJudgement::CheckOutputs(const PythonSide& side, std::span<const uint16_t> slots, size_t calls,
                                      const std::vector<char>& changed) {
  if (std::string reason = session_.Take(side, slots, calls); !reason.empty())
    End(side, Refused{std::move(reason)});
  for (size_t call = 0; call < calls; ++call) {
    const CheckResult check = checker_.AgainstReference(slots[call]);
    if (check.ok) continue;
    if (!changed.empty() && changed[call])
      End(side, Refused{"worked ahead: a call answered its inputs as they were before it began"});
    End(side, WrongTimedAnswer(check));
  }
}

// What follows a batch of the reference is what follows a candidate's: neither is timed on a device that is more awake.
void GpuPythonJudgement::CheckAlike(std::span<const uint16_t> slots) {
  session_.IsQuiet();
  session_.Changed(session_.reference(), slots);
  if (!session_.Take(session_.reference(), slots, slots.size()).empty()) return;
  for (const uint16_t slot : slots) checker_.AgainstReference(slot);
}

void GpuPythonJudgement::Verify() {
  PythonSide& side = *sides_.front();
  const int calls =
      request_.screen ? 1
                      : std::min(kMixtureMembers + static_cast<int>(base_.random()() % 2), session_.slots());
  const std::vector<uint16_t> slots = session_.DrawSlots(calls);
  session_.Draw(slots, static_cast<int>(base_.random()() % kMixtureMembers));
  candidate_us_ = session_.CallUs(RunSide(side, slots, "verify"), slots.size());
  if (std::string reason = session_.Take(side, slots, slots.size()); !reason.empty())
    End(side, Refused{reason});
  ComputeReference(slots);
  for (const uint16_t slot : slots) {
    CheckResult check = checker_.AgainstTruth(slot);
    if (!check.ok && slot != slots.front() && !request_.screen && IsCorrectAlone(slot))
      check.message += kKeepsState;
    if (!check.ok) End(side, WrongAnswer(check));
    if (!IsNearerItsBound(verified_, check)) verified_ = check;
  }
  ChooseCalls();
}

// As the first call of a process, with the same inputs.
bool GpuPythonJudgement::IsCorrectAlone(uint16_t slot) {
  const std::span<const uint16_t> slots(&slot, 1);
  try {
    const auto side = StartSide("candidate", request_.candidate_key, request_.bundle_fd);
    RunSide(*side, slots, "verify");
    return session_.Take(*side, slots, 1).empty() && checker_.AgainstTruth(slot).ok;
  } catch (const Ended&) {
    return false;
  }
}

// A call that takes too long is confirmed once, in a fresh process: the machine may have been busy.
void GpuPythonJudgement::VerifyTwiceIfLate() {
  try {
    Verify();
  } catch (const Ended& ended) {
    if (request_.screen || !std::holds_alternative<TimedOut>(ended.outcome)) throw;
    sides_.front() = StartSide("candidate", request_.candidate_key, request_.bundle_fd);
    Verify();
  }
}

void GpuPythonJudgement::ChooseCalls() {
  const double faster_us = std::max(std::min(candidate_us_, session_.reference_us()), 0.1);
  most_calls_ = std::clamp(static_cast<int>(std::ceil(kBatch_us / faster_us)), 1, session_.slots());
  least_calls_ = std::max(1, most_calls_ * 2 / 3);
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

RoundTimes GpuPythonJudgement::TimedRound(int process, int pair, const std::string& phase) {
  const auto start = Clock::now();
  if (RandomUnit() < kAuditedRounds) Audit();
  const bool single_first = RandomUnit() < 0.5, has_single = RandomUnit() < kSingleRounds;
  if (has_single && single_first) SingleCall();
  const int calls = std::uniform_int_distribution<int>(least_calls_, most_calls_)(base_.random());
  const std::vector<uint16_t> slots = session_.DrawSlots(calls);
  session_.Draw(slots);
  std::vector<int> order{-1};  // the reference
  for (size_t i = 0; i < sides_in_round_; ++i) order.push_back(static_cast<int>(i));
  std::shuffle(order.begin(), order.end(), base_.random());
  ComputeReference(slots);
  RoundTimes round;
  std::vector<double> clocks;
  for (const int at : order) {
    PythonSide* side = at < 0 ? nullptr : sides_[static_cast<size_t>(at)].get();
    const double total_us = side == nullptr ? RunReference(slots) : RunSide(*side, slots, "measure");
    const double call_us = session_.CallUs(total_us, slots.size());
    clocks.push_back(base_.ClockMhz());
    const std::string name = side == nullptr ? "reference" : side->name();
    (side == nullptr      ? round.reference_us
     : IsCandidate(*side) ? round.candidate_us
                          : round.start_us) = call_us;
    result_.samples.push_back({process, pair, phase, name, calls, call_us * calls});
    if (side == nullptr) {
      CheckAlike(slots);
    } else {
      CheckOutputs(*side, slots, slots.size());
    }
  }
  if (has_single && !single_first) SingleCall();
  const auto [slowest, fastest] = std::minmax_element(clocks.begin(), clocks.end());
  round.same_clock = *slowest > *fastest * (1 - kPythonSameClock);
  in_batch_us_.push_back(round.candidate_us);
  reference_in_batch_us_.push_back(round.reference_us);
  candidate_us_ = std::min(candidate_us_, round.candidate_us);
  ChooseCalls();
  round_s_ = SecondsSince(start);
  return round;
}

// Of the candidate and of the reference.
void GpuPythonJudgement::SingleCall() {
  if (most_calls_ < kLeastCallsForSingles) return;
  const std::vector<uint16_t> slots = session_.DrawSlots(1);
  session_.Draw(slots);
  reference_singles_us_.push_back(session_.CallUs(RunReference(slots), 1));
  singles_us_.push_back(session_.CallUs(RunSide(*sides_.front(), slots, "measure"), 1));
  ComputeReference(slots);
  CheckOutputs(*sides_.front(), slots, 1);
}

void GpuPythonJudgement::Audit() {
  PythonSide& side = *sides_.front();
  const int calls = std::uniform_int_distribution<int>(least_calls_, most_calls_)(base_.random());
  if (calls < 2) return;
  const std::vector<uint16_t> slots = session_.DrawSlots(calls);
  session_.Draw(slots);
  std::vector<char> changed(slots.size(), 0);
  BatchPauses pauses;
  pauses.moments_us = {RandomUnit() * candidate_us_ * calls};
  pauses.on_pause = [&](double) {
    const size_t returned = std::min<size_t>(side.process().Returned(), slots.size());
    RequireQuiet(side);
    const std::span<const uint16_t> finished = std::span(slots).first(returned);
    ComputeReference(finished);
    const bool is_located = session_.Take(side, finished, returned).empty();
    for (size_t call = 0; call < returned; ++call) {
      if (!is_located || !checker_.AgainstReference(slots[call]).ok)
        End(side, Refused{"deferred work: a call that had returned had not finished its outputs"});
    }
    if (returned + 1 >= slots.size()) return;
    // The call that follows may be under way.
    const std::span<const uint16_t> later = std::span(slots).subspan(returned + 1);
    session_.Draw(later);
    session_.HandOut(side, later);
    std::fill(changed.begin() + static_cast<std::ptrdiff_t>(returned) + 1, changed.end(), 1);
  };
  RunSide(side, slots, "measure", pauses);
  ComputeReference(slots);
  CheckOutputs(side, slots, slots.size(), changed);
}

void GpuPythonJudgement::Sequential() {
  SequentialPlan plan;
  sides_in_round_ = request_.start_in_test ? sides_.size() : 1;
  plan.has_start = sides_in_round_ > 1;
  plan.patience = request_.patience;
  plan.most_rounds = kPythonSequentialRounds;
  plan.least_rounds = kPythonLeastRounds;
  plan.budget_s = kPythonSequentialBudget_s;
  plan.against_reference = plan.against_start = kGpuPythonCalibration;
  TimedRound(0, -1, "warm-up");
  plan.begin = Clock::now();
  verdicts_ = RunSequentialTest(plan, [this](int pair) { return TimedRound(0, pair, "sequential"); });
}

std::vector<RoundTimes> GpuPythonJudgement::Fixed() {
  const double factor = request_.confirm ? kPythonConfirmFactor : 1;
  const bool start_joins = sides_in_round_ < sides_.size();
  sides_in_round_ = sides_.size();
  if (request_.confirm || start_joins) TimedRound(1, -1, "warm-up");
  const int pairs = std::clamp(static_cast<int>(kPythonFixedBudget_s * factor / round_s_), kPythonLeastFixed,
                               static_cast<int>(kPythonMostFixed * factor));
  Audit();
  std::vector<RoundTimes> rounds;
  for (int pair = 0; pair < pairs; ++pair)
    rounds.push_back(TimedRound(1, pair, request_.confirm ? "confirm" : "fixed"));
  Audit();
  while (most_calls_ >= kLeastCallsForSingles && singles_us_.size() < kLeastSingles) SingleCall();
  const auto moved = [](const RoundTimes& round) { return !round.same_clock; };
  // Where the clock of the device changes in most pairs, all pairs count.
  if (2 * std::count_if(rounds.begin(), rounds.end(), moved) <= static_cast<int>(rounds.size()))
    std::erase_if(rounds, moved);
  return rounds;
}

std::vector<int> GpuPythonJudgement::OwnProcesses() {
  std::vector<int> ids = PythonSide::ProcessIds();
  for (const int id : RunnerClient::ProcessIds()) ids.push_back(id);
  ids.push_back(getpid());
  return ids;
}

// What another process disturbed is measured again, once; see GpuJudgement.
std::vector<RoundTimes> GpuPythonJudgement::MeasureUndisturbed() {
  const OtherProcesses* others = base_.options().others;
  for (int tries = 1;; ++tries) {
    const size_t samples = result_.samples.size();
    const bool present = others && !others->Present(OwnProcesses()).empty();
    const uint64_t since_us = OtherProcesses::NowUs();
    for (std::vector<double>* times :
         {&singles_us_, &in_batch_us_, &reference_singles_us_, &reference_in_batch_us_})
      times->clear();
    if (!request_.confirm) Sequential();
    std::vector<RoundTimes> rounds = Fixed();
    if (!others || (!present && others->Present(OwnProcesses()).empty())) return rounds;
    const std::vector<std::string> computed = others->Computed(OwnProcesses(), since_us);
    if (computed.empty()) return rounds;
    result_.shared_gpu = true;
    result_.others = fmt::format("{}", fmt::join(computed, ", "));
    if (tries > 1) return rounds;
    for (size_t i = samples; i < result_.samples.size(); ++i) result_.samples[i].phase = "disturbed";
  }
}

void GpuPythonJudgement::RefuseSharedWork() const {
  if (singles_us_.size() < kLeastSingles || in_batch_us_.empty()) return;
  const double alone_us = Median(singles_us_), in_batch_us = Median(in_batch_us_);
  if (in_batch_us >= kLeastShareOfSingle * kSingleMargin * alone_us) return;
  // What a call alone waits for beside its work is seen at the reference.
  const double waits_us = std::max(0.0, Median(reference_singles_us_) - Median(reference_in_batch_us_));
  if (alone_us - in_batch_us <= kMostWaits * waits_us + kSingleSlack_us) return;
  throw Ended{Refused{fmt::format(
      "shared work: a call takes {:.1f} us among others and {:.1f} us alone; each call must do its own work",
      in_batch_us, alone_us)}};
}

Measured GpuPythonJudgement::Report(const std::vector<RoundTimes>& rounds) {
  RefuseSharedWork();
  Measured measured = ReportRounds({&rounds, 1}, kGpuPythonCalibration, kGpuPythonCalibration, base_.sized(),
                                   verdicts_, verified_);
  measured.floor_us = base_.FloorMicroseconds();
  RefuseImpossibleTime(measured, "on this device");
  return measured;
}

}  // namespace

JudgeResult JudgePythonOnGpu(GpuPythonSession& session, const GpuPythonRequest& request) {
  return NamingDriverFailures([&] { return GpuPythonJudgement(session, request).Run(); });
}

}  // namespace kevin
