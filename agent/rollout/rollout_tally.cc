#include "agent/rollout/rollout_tally.h"

#include <utility>

namespace kevin {

void RolloutTally::Add(const TurnRecord& turn) {
  const EvaluationRecord& e = turn.evaluation;
  const double device_s = !e.cached_from.empty() ? 0 : e.device_s.value_or(e.verify_s + e.measure_s);
  const std::lock_guard lock(mutex_);
  ++turns_;
  device_s_ += device_s;
  ++usage_.turns;
  usage_.prompt_tokens += turn.usage.prompt_tokens.value_or(0);
  usage_.completion_tokens += turn.usage.completion_tokens.value_or(0);
  usage_.device_s += device_s;
  usage_.dollars += turn.cost_usd.value_or(0);
}

void RolloutTally::Recounted(const CollectionUsage& usage, std::vector<ProblemResult> results) {
  const std::lock_guard lock(mutex_);
  usage_ = usage;
  results_ = std::move(results);
}

CollectionUsage RolloutTally::Usage() const {
  const std::lock_guard lock(mutex_);
  return usage_;
}

void RolloutTally::FillIn(RolloutStatus* status) const {
  const std::lock_guard lock(mutex_);
  status->results = results_;
  status->usage = usage_;
  status->turns = turns_;
  status->device_s = device_s_;
}

}  // namespace kevin
