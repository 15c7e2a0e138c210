#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>

#include "env/error.h"
#include "env/gpu/judge/python_judgement.h"
#include "env/process/machine.h"
#include "env/verdict/estimate.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;

constexpr double kBatch_us = 5000;
constexpr int kPythonSequentialRounds = 40, kPythonLeastRounds = 8;
constexpr double kPythonSequentialBudget_s = 0.3, kPythonFixedBudget_s = 0.4, kPythonConfirmFactor = 2;
constexpr int kPythonLeastFixed = 10, kPythonMostFixed = 60;
// Of what pairs average away. The calibration adds as much and more, so that further pairs gain little.
constexpr double kEnoughHalfWidth = 0.01;
constexpr double kAuditedRounds = 0.2, kSingleRounds = 0.25;
constexpr int kLeastCallsForSingles = 2;
constexpr size_t kLeastSingles = 5;
constexpr int kSharedTries = 3;
constexpr double kLeastShareOfSingle = 0.5, kSingleMargin = 0.9, kSingleSlack_us = 3, kMostWaits = 2;
constexpr double kLeastShareOfDevice = 0.85;
constexpr double kPythonSameClock = 0.03;
// Noise that more pairs do not average away; to be confirmed by A/A measurements (bench_gpu --part python).
constexpr ClockCalibration kGpuPythonCalibration{0.005, 0.003};

}  // namespace

double GpuPythonJudgement::RunReference(std::span<const uint16_t> slots) {
  const auto batch = session_.Run(session_.reference(), slots, 10 * request_.call_timeout_s);
  if (batch.end)
    throw Error(
        ExitCode::kBroken,
        "the reference worker ended: " + batch.end->message + "\n" + session_.reference().process().Log(),
        "try again; the evaluation is void");
  return batch.total_us;
}

// With a hundred calls of eager as the least, which no kernel reaches by being half as fast as eager.
double GpuPythonJudgement::EvaluationLimit_s() const {
  constexpr double kEagerCalls = 100;
  return std::max(request_.evaluation_timeout_s, kEagerCalls * session_.reference_us() * 1e-6) *
         std::max(1.0, request_.patience);
}

// Every batch of a candidate is made here.
double GpuPythonJudgement::RunSide(PythonSide& side, std::span<const uint16_t> slots,
                                   const std::string& phase, const BatchPauses& pauses) {
  const uint64_t since_us = OtherProcesses::NowUs();
  const double calls_s = request_.call_timeout_s * static_cast<double>(slots.size()),
               left_s = IsCandidate(side) ? EvaluationLimit_s() - candidate_s_ : calls_s;
  const auto batch = session_.Run(side, slots, std::min(calls_s, left_s), pauses);
  const bool is_late = batch.end && batch.end->kind == ProcessEnd::Kind::kTimedOut;
  if (is_late && left_s < calls_s)
    End(side, TimedOut{"the whole evaluation (evaluation_timeout_s)", EvaluationLimit_s()});
  if (batch.end) Fail(side, *batch.end, phase);
  if (IsCandidate(side)) candidate_s_ += batch.total_us * 1e-6;
  if (!batch.refused.empty()) End(side, Refused{batch.refused});
  RequireQuiet(side, since_us);
  if (std::string reason = session_.Changed(side, slots); !reason.empty())
    End(side, Refused{std::move(reason)});
  return batch.total_us;
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
  if (checker_.AreSurelyCorrect(slots.first(calls))) return;
  for (size_t call = 0; call < calls; ++call) {
    const CheckResult check = checker_.AgainstReference(slots[call]);
    if (check.ok) continue;
    if (!changed.empty() && changed[call]) End(side, Refused{kWorkedAhead});
    End(side, WrongTimedAnswer(check));
  }
}

// By the whole rule, as in verification: the candidate cannot tell which call it is.
void GpuPythonJudgement::VerifyOneOf(const PythonSide& side, std::span<const uint16_t> slots) {
  const CheckResult check = checker_.VerifyTimed(slots[base_.random()() % slots.size()]);
  if (!check.ok) End(side, WrongTimedAnswer(check));
}

// What follows a batch of the reference is what follows a candidate's: neither is timed on a device that is more awake.
void GpuPythonJudgement::CheckAlike(std::span<const uint16_t> slots) {
  session_.IsQuiet();
  session_.Changed(session_.reference(), slots);
  if (!session_.Take(session_.reference(), slots, slots.size()).empty()) return;
  if (checker_.AreSurelyCorrect(slots)) return;
  for (const uint16_t slot : slots) checker_.AgainstReference(slot);
}

// As CallsOfBatch of the CPU: one call where that is long enough for one side, so that there is no other call to share
// work with. Else long enough for the faster side, unless the candidate is so slow that its length decides.
void GpuPythonJudgement::ChooseCalls() {
  const double reference_us = session_.reference_us(), slower_us = std::max(candidate_us_, reference_us);
  const bool is_slow = candidate_us_ > kSlowerThanEager * reference_us;
  least_calls_ = most_calls_ = 1;
  most_reference_calls_ = is_slow ? CallsOfBatch(reference_us) : 1;
  if (slower_us >= kBatch_us) return;
  most_calls_ = CallsOfBatch(is_slow ? slower_us : std::min(candidate_us_, reference_us));
  least_calls_ = LeastCalls(most_calls_);
}

// At least the candidate's: beside as few as a slow candidate's batch has, eager's own would be mostly the cost of a batch.
int GpuPythonJudgement::ReferenceCalls(int calls) {
  if (most_reference_calls_ <= most_calls_) return calls;
  return std::max(calls, std::uniform_int_distribution<int>(LeastCalls(most_reference_calls_),
                                                            most_reference_calls_)(base_.random()));
}

int GpuPythonJudgement::CallsOfBatch(double call_us) const {
  return std::clamp(static_cast<int>(std::ceil(kBatch_us / std::max(call_us, 0.1))), 1, session_.slots());
}

RoundTimes GpuPythonJudgement::TimedRound(int process, int pair, const std::string& phase) {
  const auto start = Clock::now();
  if (RandomUnit() < kAuditedRounds) Audit();
  const bool single_first = RandomUnit() < 0.5, has_single = RandomUnit() < kSingleRounds;
  if (has_single && single_first) SingleCall();
  const int calls = std::uniform_int_distribution<int>(least_calls_, most_calls_)(base_.random());
  const std::vector<uint16_t> drawn = session_.DrawSlots(ReferenceCalls(calls));
  const std::span<const uint16_t> slots = std::span(drawn).first(static_cast<size_t>(calls));
  session_.Draw(drawn, members_.Next(base_.random()));
  std::vector<int> order{-1};  // the reference
  for (size_t i = 0; i < sides_in_round_; ++i) order.push_back(static_cast<int>(i));
  std::shuffle(order.begin(), order.end(), base_.random());
  ComputeReference(slots);
  RoundTimes round;
  std::vector<double> clocks;
  for (const int at : order) {
    PythonSide* side = at < 0 ? nullptr : sides_[static_cast<size_t>(at)].get();
    const std::span<const uint16_t> called = side == nullptr ? std::span(drawn) : slots;
    const double total_us = side == nullptr ? RunReference(called) : RunSide(*side, called, "measure");
    const double call_us = session_.CallUs(total_us, called.size());
    clocks.push_back(base_.ClockMhz());
    const std::string name = side == nullptr ? "reference" : side->name();
    (side == nullptr      ? round.reference_us
     : IsCandidate(*side) ? round.candidate_us
                          : round.start_us) = call_us;
    const int count = static_cast<int>(called.size());
    result_.samples.push_back({process, pair, phase, name, count, call_us * count});
    if (side == nullptr) {
      CheckAlike(slots);
    } else {
      CheckOutputs(*side, slots, slots.size());
      if (is_verified_round_ && IsCandidate(*side)) VerifyOneOf(*side, slots);
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
  reference_singles_us_.push_back(session_.SingleUs(RunReference(slots)));
  singles_us_.push_back(session_.SingleUs(RunSide(*sides_.front(), slots, "measure")));
  ComputeReference(slots);
  CheckOutputs(*sides_.front(), slots, 1);
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
  std::vector<double> log_ratios;
  verdicts_ = RunSequentialTest(plan, [&](int pair) {
    const RoundTimes round = TimedRound(0, pair, "sequential");
    log_ratios.push_back(std::log(round.reference_us / round.candidate_us));
    return round;
  });
  enough_pairs_ = sides_in_round_ > 1 ? kPythonMostFixed : PairsFor(std::move(log_ratios), kEnoughHalfWidth);
}

std::vector<RoundTimes> GpuPythonJudgement::Fixed() {
  const double factor = request_.confirm ? kPythonConfirmFactor : 1;
  const bool start_joins = sides_in_round_ < sides_.size();
  sides_in_round_ = sides_.size();
  if (request_.confirm || start_joins) TimedRound(1, -1, "warm-up");
  const int in_time = static_cast<int>(kPythonFixedBudget_s * factor / round_s_),
            most = request_.confirm ? static_cast<int>(kPythonMostFixed * factor)
                   : start_joins    ? kPythonMostFixed
                                    : enough_pairs_;
  const int pairs = std::max(std::min(in_time, most), kPythonLeastFixed);
  Audit();
  std::vector<RoundTimes> rounds;
  const int verified = static_cast<int>(base_.random()() % static_cast<uint64_t>(pairs));
  for (int pair = 0; pair < pairs; ++pair) {
    is_verified_round_ = pair == verified;
    rounds.push_back(TimedRound(1, pair, request_.confirm ? "confirm" : "fixed"));
  }
  is_verified_round_ = false;
  AuditEnough();
  while (most_calls_ >= kLeastCallsForSingles && singles_us_.size() < kLeastSingles) SingleCall();
  LeaveOutMoved(&rounds);
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
    result_.shared_gpu = false;
    late_rounds_ = audits_ = 0;
    session_.RenewBatchCost();
    if (!request_.confirm) Sequential();
    std::vector<RoundTimes> rounds = Fixed();
    if (!others || (!present && others->Present(OwnProcesses()).empty())) return rounds;
    const std::vector<std::string> computed = others->Computed(OwnProcesses(), since_us);
    if (computed.empty()) return rounds;
    result_.shared_gpu = true;
    result_.others = fmt::format("{}", fmt::join(computed, ", "));
    if (tries > 1) return rounds;
    MarkSamples(samples, "disturbed", &result_);
  }
}

// Why the latest measurement shows calls that share work; empty where it does not.
std::string GpuPythonJudgement::SharedWork() const {
  if (singles_us_.size() < kLeastSingles || in_batch_us_.empty()) return "";
  // A busy machine makes single calls late, some much: the least of them is nearest to a call's work.
  const double alone_us = std::ranges::min(singles_us_), in_batch_us = Median(in_batch_us_);
  if (examined_.least_us && in_batch_us < kLeastShareOfDevice * *examined_.least_us - kSingleSlack_us)
    return fmt::format(
        "shared work: a call takes {:.1f} us among others and keeps the device busy for {:.1f} us alone; calls may not "
        "run at once, and each must do its own work",
        in_batch_us, *examined_.least_us);
  if (in_batch_us >= kLeastShareOfSingle * kSingleMargin * alone_us) return "";
  // What a call alone waits for beside its work is seen at the reference.
  const double waits_us =
      std::max(0.0, std::ranges::min(reference_singles_us_) - Median(reference_in_batch_us_));
  if (alone_us - in_batch_us <= kMostWaits * waits_us + kSingleSlack_us) return "";
  return fmt::format(
      "shared work: a call takes {:.1f} us among others and {:.1f} us alone; each call must do its own work",
      in_batch_us, alone_us);
}

// A load of the machine can look like shared work, in one measurement. Work that is shared shows in each. What is reported
// is a measurement without it.
std::vector<RoundTimes> GpuPythonJudgement::MeasureUnshared() {
  for (int tries = 1;; ++tries) {
    const size_t samples = result_.samples.size();
    std::vector<RoundTimes> rounds = MeasureUndisturbed();
    std::string reason = SharedWork();
    if (reason.empty()) return rounds;
    if (tries == kSharedTries) throw Ended{Refused{std::move(reason)}};
    MarkSamples(samples, "disturbed", &result_);
  }
}

Measured GpuPythonJudgement::Report(const std::vector<RoundTimes>& rounds) {
  Measured measured = ReportRounds({&rounds, 1}, kGpuPythonCalibration, kGpuPythonCalibration, base_.sized(),
                                   verdicts_, verified_);
  if (measured.candidate_us < base_.FloorMicroseconds()) base_.MeasureFloorAgain();
  measured.floor_us = base_.FloorMicroseconds();
  RefuseImpossibleTime(measured, "on this device");
  return measured;
}

}  // namespace kevin
