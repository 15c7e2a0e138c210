#pragma once
// Writes that threads ask for at the same time share one transaction, and so one fsync: a thread of its own
// commits all that wait, and what comes meanwhile goes into the next one. Each write stands alone: one that
// throws is undone by itself and the others are kept.

#include <condition_variable>
#include <exception>
#include <functional>
#include <mutex>
#include <semaphore>
#include <thread>
#include <vector>

namespace kevin {

struct PendingWrite {
  const std::function<void()>* work = nullptr;
  std::exception_ptr error;
  std::binary_semaphore done{0};
};

class GroupCommit {
 public:
  // Makes all of them durable in one transaction; sets `error` of those that failed. Must not throw.
  using CommitTogether = std::function<void(const std::vector<PendingWrite*>& writes)>;
  explicit GroupCommit(CommitTogether commit) : commit_(std::move(commit)) {}
  ~GroupCommit();
  GroupCommit(const GroupCommit&) = delete;
  GroupCommit& operator=(const GroupCommit&) = delete;

  // Returns when `work` is durable; throws what it threw, or what made the transaction fail. `work` is run by
  // another thread, and perhaps more than once, each time from a state in which it has had no effect.
  void Run(const std::function<void()>& work);

 private:
  void CommitForEver();

  const CommitTogether commit_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::vector<PendingWrite*> waiting_;
  bool stop_ = false;
  std::thread committer_;  // started by the first write
};

}  // namespace kevin
