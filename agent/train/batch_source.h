#pragma once
// The batches of a training run, step by step: from stored records, or from turns made for each step.

#include <condition_variable>
#include <exception>
#include <functional>
#include <future>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "agent/train/batches.h"

namespace kevin {

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Steps in ascending order. nullopt: interrupted by the user. Throws Error.
  virtual std::optional<LearnBatch> Take(int64_t step) = 0;
  // The model has learnt from the step's batch.
  virtual void Learnt(int64_t step) = 0;
};

// Offline: batches from stored records. The next one is read while the model learns from the last one.
class RecordedBatches : public BatchSource {
 public:
  // Throws Error(kBadRequest) where there is nothing to learn from.
  RecordedBatches(const LearnRequest& request, const Algorithm& algorithm, const UnitOptions& units);

  int64_t StepsPerEpoch() const;
  local::LearntData Data() const;
  std::string Describe() const;  // "8 tasks (2 dropped) of 512 turns, 8 a step"
  // What else is not learnt from, and why, a sentence each; of sampling after Prepare.
  std::vector<std::string> Remarks() const;

  const LearnTurns& turns() const { return turns_; }
  const Units& units() const { return units_; }
  LearnBatch Batch(int64_t step) const { return maker_->Make(step); }  // after Prepare

  // Call before StepsPerEpoch, Data, Describe and Take. Leaves out what the model cannot learn from
  // (WithoutUnusable) and makes the first batch, so that unsuitable records are reported before a model is
  // loaded.
  void Prepare(const ModelText& text, const BatchOptions& options);
  void SetSteps(int64_t steps) { steps_ = steps; }  // no batch after this one is prepared ahead

  std::optional<LearnBatch> Take(int64_t step) override;
  void Learnt(int64_t step) override { (void)step; }

 private:
  void RequireUnits() const;
  std::string SamplingRemark() const;  // empty: the sampling of all turns is known

  const Algorithm algorithm_;
  const LearnTurns turns_;
  Units units_;
  std::optional<BatchMaker> maker_;
  int64_t steps_ = 0, coming_step_ = 0;
  std::future<LearnBatch> coming_;
};

// Online: batches from turns that the model makes for each step. A thread of its own collects them in order.
// With `ahead` above 0 it begins a step's turns while the model still learns from earlier ones; they then
// come from weights that are up to `ahead` steps older.
class CollectedBatches : public BatchSource {
 public:
  using Runs = std::vector<std::string>;
  // Returns the runs that hold the step's turns; nullopt: interrupted. Ends early once `*drain` is true.
  using Collect = std::function<std::optional<Runs>(int64_t step, const std::atomic<bool>* drain,
                                                    const std::atomic<bool>* stop)>;
  using Make = std::function<LearnBatch(int64_t step, const Runs& runs)>;

  // For the steps after `done`, up to `steps`. `asked_to_drain` and `asked_to_stop` are the user's.
  CollectedBatches(int64_t done, int64_t steps, int64_t ahead, Collect collect, Make make,
                   const std::atomic<bool>* asked_to_drain, const std::atomic<bool>* asked_to_stop);
  ~CollectedBatches() override;  // stops the collection in progress

  std::optional<LearnBatch> Take(int64_t step) override;
  void Learnt(int64_t step) override;

 private:
  void Work(int64_t first, int64_t steps);

  const int64_t ahead_;
  const Collect collect_;
  const Make make_;
  const std::atomic<bool>*const asked_to_drain_, *const asked_to_stop_;
  std::atomic<bool> drain_{false}, stop_{false};
  std::mutex mutex_;  // of the members below
  std::condition_variable wake_;
  int64_t learnt_;
  std::map<int64_t, Runs> runs_;  // by step
  bool interrupted_ = false;
  std::exception_ptr error_;
  std::thread thread_;  // last: it uses the other members
};

}  // namespace kevin
