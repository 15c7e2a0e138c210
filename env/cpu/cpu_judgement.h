#pragma once
// The judgement on one candidate on a CPU. For JudgeLibrary() alone (judge.h); its sources:
//
//   judge.cc         the order of phases: verification, own share, screening, measurement, report
//   judge_rounds.cc  timed rounds: batches, pairs, fresh processes, the sequential test and the fixed pairs
//   judge_audits.cc  audits between the rounds, and what they refuse

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "env/cpu/audit.h"
#include "env/cpu/checks.h"
#include "env/cpu/judge.h"
#include "env/cpu/timed_process.h"
#include "env/process/generator.h"
#include "env/verdict/estimate.h"
#include "env/verdict/pace.h"

namespace kevin {

// Fresh processes of the candidate and, where there is one, of the kernel it is compared with.
struct Processes {
  std::unique_ptr<TimedProcess> candidate, start;

  std::vector<TimedProcess*> All() const {
    std::vector<TimedProcess*> all{candidate.get()};
    if (start) all.push_back(start.get());
    return all;
  }
};

// One evaluation; used once. The session outlives it.
class CpuJudgement {
 public:
  CpuJudgement(Session& session, const JudgeRequest& request)
      : session_(session), request_(request), checker_(session) {
    result_.seeds = session.RenewKeys();
  }

  // Throws Error for what the candidate did not cause.
  JudgeResult Run();

 private:
  void Phase(const std::string& name) const {
    if (request_.on_phase) request_.on_phase(name);
  }

  double RunReference(std::span<const uint16_t> slots);
  void PublishReference();
  [[noreturn]] void ReferenceEnded(const ProcessEnd& end);

  // New inputs and weights for these slots, and poisoned outputs.
  void Fill(std::span<const uint16_t> slots, int member = -1, int ordinary_call = -1);

  using Loading = TimedProcess::Loading;
  std::unique_ptr<TimedProcess> StartCandidate(Loading loading = Loading::kAwaited);
  std::unique_ptr<TimedProcess> StartOther(Loading loading = Loading::kAwaited);
  Processes StartProcesses(bool with_start);
  Processes StartWarm(bool with_start);
  void StopAsLongAsForAudit() const;
  int ProcessesToCome() const;
  std::unique_ptr<TimedProcess> VerifyPhase();
  int VerifyCalls();
  void CheckOwnShare(TimedProcess& process);
  Measured ScreenPhase(TimedProcess& process);
  void VerifyOnce(TimedProcess& process, int calls);
  std::string NoteOf(size_t call, size_t earlier) const {  // on the inputs of a call
    return InputsNote(session_.sized(), session_.options().inputs, first_member_ + static_cast<int>(call),
                      earlier);
  }
  CheckResult CheckCall(uint16_t slot, size_t call);
  bool IsCorrectAlone(uint16_t slot, size_t call);
  void CheckGuards(const TimedProcess& process, std::span<const uint16_t> slots) const;
  void MeasurePhase(std::unique_ptr<TimedProcess> first);
  RoundTimes TimedRound(const std::vector<TimedProcess*>& processes, int process, int pair,
                        const std::string& phase);

  struct AuditedBatch {
    double ran_us = 0, lag = 0, ahead = 0, slowness = 0;
    bool happened = false, read_ahead = false, marks_work = false;
  };
  // `marks_share`: how often it is an audit for marks. `is_early`: as in DrawAuditPlan. False: batches of one call need no
  // audit.
  bool AuditRound(const Processes& processes, double marks_share, std::optional<bool> is_early = {});
  bool AuditRound(const Processes& processes);
  // False: the batch ended before its first pause, as it may beside other programs.
  bool AuditMarks(const Processes& processes, int calls, AuditPlan plan);
  void LookAgain();
  void VisitAllSlots(const Processes& processes);  // if marks were removed since the last time
  void VisitAllSlotsOfReference();
  void AuditNowAndThen(const Processes& processes);
  AuditedBatch AuditBatch(const Processes& processes, int calls, const AuditPlan& plan);
  double Slowness(const TimedProcess& process, double ran_us, size_t calls, double marks_us,
                  bool is_busy) const;
  double MarksMicroseconds(const TimedProcess& process, size_t calls) const;
  bool BeginsSuspicion();
  void RefuseWorkAhead() const;
  void CheckTimed(const TimedProcess& process, std::span<const uint16_t> slots);
  void ChooseCalls(TimedProcess& process);
  void SetCalls();
  int ReferenceCalls(int calls);
  double RunCandidate(TimedProcess& process, std::span<const uint16_t> slots, const std::string& phase,
                      const BatchPauses& pauses = {});
  bool HasSequentialTest() const {
    return !request_.confirm && request_.kernel_form != KernelForm::kInterpreted;
  }
  void Sequential(Processes processes);
  void Fixed();
  std::vector<RoundTimes> FixedRounds(const Processes& processes, int process, int rounds, int verified);
  std::vector<std::vector<RoundTimes>> FixedProcesses(int rounds_each);
  bool IsDisturbed(TimedProcess& candidate);
  Measured Report(const std::vector<std::vector<RoundTimes>>& rounds);
  double FloorFor(double candidate_us);

  Session& session_;
  const JudgeRequest& request_;
  Checker checker_;
  JudgeResult result_;
  CheckResult verified_;
  SequentialVerdicts verdicts_;
  Pace pace_;
  bool is_verified_round_ = false;  // one call of the candidate is checked by the whole rule
  bool is_suspected_ = false;       // of working ahead
  int audits_ = 0;                  // since the suspicion
  double marks_s_ = 0;              // that the latest removal of marks took before a batch
  bool has_removed_marks_ = false;  // since all slots were visited
  // Per call of the candidate, of the last timed rounds: wall time and the processor time of all threads.
  std::vector<double> timed_us_, timed_cpu_us_;
  int disturbed_processes_ = 0;
  double candidate_s_ = 0;  // all batches of the candidate
  MixtureOrder members_;    // of pairs
  int first_member_ = 0;    // of the mixture, of call 0 of the inputs filled last
  int min_calls_ = 1, max_calls_ = 1;
  double candidate_us_ = 0;  // per call, the least seen
  double round_s_ = 0.1;     // a whole round with drawing and checking
};

}  // namespace kevin
