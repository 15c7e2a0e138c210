#pragma once
// How long the turns of a step are made and how long they are judged: wall time, of many episodes at once. `generate_s` is
// the time in which at least one answer was computed, `judge_s` that in which at least one kernel was judged (compiling and
// waiting for the device included). Where episodes answer and judge at the same time, both count, so that their sum may
// exceed the time that the step took.

#include <chrono>
#include <cstdint>
#include <mutex>

#include "env/environment.h"
#include "policies/policy.h"

namespace kevin {

struct TurnTimes {
  double generate_s = 0, judge_s = 0;
  int64_t parked_tasks = 0;  // of the step, without a turn (ParkedTasks); counted by rank 0
};

// The time in which at least one thread is inside. Any thread.
class BusyTime {
 public:
  class Inside {
   public:
    explicit Inside(BusyTime& time) : time_(time) { time_.Enter(); }
    ~Inside() { time_.Leave(); }
    Inside(const Inside&) = delete;
    Inside& operator=(const Inside&) = delete;

   private:
    BusyTime& time_;
  };

  double Seconds() const;

 private:
  using Clock = std::chrono::steady_clock;
  void Enter();
  void Leave();

  mutable std::mutex mutex_;
  int inside_ = 0;
  Clock::time_point since_;
  Clock::duration sum_{0};
};

// A policy whose answers are timed. Both must outlive it.
class TimedPolicy : public Policy {
 public:
  TimedPolicy(Policy& policy, BusyTime& time) : policy_(policy), time_(time) {}
  Completion Complete(const Request& request, const CancelToken* cancel, const OnText& on_text) override {
    const BusyTime::Inside inside(time_);
    return policy_.Complete(request, cancel, on_text);
  }
  std::string Name() const override { return policy_.Name(); }
  std::string ComputesOn() const override { return policy_.ComputesOn(); }
  std::vector<std::string> FurtherLocks() const override { return policy_.FurtherLocks(); }
  bool AnswersTogether() const override { return policy_.AnswersTogether(); }
  bool ReadsGraphs() const override { return policy_.ReadsGraphs(); }
  std::string WhyNot(const Task& task) const override { return policy_.WhyNot(task); }

 private:
  Policy& policy_;
  BusyTime& time_;
};

// An environment whose evaluations are timed. Both must outlive it.
class TimedEnvironment : public Environment {
 public:
  TimedEnvironment(Environment& environment, BusyTime& time) : environment_(environment), time_(time) {}
  std::string EvaluationKey(const Problem& problem, const Candidate& candidate,
                            const EvaluateOptions& options) override {
    return environment_.EvaluationKey(problem, candidate, options);
  }
  std::string MachineKey(const Problem& problem, const Candidate& candidate,
                         const EvaluateOptions& options) override {
    const BusyTime::Inside inside(time_);  // compiles
    return environment_.MachineKey(problem, candidate, options);
  }
  std::string Graph(const Problem& problem, const std::string& size) override {
    return environment_.Graph(problem, size);
  }
  void Expect(const Problem& problem, const std::string& kind, const Workload& workload) override {
    environment_.Expect(problem, kind, workload);
  }
  const EnvironmentFacts& Facts() const override { return environment_.Facts(); }
  std::optional<Diagnosis> Diagnose(const Problem& problem, const Candidate& candidate,
                                    const EvaluateOptions& options) override {
    const BusyTime::Inside inside(time_);
    return environment_.Diagnose(problem, candidate, options);
  }
  void ReleaseMemory() override { environment_.ReleaseMemory(); }

 private:
  Evaluation EvaluateShape(const Problem& problem, const Candidate& candidate,
                           const EvaluateOptions& options) override {
    const BusyTime::Inside inside(time_);
    return environment_.Evaluate(problem, candidate, options);
  }

  Environment& environment_;
  BusyTime& time_;
};

}  // namespace kevin
