#pragma once
// The judgement on one candidate of kind `cuda` or `ptx`. For JudgeOnGpu() alone (gpu_judge.h); its sources:
//
//   gpu_judge.cc   the order of phases: loading, verification, screening, measurement
//   gpu_rounds.cc  pairs, the sequential test and the fixed pairs, what is disturbed or forged, the report

#include <random>
#include <string>
#include <vector>

#include "env/gpu/judge/gpu_judge.h"
#include "env/process/generator.h"
#include "env/verdict/call_clock.h"

namespace kevin {

struct TimedKernel {
  std::string name;  // "candidate" or "start"
  const LaunchPlan* plan = nullptr;
  GpuSession::Calibrated runner;
};

// One evaluation; used once. The session outlives it.
class GpuJudgement {
 public:
  GpuJudgement(GpuSession& session, const GpuJudgeRequest& request)
      : session_(session), request_(request), checker_(session) {
    result_.seeds = session.RenewKeys();
  }

  JudgeResult Run();

 private:
  static constexpr double kLong_us = 1000;  // a call of the reference

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
  bool IsVeryLong() const;
  // Calls of the reference are so long that the number of pairs is fixed from the start: there is no sequential test, and
  // the interval gives the verdict. Not where another kernel takes part in the test.
  bool IsPlanFixed() const;
  void Sequential();
  // Where there was a sequential test: as many as the spread of its pairs asks for, within a time. Fixed before the first.
  int FixedPairs() const;
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
  std::vector<double> spread_;  // log-ratios of the sequential test's pairs that count
  CallClock clock_;
  MixtureOrder members_;
  bool is_verified_round_ = false;  // the candidate's answer is checked by the whole rule
  std::string disbelieved_;         // why there are too few fixed pairs; empty: there are enough
  double timeout_s_ = 0, round_s_ = 0.01, candidate_us_ = 0;  // candidate_us_: of its latest call
};

}  // namespace kevin
