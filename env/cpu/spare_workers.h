#pragma once
// Python workers that are forked and wait for their jobs, for all sessions of an evaluator. A fork takes tens of
// milliseconds and a processor: an evaluation asks for as many as it will need while it verifies, and none is forked while
// pairs are timed. One thread.

#include <cstddef>
#include <cstdint>
#include <deque>

#include "env/cpu/batch_process.h"

namespace kevin {

class SpareWorkers {
 public:
  explicit SpareWorkers(PythonWorkers& workers) : workers_(workers) {}  // not owned

  // Asks for workers until there are `count` spares; returns at once.
  void Ask(size_t count);
  // Until all that were asked for are there. Blocks while torch is imported. Throws Error(kBroken).
  void Await();
  // A spare, or a new one.
  WaitingProcess Take();

  const PythonSetup& setup() const { return workers_.setup(); }
  int64_t asked() const { return asked_; }  // how many workers, until now

 private:
  PythonWorkers& workers_;
  std::deque<WaitingProcess> spares_;  // the first `ready_` of them are there
  size_t ready_ = 0;
  int64_t asked_ = 0;
};

}  // namespace kevin
