#pragma once
// The processor's own counters of a process: instructions, cycles, misses of the last-level cache. Most virtual
// machines and containers have none, or forbid them. One thread.

#include <sys/types.h>

#include <optional>
#include <vector>

#include "env/diagnosis/diagnosis.h"
#include "env/process/shared_memory.h"

namespace kevin {

class HardwareCounting {
 public:
  // Counts all threads that the process has now, in user mode, until Read.
  explicit HardwareCounting(pid_t pid);
  // Nothing: there are no counters, or they stood still.
  std::optional<HardwareCounters> Read(double calls);

 private:
  std::vector<Fd> instructions_, cycles_, misses_;  // by thread
};

}  // namespace kevin
