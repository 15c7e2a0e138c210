#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <random>
#include <thread>

#include "env/error.h"
#include "env/gpu/judge/gpu_judgement.h"
#include "env/gpu/judge/round_answers.h"
#include "env/process/machine.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSequentialRounds = 80, kMinSequentialRounds = 6;
constexpr double kSequentialBudget_s = 0.12;
constexpr int kMinFixedRounds = 6, kMaxFixedRounds = 80, kEnoughRoundsAtLeast = 16;
// Of the part of an interval that pairs average away; the calibration alone takes 1.2 % on each side.
constexpr double kFixedHalfWidth = 0.005;
// Four pairs of calls that long are as exact as six of shorter ones, and have all members of the mixture. Nothing needs to
// warm up.
constexpr double kVeryLong_us = 3000, kLongest_us = 10000;
constexpr int kRoundsIfVeryLong = kMixtureMembers;
constexpr double kFixedBudget_s = 0.1, kConfirmFactor = 1.5;
constexpr int kQuietTries = 3;
constexpr std::chrono::milliseconds kRestOnBusyHost(300);
constexpr double kSameClock = 0.03;  // halves of a pair may differ by that share of the clock
// Noise that more pairs do not average away, as A/A measurements show it (tests/bench, the clock on a GPU).
constexpr ClockCalibration kGpuCalibration{0.003, 0.001, true};

}  // namespace

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
  if (IsVeryLong()) plan.least_rounds = plan.first_look = kRoundsIfVeryLong;
  plan.budget_s = kSequentialBudget_s;
  if (session_.reference_us() < kLong_us)
    TimedRound(0, -1, "warm-up");  // a long call warms up after verification
  plan.against_reference = CalibrationFor(1);
  plan.against_start = CalibrationFor(sides_);
  spread_.clear();
  verdicts_ = RunSequentialTest(plan, [this](int pair) {
    const RoundTimes round = TimedRound(0, pair, "sequential");
    if (round.same_clock && round.believed)
      spread_.push_back(std::log(round.reference_us / round.candidate_us));
    return round;
  });
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

bool GpuJudgement::IsVeryLong() const { return session_.reference_us() > kVeryLong_us; }

bool GpuJudgement::IsPlanFixed() const {
  const bool tests_start = request_.start_plan && request_.start_in_test;
  return IsVeryLong() && !tests_start;
}

int GpuJudgement::FixedPairs() const {
  const double factor = request_.confirm && session_.reference_us() < kLongest_us ? kConfirmFactor : 1;
  if (IsVeryLong()) return static_cast<int>(kRoundsIfVeryLong * factor);
  const int most = std::clamp(static_cast<int>(kFixedBudget_s * factor / round_s_), kMinFixedRounds,
                              static_cast<int>(kMaxFixedRounds * factor));
  if (request_.confirm || spread_.empty()) return most;
  return std::clamp(PairsFor(spread_, kFixedHalfWidth), std::min(kEnoughRoundsAtLeast, most), most);
}

std::vector<RoundTimes> GpuJudgement::Fixed() {
  const int pairs = FixedPairs();
  std::vector<RoundTimes> rounds;
  const bool start_joins = sides_ < kernels_.size();
  sides_ = kernels_.size();
  if (!IsVeryLong() && (request_.confirm || start_joins)) TimedRound(1, -1, "warm-up");
  const int verified = static_cast<int>(session_.random()() % static_cast<uint64_t>(pairs));
  const auto believed = [&rounds] { return static_cast<int>(rounds.size()); };
  int unmoved = 0;
  // A round that is not believed is made again, as long as most are believed, and so is one in which the clock of the
  // device changed.
  for (int tries = 0; unmoved < pairs && tries < 2 * pairs; ++tries) {
    is_verified_round_ = believed() == verified;
    const RoundTimes round = TimedRound(1, believed(), request_.confirm ? "confirm" : "fixed");
    is_verified_round_ = false;
    if (!round.believed) continue;
    rounds.push_back(round);
    unmoved += round.same_clock;
  }
  disbelieved_ = believed() < pairs
                     ? fmt::format("clock: in {} of {} timed calls the wall clock contradicts the events",
                                   2 * pairs - believed(), 2 * pairs)
                     : "";
  LeaveOutMoved(&rounds);
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
    if (!request_.confirm && !IsPlanFixed()) Sequential();
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
  if (!request_.confirm && IsPlanFixed() && measured.speedup.pairs >= kRoundsIfVeryLong)
    measured.verdict = VerdictOf(measured.speedup);
  if (measured.candidate_us < session_.FloorMicroseconds()) session_.MeasureFloorAgain();
  measured.floor_us = session_.FloorMicroseconds();
  RefuseImpossibleTime(measured, "on this device");
  return measured;
}

}  // namespace kevin
