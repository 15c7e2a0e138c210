#pragma once
// How many of a rollout's threads work on items at once: all of them, or one alone, so that what an item does
// to the process is known to be its own doing. Every thread may call everything.

#include <condition_variable>
#include <mutex>
#include <thread>

#include "policies/policy.h"

namespace kevin {

class Seclusion {
 public:
  // Waits while somebody is alone, until `drain` is set; does not wait to be alone. False: not admitted.
  bool Enter(bool alone, const CancelToken& drain);
  // Once for each time that Enter said true, with the same `alone`.
  void Leave(bool alone);
  // The thread that is alone, if it is the calling one, is so no more, though still admitted.
  void EndSolitude();

 private:
  std::mutex mutex_;
  std::condition_variable wake_;
  int admitted_ = 0;
  bool is_alone_ = false;  // one of them
  std::thread::id who_;    // that is
};

}  // namespace kevin
