#pragma once
// Theoretical occupancy: how many of a multiprocessor's warps a launch can keep resident. Pure arithmetic, by
// the rules of compute capability 7.0 and up (CUDA C++ Programming Guide, "Occupancy").

#include <cstdint>
#include <string>

namespace kevin {

struct MultiprocessorLimits {
  int threads = 2048, registers = 65536, blocks = 32;
  int64_t shared_bytes = 233472, reserved_shared_bytes = 1024;  // reserved: of each block
};

struct Occupancy {
  int blocks = 0;          // resident on one multiprocessor
  double share = 0;        // resident warps over the most there can be
  std::string limited_by;  // "registers", "shared memory", "threads", "blocks"
};

Occupancy OccupancyOf(const MultiprocessorLimits& limits, int threads_per_block, int registers_per_thread,
                      int64_t shared_bytes_per_block);

}  // namespace kevin
