#pragma once
// Admits a rollout's threads to work items: as many as make turns at once, and of those many in shared execution, or one in
// exclusive execution. An item that may have ended earlier processes runs exclusively, so that no other item is blamed for
// the next end. Any thread.

#include <condition_variable>
#include <mutex>
#include <semaphore>
#include <thread>

#include "policies/policy.h"

namespace kevin {

class ExclusiveGate {
 public:
  // Shared: waits while a thread is exclusive, until `drain` is set. Exclusive: does not wait. Returns
  // whether the thread is admitted.
  bool Enter(bool exclusive, const CancelToken& drain);
  // Once for each successful Enter, with the same `exclusive`.
  void Leave(bool exclusive);
  // The calling thread's exclusive execution becomes shared. No effect for other threads.
  void EndExclusive();

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  int admitted_ = 0;
  bool is_exclusive_ = false;  // one admitted thread is
  std::thread::id holder_;     // that thread
};

// One of the places for episodes that make turns at once. One thread.
class Place {
 public:
  explicit Place(std::counting_semaphore<>& places) : places_(places) {}
  ~Place() { Leave(); }
  Place(const Place&) = delete;
  Place& operator=(const Place&) = delete;

  // Waits for a free one. Returns whether it is taken; false once `drain` is set.
  bool Take(const CancelToken& drain);
  void Leave();  // no effect where it is not taken

 private:
  std::counting_semaphore<>& places_;
  bool is_taken_ = false;
};

}  // namespace kevin
