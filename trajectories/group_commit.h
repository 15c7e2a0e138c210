#pragma once
// Writes that threads ask for at the same time share one transaction, and so one fsync: whoever comes first
// writes for all who are waiting, the next of those who came meanwhile for the rest. Each write stands alone:
// one that throws is undone by itself and the others are kept.

#include <condition_variable>
#include <functional>
#include <mutex>
#include <vector>

namespace kevin {

struct PendingWrite;

class GroupCommit {
 public:
  // Makes all of them durable in one transaction; sets `error` of those that failed. Must not throw.
  using CommitTogether = std::function<void(const std::vector<PendingWrite*>& writes)>;
  explicit GroupCommit(CommitTogether commit) : commit_(std::move(commit)) {}

  // Returns when `work` is durable; throws what it threw, or what made the transaction fail. `work` may be
  // run more than once, each time from a state in which it has had no effect, and by another thread.
  void Run(const std::function<void()>& work);

 private:
  const CommitTogether commit_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<PendingWrite*> waiting_;
  bool committing_ = false;
};

struct PendingWrite {
  const std::function<void()>* work = nullptr;
  std::exception_ptr error;
  bool done = false;  // of GroupCommit
};

}  // namespace kevin
