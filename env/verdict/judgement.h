#pragma once
// What env/cpu/judge.h and env/gpu/judge/ share: the result of a judge, the sequential test over rounds of timed
// pairs, and the report of the fixed pairs. A judge decides how a call is made and timed; the rules of the
// verdict stand here, in estimate.h and in verify.h.

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "env/environment.h"
#include "env/process/generator.h"
#include "env/verdict/estimate.h"
#include "env/verdict/verify.h"

namespace kevin {

// The message of a Wrong whose verification was correct begins so.
inline constexpr const char* kInTimedCall = "in a timed call: ";

// Thrown inside a judge as soon as the outcome of a candidate is decided.
struct Ended {
  Outcome outcome;
};

// Ends the judgement because of what one of the timed kernels did. For the candidate: throws Ended with its
// outcome. For the kernel it is compared with, which was judged before: throws Error(kBadRequest).
[[noreturn]] void EndJudgement(bool is_candidate, const Outcome& outcome);

// "the rules `kevin` ask for 90 %", or of a problem that says otherwise "this problem asks for 50 %": Problem::least_own_share.
std::string AskedOwnShare(const Problem& problem);

// Timings of one trial of knobs, at most; their median is its time.
inline constexpr size_t kMostScreenTimings = 9;

// What is asked about one candidate on any device; the fields are those of EvaluateOptions.
struct JudgeOptions {
  bool start_in_test = true;
  bool confirm = false;  // a winner measured again: new processes, no sequential test, more pairs
  double patience = 1;
  bool verify_only = false;  // no clock: of a correct candidate a Measured with errors alone
  bool screen = false;
  double screen_limit_us = 0;
};

struct JudgeResult {
  Outcome outcome;
  double verify_s = 0, measure_s = 0, wait_s = 0;  // wait_s: for the lock of the device
  double device_s = 0;                             // how long a GPU was held
  bool shared_gpu = false;  // another process computed on it during the measurement that stands
  std::string others;       // which, then or in a measurement before: "python3 (process 1234)"
  // The root of the keys that all inputs were drawn from, new for each judgement (DrawingKeys::Renew): four
  // numbers for each shape.
  std::vector<uint64_t> seeds;
  std::vector<Sample> samples;
  std::string log;  // what the candidate printed
  // Of a candidate in Python: the share of the work that its own kernels did, in a pass of its own. Unknown where it was not
  // measured.
  std::optional<double> own_share;
  std::optional<double> device_us;  // of a call of a candidate in Python: what its worker's profiler says
};

// Why samples from `first` on do not count, in place of their phase: "disturbed", "disbelieved".
void MarkSamples(size_t first, const std::string& why, JudgeResult* result);

// A candidate that takes longer than eager by more than this factor decides itself how many calls its batches have: as few
// as are long enough. Eager's batches beside it have calls of their own number: its first calls are slower than the rest.
inline constexpr double kSlowerThanEager = 2;

// One round of pairs: microseconds per call of each side. All sides have the inputs of the candidate's calls; beside a slow
// candidate eager has more.
struct RoundTimes {
  double candidate_us = 0, reference_us = 0;
  double start_us = 0;  // of the kernel the candidate is compared with; 0: there is none
  bool same_clock =
      true;  // false: the clock of the device changed within the round, so that it does not count
  bool believed =
      true;  // false: something else took part in a time (env/verdict/call_clock.h), so it does not count
};

// Leaves out the rounds in which the clock of the device changed. Where it changed in most of them, all count.
void LeaveOutMoved(std::vector<RoundTimes>* rounds);

struct SequentialVerdicts {
  Verdict against_reference = Verdict::kAmbiguous, against_start = Verdict::kAmbiguous;
};

struct SequentialPlan {
  bool has_start = false;
  double patience = 1;  // as in EvaluateOptions: multiplies both limits while the last question is open
  int most_rounds = 0;
  double budget_s = 0;  // from `begin`, once `least_rounds` are over
  int least_rounds = 0;
  ClockCalibration against_reference = {}, against_start = {};
  int first_look = SequentialTest::kFirstLook;
  // A process is a little faster or slower than the next one of the same program for as long as it lives: no
  // number of pairs with one of them averages that away. 0: one process for all rounds.
  int rounds_of_process = 0;
  std::chrono::steady_clock::time_point begin = std::chrono::steady_clock::now();
};

// Runs rounds until both tests have decided, or until the limits are reached. A verdict once given stands:
// looking on would be choosing when to stop. `start_process` is called before a round that begins with fresh
// processes.
SequentialVerdicts RunSequentialTest(const SequentialPlan& plan,
                                     const std::function<RoundTimes(int pair)>& round,
                                     const std::function<void()>& start_process = {});

// What is measured, from the fixed rounds of each process: ratios with their intervals, times, rates, the
// errors seen in verification. The caller sets floor_us.
Measured ReportRounds(std::span<const std::vector<RoundTimes>> rounds_by_process,
                      ClockCalibration against_reference, ClockCalibration against_start,
                      const SizedProblem& sized, const SequentialVerdicts& verdicts,
                      const CheckResult& verified);

// For requests without the clock: a correct candidate, with the errors of verification alone.
Measured ReportErrors(const CheckResult& verified);

// Throws Ended where a time lies below the floor. `where` is "on this machine" or "on this device".
void RefuseImpossibleTime(const Measured& measured, const std::string& where);

// Behind the message of an incorrect call: which member of the mixture its inputs were, in the words of the prompts.
// `earlier`: how many calls before it, with the members before its own, were correct. Empty where no input has the mixture.
std::string InputsNote(const SizedProblem& sized, InputMode mode, int member, size_t earlier = 0);

// The outcome of a failed check.
Wrong WrongAnswer(const CheckResult& check);
// Is added where the same call is correct as the first one of a process.
inline constexpr const char* kKeepsState =
    "; as the first call of a process this call is correct: the candidate keeps something of earlier calls (weights, "
    "inputs, outputs or other state), and each call must compute from its own";
Wrong WrongTimedAnswer(const CheckResult& check);

}  // namespace kevin
