#pragma once
// Times work on a stream, in the same way in the context of the evaluator (the reference) and of the runner
// (the candidate): shared memory is scrubbed, L2 is flushed, all work is enqueued behind a closed gate so
// that no host gap falls between the two events, then the gate is opened. One thread; needs a current
// context.

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
  // Microseconds between the events around the work of `enqueue`. With `gated` false the gate stays open: for
  // so many launches that the queue of the stream could fill up behind it.
  double TimeUs(const std::function<void()>& enqueue, bool gated = true);
  // The part of a call's preparation that affects its time. On the stream.
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
  // Enqueued work may itself wait for the stream (an operator that copies a number to the host): this thread
  // opens a gate that stays closed for a second.
  std::atomic<uint32_t> closed_ = 0;  // ticket of a closed gate
  std::jthread opener_;
};

}  // namespace kevin
