#pragma once
// Batches from databases as they are. The next one is read while the last one is learnt from.

#include <future>
#include <string>

#include "agent/train/batch_source.h"

namespace kevin {

class RecordedBatches : public BatchSource {
 public:
  // Throws Error(kBadRequest) where there is nothing to learn from.
  RecordedBatches(const LearnRequest& request, const Algorithm& algorithm, const UnitOptions& units);

  int64_t StepsPerEpoch() const;
  std::string Describe() const;  // "8 tasks (2 dropped) of 512 turns, 8 a step"

  // Call it before StepsPerEpoch, Describe and Take. Leaves out what the model cannot learn from
  // (WithoutUnusable) and makes the first batch, so that records that do not fit are reported before a model
  // is loaded.
  void Prepare(const ModelText& text, const BatchOptions& options);
  void SetSteps(int64_t steps) { steps_ = steps; }  // no batch after this one is prepared ahead

  std::optional<LearnBatch> Take(int64_t step) override;
  void Learnt(int64_t step) override { (void)step; }

 private:
  void RequireUnits() const;

  const Algorithm algorithm_;
  const LearnTurns turns_;
  Units units_;
  std::optional<BatchMaker> maker_;
  int64_t steps_ = 0, coming_step_ = 0;
  std::future<LearnBatch> coming_;
};

}  // namespace kevin
