#pragma once
// The peak rates of this machine, for the floor that no time may beat.

#include <cstdint>

namespace kevin {

struct Peak {
  double bytes_per_s = 0;  // reading a working set of that size with all threads, best of several passes
  double flops_per_s = 0;  // the fastest unit of any precision
};

// `working_set_bytes`: read by one call; small sets are as fast as the cache they fit in. Takes about 50 ms.
Peak MeasurePeak(int64_t working_set_bytes, int threads);

// Reads so much memory that nothing useful is left in any cache. Called before each half of a pair: else the
// second half (or the one poisoned last) would find its data in a cache.
void FlushCaches(int threads);

// Makes each of the first `threads` processors that this process may use read so many pages that it remembers no other
// translation of an address: what it remembers it does not mark as accessed again (env/cpu/audit.h).
void FlushTranslations(int threads);

}  // namespace kevin
