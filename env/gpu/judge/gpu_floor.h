#pragma once
// The least time of a call on this GPU: the work that any correct algorithm must do (`min_bytes`, `min_flops` of a problem)
// over the best bandwidth of our own kernels at the same working-set size, and over the rate of the fastest matrix
// instructions. A candidate that reports less has not done its work.

#include <functional>

#include "env/gpu/runner/stopwatch.h"
#include "env/process/runner_protocol.h"

namespace kevin {

struct GpuFloorSetup {
  const SizedProblem& sized;
  const SlotLayout& layout;
  const SlotMemory& memory;  // its slots are overwritten
  CuDevicePtr sink = 0;      // 4 bytes
  // Candidates are timed in batches of calls, without the cost of an empty call, and so are our kernels: what each further
  // launch takes, on a slot of its own, beyond an empty one. False: one launch between two events, as calls that are
  // timed alone.
  bool in_batches = false;
  Stopwatch& stopwatch;
  // Launches a trusted kernel by name in blocks of 256 threads, on the stopwatch's stream.
  std::function<void(const char* name, unsigned blocks, void** arguments)> launch;
};

// In microseconds; the best of `repeats` readings of each kernel. Throws DriverError.
double GpuFloorUs(const GpuFloorSetup& setup, int repeats);

}  // namespace kevin
