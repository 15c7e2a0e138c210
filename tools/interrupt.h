#pragma once
// Ctrl-C (SIGINT) and SIGTERM as a flag, so that an episode ends cleanly with what there is. The second
// signal ends the program at once; the database stands that.

#include <atomic>

namespace kevin {

// While one of these lives, the first signal sets the flag. One at a time.
class InterruptGuard {
 public:
  InterruptGuard();
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  const std::atomic<bool>* flag() const;  // a CancelToken
};

}  // namespace kevin
