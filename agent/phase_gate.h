#pragma once
// Answers and verdicts on one device, in turns. A pair is timed while nothing else computes on the device, and a local
// model answers many requests in little more time than one. So the episodes of a process alternate: all of them answer,
// then all of their kernels are judged. Without this each verdict would wait for the answers in progress and hold the next
// ones back, and most answers would be computed alone. Any thread.

#include <condition_variable>
#include <mutex>
#include <string>

#include "policies/policy.h"

namespace kevin {

class PhaseGate {
 public:
  enum Phase { kAnswer, kJudge };

  // The process's gate of a device ("cuda:0").
  static PhaseGate& Of(const std::string& device);

  // Waits until the other phase is empty; who comes while its own phase lasts does not wait. Destruction leaves. A null
  // gate admits at once. Throws Error(kInterrupted) within a tenth of a second when *cancel is set; it may be null.
  class Pass {
   public:
    Pass(PhaseGate* gate, Phase phase, const CancelToken* cancel);
    ~Pass();
    Pass(const Pass&) = delete;
    Pass& operator=(const Pass&) = delete;

   private:
    PhaseGate* gate_;
    Phase phase_;
  };

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int inside_[2] = {0, 0};
};

}  // namespace kevin
