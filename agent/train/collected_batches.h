#pragma once
// Batches from turns that the model makes for each step. A thread of its own collects them in order; with
// `ahead` above 0 it begins a step's turns while the model learns from earlier ones, so that they come from
// weights that are at most so many steps older than they could be.

#include <condition_variable>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "agent/train/batch_source.h"

namespace kevin {

class CollectedBatches : public BatchSource {
 public:
  // The run that holds the step's turns; nullopt: broken off. Ends early once `*drain` is true.
  using Collect = std::function<std::optional<std::string>(int64_t step, const std::atomic<bool>* drain,
                                                           const std::atomic<bool>* stop)>;
  using Make = std::function<LearnBatch(int64_t step, const std::string& run)>;

  // Of the steps after `done`. `asked_to_drain` and `asked_to_stop` are the person's.
  CollectedBatches(int64_t done, int64_t steps, int64_t ahead, Collect collect, Make make,
                   const std::atomic<bool>* asked_to_drain, const std::atomic<bool>* asked_to_stop);
  ~CollectedBatches() override;  // breaks off what is under way

  std::optional<LearnBatch> Take(int64_t step) override;
  void Learnt(int64_t step) override;

 private:
  void Work(int64_t first, int64_t steps);

  const int64_t ahead_;
  const Collect collect_;
  const Make make_;
  const std::atomic<bool>*const asked_to_drain_, *const asked_to_stop_;
  std::atomic<bool> drain_{false}, stop_{false};
  std::mutex mutex_;  // of what follows
  std::condition_variable wake_;
  int64_t learnt_;
  std::map<int64_t, std::string> runs_;  // by step
  bool broken_off_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // last: it uses all the rest
};

}  // namespace kevin
