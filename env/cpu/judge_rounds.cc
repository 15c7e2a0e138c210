#include <algorithm>
#include <chrono>
#include <functional>
#include <optional>
#include <random>
#include <thread>
#include <tuple>

#include "env/cpu/cpu_judgement.h"
#include "env/cpu/peak.h"
#include "env/error.h"
#include "env/process/machine.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kSequentialRounds = 30, kMinSequentialRounds = 8;
constexpr int kRoundsOfProcess = 4;  // where there is patience for more than one process
constexpr double kConfirmFactor = 1.5, kSuspectedFactor = 3;
constexpr int kMoreAudits = 12;  // at most, until there are enough of the pace
constexpr size_t kRoundsOfUsualTime = 5;
constexpr double kEagerCallsOfEvaluation =
    100;  // a limit that no kernel reaches by being half as fast as eager
// Fresh processes instead of those that used CPU time outside their own calls. An attack does that in each of them.
constexpr int kMostDisturbedProcesses = 2;

void KeepUsualTime(double time_us, std::vector<double>* times_us) {
  times_us->push_back(time_us);
  if (times_us->size() > kRoundsOfUsualTime) times_us->erase(times_us->begin());
}

}  // namespace

double CpuJudgement::RunReference(std::span<const uint16_t> slots) {
  double total_us = 0;
  const double limit_s = 10 * session_.options().limits.call_timeout_s;
  session_.reference_process().CpuSeconds();  // takes the time that it takes before a candidate's batch
  if (const auto end = session_.reference_process().RunBatch(slots, limit_s, &total_us)) ReferenceEnded(*end);
  return total_us;
}

void CpuJudgement::PublishReference() {
  if (const auto end = session_.reference_process().Publish(60)) ReferenceEnded(*end);
}

void CpuJudgement::ReferenceEnded(const ProcessEnd& end) {
  throw Error(ExitCode::kBroken,
              "the reference process ended: " + end.message + "\n" + session_.reference_process().Log(),
              "try again; the evaluation is void");
}

void CpuJudgement::Fill(std::span<const uint16_t> slots, int member, int ordinary_call) {
  first_member_ = session_.FillInputs(slots, member);
  // What is written last may still be in a cache too large to flush: no side has this advantage.
  std::vector<std::function<void()>> sides = {
      [&] { session_.PoisonOutputs(session_.CandidateOutputs(), slots, ordinary_call); },
      [&] { session_.RestoreReference(slots); }};
  if (request_.start_library_fd >= 0)
    sides.emplace_back([&] { session_.PoisonOutputs(session_.StartOutputs(), slots); });
  std::shuffle(sides.begin(), sides.end(), session_.random());
  for (const auto& write : sides) write();
}

// Without what an earlier process, of this candidate or of another one, has left in outputs of unused slots.
std::unique_ptr<TimedProcess> CpuJudgement::StartCandidate(Loading loading) {
  session_.PoisonOutputs(session_.CandidateOutputs(), session_.DrawSlots(session_.slots()));
  return std::make_unique<TimedProcess>(session_, "candidate", request_.library_fd,
                                        session_.CandidateOutputs(), 0, loading);
}

std::unique_ptr<TimedProcess> CpuJudgement::StartOther(Loading loading) {
  if (request_.start_library_fd < 0) return nullptr;
  return std::make_unique<TimedProcess>(session_, "start", request_.start_library_fd, session_.StartOutputs(),
                                        0, loading);
}

// To map the slots takes most of it.
Processes CpuJudgement::StartProcesses(bool with_start) {
  using enum Loading;
  Processes fresh;
  if (with_start) fresh.start = StartOther(kBegun);
  fresh.candidate = StartCandidate(kBegun);
  for (TimedProcess* process : fresh.All()) process->AwaitLoaded();
  return fresh;
}

// Ends with `timed_out` where all batches together take too long.
double CpuJudgement::RunCandidate(TimedProcess& process, std::span<const uint16_t> slots,
                                  const std::string& phase, const BatchPauses& pauses) {
  const double total_us = process.Run(slots, phase, pauses);
  candidate_s_ += total_us * 1e-6;
  const double limit_s = std::max(session_.options().limits.evaluation_timeout_s,
                                  kEagerCallsOfEvaluation * session_.reference_us() * 1e-6) *
                         std::max(1.0, request_.patience);
  if (candidate_s_ > limit_s) throw Ended{TimedOut{"the whole evaluation (evaluation_timeout_s)", limit_s}};
  return total_us;
}

void CpuJudgement::CheckGuards(const TimedProcess& process, std::span<const uint16_t> slots) const {
  if (const std::string broken = session_.BrokenGuard(process.outputs(), slots); !broken.empty())
    process.End(Wrong{broken, 0, 0});
}

void CpuJudgement::CheckTimed(const TimedProcess& process, std::span<const uint16_t> slots) {
  CheckGuards(process, slots);
  // By the whole rule, as in verification: the candidate cannot tell which call it is.
  const size_t verified =
      is_verified_round_ && process.name() == "candidate" ? session_.random()() % slots.size() : slots.size();
  for (size_t call = 0; call < slots.size(); ++call) {
    const auto answer = session_.OutputsOf(process.outputs(), slots[call]),
               reference = session_.ReferenceOutputsOf(call);
    CheckResult check = call == verified ? checker_.AgainstTruth(slots[call], answer, reference)
                                         : checker_.AgainstReference(slots[call], answer, reference);
    if (!check.ok) check.message += NoteOf(call, 0);
    if (!check.ok) process.End(WrongTimedAnswer(check));
  }
}

void CpuJudgement::ChooseCalls(TimedProcess& process) {
  const std::vector<uint16_t> slots = session_.DrawSlots(std::min(3, session_.slots()));
  Fill(slots);
  candidate_us_ = RunCandidate(process, slots, "measure") / static_cast<double>(slots.size());
  SetCalls();
}

void CpuJudgement::SetCalls() {
  std::tie(min_calls_, max_calls_) = CallsOfBatch(candidate_us_, session_.reference_us(), session_.slots());
}

// At least the candidate's.
int CpuJudgement::ReferenceCalls(int calls) {
  const double reference_us = session_.reference_us();
  if (candidate_us_ <= kSlowerThanEager * reference_us) return calls;
  const auto [least, most] = CallsOfBatch(reference_us, reference_us, session_.slots());
  return std::max(calls, std::uniform_int_distribution<int>(least, most)(session_.random()));
}

RoundTimes CpuJudgement::TimedRound(const std::vector<TimedProcess*>& processes, int process, int pair,
                                    const std::string& phase) {
  const auto start = Clock::now();
  const int calls = std::uniform_int_distribution<int>(min_calls_, max_calls_)(session_.random());
  const std::vector<uint16_t> drawn = session_.DrawSlots(ReferenceCalls(calls));
  const std::span<const uint16_t> slots = std::span(drawn).first(static_cast<size_t>(calls));
  Fill(drawn, members_.Next(session_.random()));
  std::vector<int> order{-1};  // the reference; in random order
  for (size_t i = 0; i < processes.size(); ++i) order.push_back(static_cast<int>(i));
  std::shuffle(order.begin(), order.end(), session_.random());
  RoundTimes round;
  for (const int side : order) {
    if (side == 0) StopAsLongAsForAudit();
    FlushCaches(session_.options().threads);
    TimedProcess* timed = side < 0 ? nullptr : processes[static_cast<size_t>(side)];
    const std::span<const uint16_t> called = timed == nullptr ? std::span(drawn) : slots;
    const double window_us = timed == nullptr               ? RunReference(drawn)
                             : timed->name() == "candidate" ? RunCandidate(*timed, slots, "measure")
                                                            : timed->Run(slots, "measure");
    for (size_t i = 0; i < processes.size(); ++i) {
      if (static_cast<int>(i) != side) processes[i]->AddOtherWindow(window_us);
    }
    const double total_us = session_.WorkUs(window_us, called.size());
    const std::string name = timed == nullptr ? "reference" : timed->name();
    const double per_call_us = total_us / static_cast<double>(called.size());
    (name == "reference" ? round.reference_us
     : name == "start"   ? round.start_us
                         : round.candidate_us) = per_call_us;
    result_.samples.push_back({process, pair, phase, name, static_cast<int>(called.size()), total_us});
  }
  PublishReference();
  for (const TimedProcess* timed : processes) CheckTimed(*timed, slots);
  // Batches only get longer: a candidate that is slow at first must not keep them short.
  candidate_us_ = std::min(candidate_us_, round.candidate_us);
  KeepUsualTime(round.candidate_us, &timed_us_);
  KeepUsualTime(processes.front()->CpuOfBatch_s() * 1e6 / calls, &timed_cpu_us_);
  SetCalls();
  round_s_ = SecondsSince(start);
  return round;
}

// A process can make it slow to remove its marks, by mapping much memory, and would know by a long stop that an audit
// comes. Other batches come after as long a stop then.
void CpuJudgement::StopAsLongAsForAudit() const {
  constexpr double kFeltStop_s = 0.01, kMostStop_s = 0.2;
  if (marks_s_ > kFeltStop_s)
    std::this_thread::sleep_for(std::chrono::duration<double>(std::min(marks_s_, kMostStop_s)));
}

Processes CpuJudgement::StartWarm(bool with_start) {
  Processes fresh = StartProcesses(with_start);
  const std::vector<uint16_t> slots = session_.DrawSlots(max_calls_);
  Fill(slots);
  RunCandidate(*fresh.candidate, slots, "measure");
  if (fresh.start) fresh.start->Run(slots, "measure");
  RunReference(slots);
  has_removed_marks_ = false;
  for (TimedProcess* process : fresh.All()) process->StartCounting();
  return fresh;
}

void CpuJudgement::Sequential(Processes processes) {
  SequentialPlan plan;
  plan.has_start = processes.start != nullptr;
  plan.patience = request_.patience;
  plan.most_rounds = kSequentialRounds;
  plan.least_rounds = kMinSequentialRounds;
  // Under suspicion as many audits as rounds take a part of the time.
  plan.budget_s =
      request_.plan.sequential_budget_s * (plan.has_start ? 1.5 : 1) * (is_suspected_ ? kSuspectedFactor : 1);
  if (request_.patience > 1) {
    plan.first_look = SequentialTest::kFirstLookOverProcesses;
    plan.rounds_of_process = kRoundsOfProcess;
  }
  bool is_disturbed = false;
  const auto start_process = [&] {
    is_disturbed |= IsDisturbed(*processes.candidate);
    processes = {};
    processes = StartWarm(plan.has_start);
  };
  const auto round = [&](int pair) {
    AuditNowAndThen(processes);
    return TimedRound(processes.All(), 0, pair, "sequential");
  };
  for (;;) {
    plan.begin = Clock::now();
    verdicts_ = RunSequentialTest(plan, round, start_process);
    AuditRound(processes, 0);
    is_disturbed |= IsDisturbed(*processes.candidate);
    if (!is_disturbed) return;
    std::erase_if(result_.samples, [](const Sample& sample) { return sample.phase == "sequential"; });
    is_disturbed = false;
    processes = {};
    processes = StartWarm(plan.has_start);
  }
}

// Ends with `refused` where too many processes of the candidate were.
bool CpuJudgement::IsDisturbed(TimedProcess& candidate) {
  const std::string reason = candidate.UsedOutside();
  if (reason.empty()) return false;
  if (++disturbed_processes_ > kMostDisturbedProcesses) candidate.End(Refused{reason});
  return true;
}

// `verified`: the round of which a call is checked by the whole rule; < 0: none.
std::vector<RoundTimes> CpuJudgement::FixedRounds(const Processes& processes, int process, int rounds,
                                                  int verified) {
  std::vector<RoundTimes> times;
  // Under suspicion the processes share the audits, and a round more is no reason to end.
  const int audits = is_suspected_ ? Pace::kAuditsIfSuspicious * process / request_.plan.processes : 0;
  for (int pair = 0; pair < rounds || (audits_ < audits && max_calls_ > 1); ++pair) {
    AuditNowAndThen(processes);
    is_verified_round_ = pair == verified;
    times.push_back(TimedRound(processes.All(), process, pair, request_.confirm ? "confirm" : "fixed"));
  }
  is_verified_round_ = false;
  // An audited process is never safe from a further audit. Early audits do not see work ahead that comes later in a batch.
  const bool is_last = process == request_.plan.processes;
  if (is_suspected_) {
    AuditRound(processes);
  } else {
    AuditRound(processes, 1, false);
    if (is_last) AuditRound(processes, 1, true);
  }
  for (int more = 0; is_last && more < kMoreAudits && !pace_.HasEnough(); ++more) AuditRound(processes, 0);
  return times;
}

std::vector<std::vector<RoundTimes>> CpuJudgement::FixedProcesses(int rounds_each) {
  std::vector<std::vector<RoundTimes>> rounds;
  const auto draw = [&](int below) {
    return static_cast<int>(session_.random()() % static_cast<uint64_t>(below));
  };
  const int verified_process = 1 + draw(request_.plan.processes), verified_round = draw(rounds_each);
  for (int process = 1; process <= request_.plan.processes;) {
    const size_t samples = result_.samples.size();
    const Processes processes = StartWarm(true);
    std::vector<RoundTimes> times =
        FixedRounds(processes, process, rounds_each, process == verified_process ? verified_round : -1);
    if (IsDisturbed(*processes.candidate)) {
      result_.samples.resize(samples);
      continue;
    }
    rounds.push_back(std::move(times));
    ++process;
  }
  return rounds;
}

void CpuJudgement::Fixed() {
  const double factor = request_.confirm ? kConfirmFactor : 1;
  const PairsPlan& plan = request_.plan;
  // The last round had a side less where the start joins only here.
  const double round_s = round_s_ * (request_.start_library_fd >= 0 && !request_.start_in_test ? 1.5 : 1);
  const int rounds_each =
      std::clamp(static_cast<int>(plan.fixed_budget_s * factor / plan.processes / round_s), plan.least_rounds,
                 static_cast<int>(plan.most_rounds * factor));
  const size_t samples = result_.samples.size();
  std::vector<std::vector<RoundTimes>> rounds = FixedProcesses(rounds_each);
  LookAgain();
  if (BeginsSuspicion()) {
    result_.samples.resize(samples);
    // A kernel that works ahead in the first process alone gets no verdict from it.
    if (HasSequentialTest()) {
      std::erase_if(result_.samples, [](const Sample& sample) { return sample.phase == "sequential"; });
      Sequential(StartWarm(request_.start_in_test));
      // Judged apart: a kernel that is honest here would thin out the audits of the fixed pairs.
      if (pace_.HasEnough()) RefuseWorkAhead();
      pace_ = {};
      audits_ = 0;
    }
    rounds = FixedProcesses(rounds_each);
    RefuseWorkAhead();
  }
  result_.outcome = Report(rounds);
}

}  // namespace kevin
