#pragma once
// Threads for connections, made when they are needed and kept for the next; cpp-httplib's queue of work.

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace kevin::local {

class ConnectionThreads {
 public:
  explicit ConnectionThreads(int most) : most_(static_cast<size_t>(most)) {}
  ~ConnectionThreads() { Finish(); }
  // Waits while `most` are at work.
  void Run(std::function<void()> work);
  // Waits for all of them.
  void Finish();

 private:
  void Work();

  const size_t most_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::function<void()>> work_;
  size_t busy_ = 0;
  bool ending_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace kevin::local
