#include "trajectories/group_commit.h"

#include <algorithm>

namespace kevin {
namespace {

constexpr size_t kMostTogether = 256;

}  // namespace

void GroupCommit::Run(const std::function<void()>& work) {
  PendingWrite mine;
  mine.work = &work;
  std::unique_lock lock(mutex_);
  waiting_.push_back(&mine);
  done_.wait(lock, [&] { return mine.done || !committing_; });
  while (!mine.done) {
    const auto count = static_cast<ptrdiff_t>(std::min(waiting_.size(), kMostTogether));
    const std::vector<PendingWrite*> batch(waiting_.begin(), waiting_.begin() + count);
    waiting_.erase(waiting_.begin(), waiting_.begin() + count);
    committing_ = true;
    lock.unlock();
    commit_(batch);
    lock.lock();
    committing_ = false;
    for (PendingWrite* write : batch) write->done = true;
    done_.notify_all();
  }
  if (mine.error) std::rethrow_exception(mine.error);
}

}  // namespace kevin
