#include "env/process/lasting_threads.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

namespace kevin {
namespace {

// As many threads as there ever were tasks at once.
class LastingThreads {
 public:
  void Add(std::function<void()> task) {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
    if (tasks_.size() > idle_) std::thread([this] { Serve(); }).detach();
    changed_.notify_one();
  }

 private:
  [[noreturn]] void Serve() {
    std::unique_lock lock(mutex_);
    while (true) {
      ++idle_;
      changed_.wait(lock, [this] { return !tasks_.empty(); });
      --idle_;
      const std::function<void()> task = std::move(tasks_.front());
      tasks_.pop_front();
      lock.unlock();
      task();
      lock.lock();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> tasks_;
  size_t idle_ = 0;
};

// Never destroyed: its threads use it until the process ends.
LastingThreads& Threads() {
  static LastingThreads& threads = *new LastingThreads;
  return threads;
}

}  // namespace

void RunSideBySide(const std::vector<std::function<void()>>& tasks) {
  std::mutex mutex;
  std::condition_variable ended;
  size_t open = tasks.empty() ? 0 : tasks.size() - 1;
  for (size_t i = 1; i < tasks.size(); ++i) {
    Threads().Add([&, i] {
      tasks[i]();
      const std::lock_guard lock(mutex);
      --open;
      ended.notify_one();
    });
  }
  if (!tasks.empty()) tasks.front()();
  std::unique_lock lock(mutex);
  ended.wait(lock, [&] { return open == 0; });
}

void RunSideBySide(int times, const std::function<void()>& task) {
  RunSideBySide(std::vector(static_cast<size_t>(std::max(1, times)), task));
}

}  // namespace kevin
