#include "policies/local/serve/connection_threads.h"

#include <utility>

namespace kevin::local {

void ConnectionThreads::Run(std::function<void()> work) {
  std::unique_lock lock(mutex_);
  wake_.wait(lock, [this] { return busy_ < most_ || ending_; });
  ++busy_;
  work_.push_back(std::move(work));
  if (busy_ > threads_.size()) threads_.emplace_back([this] { Work(); });
  wake_.notify_all();
}

void ConnectionThreads::Work() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return !work_.empty() || ending_; });
    if (work_.empty()) return;
    const std::function<void()> work = std::move(work_.front());
    work_.pop_front();
    lock.unlock();
    work();
    lock.lock();
    --busy_;
    wake_.notify_all();
  }
}

void ConnectionThreads::Finish() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

}  // namespace kevin::local
