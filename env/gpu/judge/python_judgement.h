#pragma once
// The judgement on one candidate in Python on a GPU. For JudgePythonOnGpu() alone (python_judge.h); its sources:
//
//   python_judge.cc   the order of phases: first calls, verification, screening, measurement, report
//   python_rounds.cc  batches, pairs, the sequential test and the fixed pairs
//   python_audits.cc  what looks at a candidate's batches: audits, work that goes on, memory outside the pool

#include <algorithm>
#include <chrono>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "env/gpu/judge/gpu_judge.h"
#include "env/gpu/judge/python_judge.h"
#include "env/process/generator.h"

namespace kevin {

// One evaluation; used once. The session outlives it.
class GpuPythonJudgement {
 public:
  GpuPythonJudgement(GpuPythonSession& session, const GpuPythonRequest& request)
      : session_(session), base_(session.base()), request_(request), checker_(base_) {
    result_.seeds = base_.RenewKeys();
  }

  // Throws Error for what the candidate did not cause.
  JudgeResult Run();

 private:
  static constexpr const char* kWorkedAhead =
      "worked ahead: a call answered its inputs as they were before it began";

  void Phase(const std::string& name) const {
    if (request_.on_phase) request_.on_phase(name);
  }
  static bool IsCandidate(const PythonSide& side) { return side.name() == "candidate"; }
  [[noreturn]] void End(const PythonSide& side, const Outcome& outcome) const {
    EndJudgement(IsCandidate(side), outcome);
  }
  [[noreturn]] void Fail(PythonSide& side, const ProcessEnd& end, const std::string& phase) const;
  double RandomUnit() { return static_cast<double>(base_.random()() >> 11) * 0x1p-53; }

  void Judge();
  void Examine();
  void ExamineIfDue();
  void TakeExamined();
  void CheckOwnShare() const;
  std::unique_ptr<PythonSide> StartSide(const std::string& name, int bundle_fd,
                                        const GpuPythonSession::Examined& examined);
  std::unique_ptr<PythonSide> StartCandidate() {
    return StartSide("candidate", request_.bundle_fd, examined_);
  }
  double RunReference(std::span<const uint16_t> slots);
  double RunSide(PythonSide& side, std::span<const uint16_t> slots, const std::string& phase,
                 const BatchPauses& pauses = {});
  void RequireQuiet(PythonSide& side, uint64_t since_us);
  void AwaitDrained(PythonSide& side, uint64_t since_us, double batch_us);
  void RefuseDeferredWork(PythonSide& side, uint64_t since_us);
  bool TookMemory();
  void RefuseTakenMemory();
  double EvaluationLimit_s() const;
  void ComputeReference(std::span<const uint16_t> slots);
  void CheckOutputs(const PythonSide& side, std::span<const uint16_t> slots, size_t calls,
                    const std::vector<char>& changed = {});
  void VerifyOneOf(const PythonSide& side, std::span<const uint16_t> slots);
  void CheckAlike(std::span<const uint16_t> slots);
  bool IsCorrectAlone(uint16_t slot);
  int VerifyCalls();
  void Verify(int calls);
  void StartAndVerify(int calls);
  void VerifyTwiceIfLate();
  void VerifyWithCompilersIfNeeded();
  Outcome WithFirstCalls(Outcome outcome) const;
  void ChooseCalls();
  int ReferenceCalls(int calls);
  int CallsOfBatch(double call_us) const;
  static int LeastCalls(int most) { return std::max(1, most * 2 / 3); }
  Measured Screen();
  RoundTimes TimedRound(int process, int pair, const std::string& phase);
  void SingleCall();
  std::vector<double> DrawMoments(int calls);
  void Audit();
  void AuditEnough();
  void Sequential();
  std::vector<RoundTimes> Fixed();
  std::vector<RoundTimes> MeasureUndisturbed();
  static std::vector<int> OwnProcesses();
  std::string SharedWork() const;
  std::vector<RoundTimes> MeasureUnshared();
  Measured Report(const std::vector<RoundTimes>& rounds);

  GpuPythonSession& session_;
  GpuSession& base_;
  const GpuPythonRequest& request_;
  GpuChecker checker_;
  JudgeResult result_;
  GpuPythonSession::Examined examined_;
  std::vector<std::unique_ptr<PythonSide>> sides_;  // the candidate first
  size_t sides_in_round_ = 1;
  CheckResult verified_;
  SequentialVerdicts verdicts_;
  std::vector<double> singles_us_, in_batch_us_, reference_singles_us_, reference_in_batch_us_;
  MixtureOrder members_;
  int enough_pairs_ = 0;  // of the fixed ones, by their spread
  int least_calls_ = 1, most_calls_ = 1, most_reference_calls_ = 1, late_rounds_ = 0;
  int audits_ = 0;  // in which the batch was paused
  double candidate_us_ = 0, round_s_ = 0.05;
  double candidate_s_ = 0;  // all batches of the candidate
  std::chrono::steady_clock::time_point begin_, measuring_;
  bool is_verified_ = false;
  bool is_verified_round_ = false;  // one call of the candidate is checked by the whole rule
};

}  // namespace kevin
