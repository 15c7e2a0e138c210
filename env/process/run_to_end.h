#pragma once
// A child process from its start to its end, with what it printed.

#include <cstddef>
#include <string>

#include "env/sandbox/sandbox.h"

namespace kevin {

struct Ran {
  std::string output;  // stdout and stderr together, the first `limit` bytes
  int status = 0;      // as waitpid gives it
  bool timed_out = false;
};

// `spawn.descriptors` is replaced. The child is killed when the time is over. Throws Error(kBroken) when it
// cannot be started.
Ran RunToEnd(SpawnOptions spawn, double timeout_s, size_t limit);

}  // namespace kevin
