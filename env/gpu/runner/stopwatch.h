#pragma once
// Times what is put on a stream, the same way in the evaluator's context (the reference) and in the runner's
// (the candidate): shared memory scrubbed, L2 flushed, everything enqueued behind a closed gate so that no
// host gap falls between the two events, then the gate is opened. One thread; needs a current context.

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
};

class Stopwatch {
 public:
  explicit Stopwatch(const StopwatchOptions& options);
  ~Stopwatch();
  Stopwatch(const Stopwatch&) = delete;
  Stopwatch& operator=(const Stopwatch&) = delete;
  // Microseconds between the events around what `enqueue` puts on the stream. With `gated` false the gate
  // stays open: for work of so many launches that the stream's queue could fill up behind it.
  double TimeUs(const std::function<void()>& enqueue, bool gated = true);
  // Of what precedes every timed call, the part that its time depends on. On the stream.
  void FlushL2();
  // Waits for the stream.
  void Synchronize() const;

 private:
  void Scrub() const;
  void OpenLateGates(const std::stop_token& stop);

  StopwatchOptions options_;
  DeviceBuffer flush_;
  CuHandle start_ = nullptr, end_ = nullptr;
  volatile uint32_t* gate_ = nullptr;  // pinned host memory
  CuDevicePtr gate_on_device_ = 0;
  uint32_t ticket_ = 0;
  int multiprocessors_ = 0, scrub_bytes_ = 0;
  // What is enqueued may itself wait for the stream (an operator that copies a number to the host): a gate
  // that stays closed for a second is opened by this thread.
  std::atomic<uint32_t> closed_ = 0;  // ticket of a closed gate
  std::jthread opener_;
};

}  // namespace kevin
