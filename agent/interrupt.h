#pragma once
// Ctrl-C (SIGINT) and SIGTERM as flags, so that what runs ends cleanly with what there is. The last signal
// ends the program at once; the database stands that.

#include <atomic>

namespace kevin {

// While one of these lives, the first signal sets the flag and the next one ends the program. With `patience`
// 2 there is one signal more: the first asks to finish what is in hand, the second to stop. One at a time.
class InterruptGuard {
 public:
  explicit InterruptGuard(int patience = 1);
  ~InterruptGuard();
  InterruptGuard(const InterruptGuard&) = delete;
  InterruptGuard& operator=(const InterruptGuard&) = delete;

  const std::atomic<bool>* flag() const;   // a CancelToken: there was a signal
  const std::atomic<bool>* again() const;  // there were two
};

}  // namespace kevin
