#include "env/cpu/judge.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <optional>

#include "env/cpu/audit.h"
#include "env/cpu/checker.h"
#include "env/cpu/peak.h"
#include "env/cpu/timed_process.h"
#include "env/error.h"
#include "env/process/machine.h"
#include "env/verdict/estimate.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kVerifyCalls = kMixtureMembers;  // one slot for each member of the input mixture, at least
constexpr int kSequentialRounds = 30;          // at most
constexpr double kSequentialBudget_s = 1.1;    // half as much again with a third side
constexpr int kRoundsOfProcess = 4;            // where there is patience for more than one process
constexpr int kFixedProcesses = 3;
constexpr double kFixedBudget_s = 1.0;
constexpr int kMinFixedRounds = 6, kMaxFixedRounds = 10;  // per process
constexpr double kConfirmFactor = 1.5;
constexpr double kAuditShare = 0.15;  // of rounds

// What one round of pairs gave: microseconds per call, NaN where that side was not timed.
struct Round {
  double candidate_us = 0, reference_us = 0, start_us = 0;
};

// Fresh processes of the candidate and, where there is one, of the kernel it is compared with.
struct Contenders {
  std::unique_ptr<Contender> candidate, start;

  std::vector<Contender*> All() const {
    std::vector<Contender*> all{candidate.get()};
    if (start) all.push_back(start.get());
    return all;
  }
};

class Judgement {
 public:
  Judgement(Session& session, const JudgeRequest& request)
      : session_(session), request_(request), checker_(session) {}

  JudgeResult Run() {
    try {
      auto first = VerifyPhase();
      if (request_.verify_only) {
        Measured right;
        right.max_error = verified_.max_error;
        right.error_bound = verified_.error_bound;
        result_.outcome = right;
      } else {
        MeasurePhase(std::move(first));
      }
    } catch (const Ended& ended) {
      result_.outcome = ended.outcome;
    }
    return std::move(result_);
  }

 private:
  void Phase(const std::string& name) const {
    if (request_.on_phase) request_.on_phase(name);
  }

  std::vector<const std::byte*> AnswerOf(const OutputMemory& outputs, size_t slot) const {
    std::vector<const std::byte*> pointers;
    for (size_t o = 0; o < session_.sized().outputs.size(); ++o)
      pointers.push_back(session_.Output(outputs, slot, o));
    return pointers;
  }
  std::vector<const std::byte*> ReferenceOf(size_t call) const {
    std::vector<const std::byte*> pointers;
    for (size_t o = 0; o < session_.sized().outputs.size(); ++o)
      pointers.push_back(session_.ReferenceOutput(call, o));
    return pointers;
  }

  double RunTwin(std::span<const uint16_t> slots) {
    double total_us = 0;
    const double limit_s = 10 * session_.options().limits.call_timeout_s;
    if (const auto end = session_.twin().RunBatch(slots, limit_s, &total_us)) TwinBroke(*end);
    return total_us;
  }
  void PublishTwin() {
    if (const auto end = session_.twin().Publish(60)) TwinBroke(*end);
  }
  [[noreturn]] void TwinBroke(const SideEnd& end) {
    throw Error(ExitCode::kBroken,
                "the reference process ended: " + end.message + "\n" + session_.twin().Log(),
                "try again; the evaluation is void");
  }

  void Fill(std::span<const uint16_t> slots, int member = -1) {
    result_.seeds.push_back(session_.FillInputs(slots, member));
    // What is poisoned last may still lie in a cache too large to flush: neither side has that for itself.
    const bool has_start = request_.start_library_fd >= 0;
    const bool start_first = has_start && session_.random()() % 2;
    if (start_first) session_.Poison(session_.StartOutputs(), slots);
    session_.Poison(session_.CandidateOutputs(), slots);
    if (has_start && !start_first) session_.Poison(session_.StartOutputs(), slots);
  }

  std::unique_ptr<Contender> StartCandidate() {
    return std::make_unique<Contender>(session_, "candidate", request_.library_fd,
                                       session_.CandidateOutputs());
  }

  std::unique_ptr<Contender> StartOther() {
    if (request_.start_library_fd < 0) return nullptr;
    return std::make_unique<Contender>(session_, "start", request_.start_library_fd, session_.StartOutputs());
  }

  Contenders StartWarm();
  std::unique_ptr<Contender> VerifyPhase();
  void VerifyOnce(Contender& contender, int calls);
  void CheckGuards(const Contender& contender, std::span<const uint16_t> slots) const;
  void MeasurePhase(std::unique_ptr<Contender> first);
  Round TimedRound(const std::vector<Contender*>& contenders, int process, int pair,
                   const std::string& phase);
  void AuditRound(Contender& contender);
  void CheckTimed(const Contender& contender, std::span<const uint16_t> slots);
  void ChooseCalls(Contender& contender);
  void SetCalls();
  void Sequential(Contenders contenders);
  void Fixed();
  Measured Report(const std::vector<std::vector<Round>>& rounds);
  double FloorFor(double candidate_us);

  Session& session_;
  const JudgeRequest& request_;
  Checker checker_;
  JudgeResult result_;
  CheckResult verified_;
  Verdict verdict_ = Verdict::kAmbiguous, verdict_against_start_ = Verdict::kAmbiguous;
  int min_calls_ = 1, max_calls_ = 1;
  double candidate_us_ = 0;  // per call, the least seen
  double round_s_ = 0.1;     // a whole round with drawing and checking
};

std::unique_ptr<Contender> Judgement::VerifyPhase() {
  Phase("verify");
  const auto start = Clock::now();
  std::unique_ptr<Contender> contender;
  bool timed_out = false;
  {
    const DeviceLock lock("cpu", LockMode::kShared, &result_.wait_s);
    try {
      contender = StartCandidate();
      VerifyOnce(*contender,
                 std::min(kVerifyCalls + static_cast<int>(session_.random()() % 2), session_.slots()));
    } catch (const Ended& ended) {
      if (!std::holds_alternative<TimedOut>(ended.outcome)) {
        if (contender) result_.log = contender->Log();
        result_.verify_s = SecondsSince(start) - result_.wait_s;
        throw;
      }
      timed_out = true;
    }
  }
  if (timed_out) {  // confirmed once, alone on the machine and with a single call
    const DeviceLock lock("cpu", LockMode::kExclusive, &result_.wait_s);
    try {
      contender = StartCandidate();
      VerifyOnce(*contender, 1);
    } catch (const Ended&) {
      result_.verify_s = SecondsSince(start) - result_.wait_s;
      throw;
    }
  }
  result_.log = contender->Log();
  result_.verify_s = SecondsSince(start) - result_.wait_s;
  return contender;
}

void Judgement::VerifyOnce(Contender& contender, int calls) {
  const std::vector<uint16_t> slots = session_.DrawSlots(calls);
  Fill(slots, static_cast<int>(session_.random()() % kMixtureMembers));
  const double total_us = contender.Run(slots, "verify");
  candidate_us_ = total_us / calls;
  CheckGuards(contender, slots);
  RunTwin(slots);
  PublishTwin();
  for (size_t call = 0; call < slots.size(); ++call) {
    const CheckResult check = checker_.AgainstTruth(
        slots[call], AnswerOf(session_.CandidateOutputs(), slots[call]), ReferenceOf(call));
    if (!check.ok) throw Ended{Wrong{check.message, check.max_error, check.error_bound}};
    if (check.max_error * verified_.error_bound >= verified_.max_error * check.error_bound) verified_ = check;
  }
}

void Judgement::CheckGuards(const Contender& contender, std::span<const uint16_t> slots) const {
  const std::string broken = session_.BrokenGuard(contender.outputs(), slots);
  if (!broken.empty()) contender.End(Wrong{broken, 0, 0});
}

void Judgement::CheckTimed(const Contender& contender, std::span<const uint16_t> slots) {
  CheckGuards(contender, slots);
  for (size_t call = 0; call < slots.size(); ++call) {
    const CheckResult check =
        checker_.AgainstReference(slots[call], AnswerOf(contender.outputs(), slots[call]), ReferenceOf(call));
    if (!check.ok)
      contender.End(Wrong{"in a timed call: " + check.message, check.max_error, check.error_bound});
  }
}

// A batch must be long enough for the faster side, unless the candidate is so slow that its own length
// decides.
void Judgement::ChooseCalls(Contender& contender) {
  const std::vector<uint16_t> slots = session_.DrawSlots(std::min(3, session_.slots()));
  Fill(slots);
  candidate_us_ = contender.Run(slots, "measure") / static_cast<double>(slots.size());
  SetCalls();
}

void Judgement::SetCalls() {
  const double slower = std::max(candidate_us_, session_.reference_us());
  const double faster = std::min(candidate_us_, session_.reference_us());
  const double deciding = candidate_us_ > 2 * session_.reference_us() ? slower : faster;
  const int most = std::max(std::min(session_.slots(), 2), session_.slots() * 2 / 3);
  min_calls_ = std::clamp(static_cast<int>(std::ceil(kMinBatch_us / deciding)), std::min(2, most), most);
  max_calls_ = std::clamp(min_calls_ + 1 + min_calls_ / 4, min_calls_, session_.slots());
}

Round Judgement::TimedRound(const std::vector<Contender*>& contenders, int process, int pair,
                            const std::string& phase) {
  const auto start = Clock::now();
  const int calls = std::uniform_int_distribution<int>(min_calls_, max_calls_)(session_.random());
  const std::vector<uint16_t> slots = session_.DrawSlots(calls);
  Fill(slots);
  // Sides in random order; -1 is the reference.
  std::vector<int> order{-1};
  for (size_t i = 0; i < contenders.size(); ++i) order.push_back(static_cast<int>(i));
  std::shuffle(order.begin(), order.end(), session_.random());
  Round round;
  for (const int side : order) {
    FlushCaches(session_.options().threads);
    if (side < 0) PauseBeforeTurn();  // a contender pauses by itself
    const double total_us =
        side < 0 ? RunTwin(slots) : contenders[static_cast<size_t>(side)]->Run(slots, "measure");
    for (size_t i = 0; i < contenders.size(); ++i) {
      if (static_cast<int>(i) != side) contenders[i]->AddOtherWindow(total_us);
    }
    const std::string name = side < 0 ? "reference" : contenders[static_cast<size_t>(side)]->side();
    const double per_call_us = total_us / calls;
    (name == "reference" ? round.reference_us
     : name == "start"   ? round.start_us
                         : round.candidate_us) = per_call_us;
    result_.samples.push_back({process, pair, phase, name, calls, total_us});
  }
  PublishTwin();
  for (const Contender* contender : contenders) CheckTimed(*contender, slots);
  // Batches only get longer: a candidate that was slow at first must not keep them short.
  candidate_us_ = std::min(candidate_us_, round.candidate_us);
  SetCalls();
  round_s_ = SecondsSince(start);
  return round;
}

void Judgement::AuditRound(Contender& contender) {
  const std::vector<uint16_t> slots =
      session_.DrawSlots(std::uniform_int_distribution<int>(min_calls_, max_calls_)(session_.random()));
  Fill(slots);
  Audit audit(session_, contender.process(), contender.outputs(), slots,
              candidate_us_ * static_cast<double>(slots.size()));
  contender.Run(slots, "measure", [&] { audit.Watch(); });
  CheckGuards(contender, slots);
  if (audit.Deferred()) {
    throw Ended{Refused{"deferred work: a call that had returned had not finished its outputs"}};
  }
  // The reference comes second here, with the inputs as they are after the changes.
  contender.AddOtherWindow(RunTwin(slots));
  PublishTwin();
  for (size_t call = 0; call < slots.size(); ++call) {
    if (audit.InputsOf(call) == Audit::Inputs::kChangedPerhapsDuring) continue;
    const CheckResult check =
        checker_.AgainstReference(slots[call], AnswerOf(contender.outputs(), slots[call]), ReferenceOf(call));
    if (check.ok) continue;
    if (audit.InputsOf(call) == Audit::Inputs::kChangedBefore) {
      throw Ended{
          Refused{"worked ahead: a call's answer was made from its inputs as they were before it began"}};
    }
    throw Ended{Wrong{"in a timed call: " + check.message, check.max_error, check.error_bound}};
  }
}

Contenders Judgement::StartWarm() {
  Contenders fresh{StartCandidate(), StartOther()};
  const std::vector<uint16_t> slots = session_.DrawSlots(max_calls_);
  Fill(slots);
  for (Contender* contender : fresh.All()) contender->Run(slots, "measure");
  RunTwin(slots);
  for (Contender* contender : fresh.All()) contender->StartCounting();
  return fresh;
}

void Judgement::Sequential(Contenders contenders) {
  const int first_look =
      request_.patience > 1 ? SequentialTest::kFirstLookOverProcesses : SequentialTest::kFirstLook;
  SequentialTest against_reference({}, first_look), against_start({}, first_look);
  const bool has_start = contenders.start != nullptr;
  const double budget_s = kSequentialBudget_s * (has_start ? 1.5 : 1);
  const auto begin = Clock::now();
  bool audited = false;
  for (int pair = 0;; ++pair) {
    // A process is a little faster or slower than the next of the same program for as long as it lives: no
    // number of pairs with one of them averages that away.
    if (request_.patience > 1 && pair > 0 && pair % kRoundsOfProcess == 0) {
      contenders.candidate->CheckOutside();
      contenders = {};
      contenders = StartWarm();
      against_reference.StartProcess();
      against_start.StartProcess();
    }
    if (std::bernoulli_distribution(kAuditShare)(session_.random())) {
      AuditRound(*contenders.candidate);
      audited = true;
    }
    const Round round = TimedRound(contenders.All(), 0, pair, "sequential");
    against_reference.Add(std::log(round.reference_us / round.candidate_us));
    if (has_start) against_start.Add(std::log(round.start_us / round.candidate_us));
    // A verdict once given stands: looking on would be choosing when to stop.
    if (verdict_ == Verdict::kAmbiguous) verdict_ = against_reference.Current();
    if (has_start && verdict_against_start_ == Verdict::kAmbiguous)
      verdict_against_start_ = against_start.Current();
    const bool open = (has_start ? verdict_against_start_ : verdict_) == Verdict::kAmbiguous;
    if (!open && verdict_ != Verdict::kAmbiguous) break;
    const double patience = open ? request_.patience : 1;
    if (pair + 1 >= kSequentialRounds * patience || (SecondsSince(begin) > budget_s * patience && pair >= 8))
      break;
  }
  if (!audited) AuditRound(*contenders.candidate);
  contenders.candidate->CheckOutside();
}

void Judgement::Fixed() {
  const double factor = request_.confirm ? kConfirmFactor : 1;
  const int rounds_each = std::clamp(static_cast<int>(kFixedBudget_s * factor / kFixedProcesses / round_s_),
                                     kMinFixedRounds, static_cast<int>(kMaxFixedRounds * factor));
  std::vector<std::vector<Round>> rounds;
  for (int process = 1; process <= kFixedProcesses; ++process) {
    const Contenders contenders = StartWarm();
    rounds.emplace_back();
    bool audited = false;
    for (int pair = 0; pair < rounds_each; ++pair) {
      if (std::bernoulli_distribution(kAuditShare)(session_.random())) {
        AuditRound(*contenders.candidate);
        audited = true;
      }
      rounds.back().push_back(
          TimedRound(contenders.All(), process, pair, request_.confirm ? "confirm" : "fixed"));
    }
    // Last, so that having been audited never means being unwatched.
    if (!audited) AuditRound(*contenders.candidate);
    contenders.candidate->CheckOutside();
  }
  result_.outcome = Report(rounds);
}

// A busy machine may have hidden how fast its memory is, so a floor that would refuse is measured again
// first.
double Judgement::FloorFor(double candidate_us) {
  constexpr int kTries = 20;
  for (int i = 0; i < kTries && candidate_us < session_.FloorMicroseconds(); ++i) session_.MeasureFloor();
  return session_.FloorMicroseconds();
}

Measured Judgement::Report(const std::vector<std::vector<Round>>& rounds) {
  std::vector<std::vector<double>> against_reference, against_start;
  std::vector<double> candidate_us, reference_us;
  for (const auto& process : rounds) {
    against_reference.emplace_back();
    against_start.emplace_back();
    for (const Round& round : process) {
      against_reference.back().push_back(std::log(round.reference_us / round.candidate_us));
      if (round.start_us > 0) against_start.back().push_back(std::log(round.start_us / round.candidate_us));
      candidate_us.push_back(round.candidate_us);
      reference_us.push_back(round.reference_us);
    }
  }
  const auto median = [](std::vector<double>& values) {
    std::sort(values.begin(), values.end());
    const size_t middle = values.size() / 2;
    return values.size() % 2 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
  };
  Measured measured;
  measured.speedup = EstimateRatio(against_reference);
  if (request_.start_library_fd >= 0) measured.against_start = EstimateRatio(against_start);
  measured.verdict = verdict_;
  measured.verdict_against_start = verdict_against_start_;
  measured.candidate_us = median(candidate_us);
  measured.reference_us = median(reference_us);
  measured.gb_per_s = session_.sized().bytes / measured.candidate_us * 1e-3;
  measured.gflop_per_s = session_.sized().flops / measured.candidate_us * 1e-3;
  measured.floor_us = FloorFor(measured.candidate_us);
  measured.max_error = verified_.max_error;
  measured.error_bound = verified_.error_bound;
  if (measured.candidate_us < measured.floor_us) {
    throw Ended{Refused{
        fmt::format("impossible time: {:.2f} us a call, but no correct kernel can need less than {:.2f} us "
                    "on this machine",
                    measured.candidate_us, measured.floor_us)}};
  }
  return measured;
}

void Judgement::MeasurePhase(std::unique_ptr<Contender> first) {
  const DeviceLock lock("cpu", LockMode::kExclusive, &result_.wait_s);
  Phase(request_.confirm ? "confirm" : "measure");
  const auto begin = Clock::now();
  try {
    ChooseCalls(*first);
    Contenders contenders{std::move(first), StartOther()};
    TimedRound(contenders.All(), 0, -1, "warm-up");
    for (Contender* contender : contenders.All()) contender->StartCounting();
    if (!request_.confirm) Sequential(std::move(contenders));
    contenders = {};
    Fixed();
  } catch (const Ended&) {
    result_.measure_s = SecondsSince(begin);
    throw;
  }
  result_.measure_s = SecondsSince(begin);
}

}  // namespace

JudgeResult JudgeLibrary(Session& session, const JudgeRequest& request) {
  return Judgement(session, request).Run();
}

}  // namespace kevin
