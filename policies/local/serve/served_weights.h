#pragma once
// Which weights a server's answers come from, for those who record answers. Any thread.

#include <cstdint>
#include <future>
#include <mutex>
#include <string>
#include <utility>

namespace kevin::local {

class ServedWeights {
 public:
  struct State {
    int64_t version = 0;  // of a model in training: the steps it has learnt
    // Of their contents (files/weights_hash.h), perhaps not known yet; "" where it cannot be.
    std::shared_future<std::string> hash;
  };

  // Answers that begin from now on come from these.
  void Set(State state) {
    const std::lock_guard lock(mutex_);
    state_ = std::move(state);
  }
  State Get() const {
    const std::lock_guard lock(mutex_);
    return state_;
  }

 private:
  mutable std::mutex mutex_;
  State state_;
};

}  // namespace kevin::local
