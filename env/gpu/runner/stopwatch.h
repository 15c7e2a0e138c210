#pragma once
// Times work on a stream, in the same way in the context of the evaluator (the reference) and of the runner
// (the candidate): shared memory is scrubbed, L2 is flushed, all work is enqueued behind a closed gate so
// that no host gap falls between the two events, and the gate is opened once the device waits at it. One
// thread; needs a current context.

#include <atomic>
#include <functional>
#include <stop_token>
#include <thread>

#include "env/gpu/runner/device_memory.h"

namespace kevin {

struct StopwatchOptions {
  int device = 0;
  CuHandle stream = nullptr;
  CuHandle scrub = nullptr;  // the trusted kernel `kevin_scrub`
  bool may_wait = false;     // trusted work that waits for the stream may do so in each call
};

struct TimedWork {
  // False: the gate stays open. For so many launches that the queue of the stream could fill up behind it.
  bool gated = true;
  uint64_t seed = 0;                   // secret and new: of the values left in shared memory, and of the gate
  std::function<void()> at_gate = {};  // called when the device has done all before the gate; may be empty
};

class Stopwatch {
 public:
  explicit Stopwatch(const StopwatchOptions& options);
  ~Stopwatch();
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  // Microseconds between the events around the work of `enqueue`.
  double TimeUs(const std::function<void()>& enqueue, const TimedWork& work);
  // The least of so many times, of at least one.
  double BestUs(int repeats, const std::function<void()>& enqueue);
  // Waits until the stream has written `number` to the host's memory, after all work before. Unlike the
  // driver's own marks of completion, the number cannot be known to device code that still runs: it is new.
  void AwaitNumber(uint32_t number);

 private:
  void Scrub(uint64_t seed) const;
  void FlushL2();
  void OpenGate();
  void OpenLateGates(const std::stop_token& stop);

  StopwatchOptions options_;
  DeviceBuffer flush_;
  CuHandle prepared_ = nullptr, start_ = nullptr, end_ = nullptr;
  volatile uint32_t* gate_ = nullptr;  // pinned host memory: the open ticket, then the number awaited
  CuDevicePtr gate_on_device_ = 0;
  uint32_t ticket_ = 0;
  int multiprocessors_ = 0, scrub_bytes_ = 0;
  // Enqueued work may itself wait for the stream (an operator that copies a number to the host): this thread opens a gate
  // that stays closed for a second; of work that may wait, after two such calls in a row, for a tenth, until a call does not wait.
  std::atomic<uint32_t> closed_ = 0,
                        opened_late_ = 0;  // tickets: of a closed gate; of the latest one that was opened so
  std::atomic<int> late_in_a_row_ = 0;
  std::jthread opener_;
};

}  // namespace kevin
