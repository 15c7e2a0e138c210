#pragma once
// What a rollout has come to: what the whole collection used, as last counted in the database and with this
// process's turns since, what became of each problem, and this process's own turns. Any thread.

#include <mutex>
#include <vector>

#include "agent/rollout/rollout.h"

namespace kevin {

class RolloutTally {
 public:
  void Add(const TurnRecord& turn);
  void Recounted(const CollectionUsage& usage, std::vector<ProblemResult> results);
  CollectionUsage Usage() const;
  void FillIn(RolloutStatus* status) const;

 private:
  mutable std::mutex mutex_;
  std::vector<ProblemResult> results_;
  CollectionUsage usage_;
  int64_t turns_ = 0;
  double device_s_ = 0;
};

}  // namespace kevin
