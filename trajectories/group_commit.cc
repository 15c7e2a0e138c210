#include "trajectories/group_commit.h"

#include <algorithm>

namespace kevin {
namespace {

constexpr size_t kMostTogether = 512;

}  // namespace

GroupCommit::~GroupCommit() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  wake_.notify_one();
  if (committer_.joinable()) committer_.join();
}

void GroupCommit::Run(const std::function<void()>& work) {
  PendingWrite mine;
  mine.work = &work;
  {
    const std::lock_guard lock(mutex_);
    if (!committer_.joinable()) committer_ = std::thread([this] { CommitForEver(); });
    waiting_.push_back(&mine);
  }
  wake_.notify_one();
  mine.done.acquire();
  if (mine.error) std::rethrow_exception(mine.error);
}

void GroupCommit::CommitForEver() {
  std::unique_lock lock(mutex_);
  for (;;) {
    wake_.wait(lock, [&] { return stop_ || !waiting_.empty(); });
    if (waiting_.empty()) return;
    const auto count = static_cast<ptrdiff_t>(std::min(waiting_.size(), kMostTogether));
    const std::vector<PendingWrite*> batch(waiting_.begin(), waiting_.begin() + count);
    waiting_.erase(waiting_.begin(), waiting_.begin() + count);
    lock.unlock();
    commit_(batch);
    for (PendingWrite* write : batch) write->done.release();
    lock.lock();
  }
}

}  // namespace kevin
