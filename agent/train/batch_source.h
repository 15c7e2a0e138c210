#pragma once
// Where a training run's batches come from: records that are there (recorded_batches.h), or turns that the
// model makes step by step (collected_batches.h).

#include <optional>

#include "agent/train/batches.h"

namespace kevin {

class BatchSource {
 public:
  virtual ~BatchSource() = default;
  // Steps come in order. nullopt: the person broke it off. Throws Error.
  virtual std::optional<LearnBatch> Take(int64_t step) = 0;
  // The model has learnt from it.
  virtual void Learnt(int64_t step) = 0;
};

}  // namespace kevin
