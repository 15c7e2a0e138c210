#pragma once
// What a step came to, for every kind of reader: `--json`, OUT/metrics.jsonl, TensorBoard, a person.

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "agent/events.h"
#include "agent/learn/batches.h"
#include "policies/local/train/batch.h"
#include "tools/train/tensorboard.h"

namespace kevin {

// The event `step`: its figures by name, null where unknown. `return` is the mean return, `not_okay` Kevin's
// ratio, `delta_logprob` the gap between sampler and trainer.
Json StepEvent(const LearnBatch& learned, const local::StepFigures& figures, int64_t steps,
               double step_seconds, double time_left_s);

// "step 12/40  loss ...", one line.
std::string StepLine(const Json& event);

// What a person should look at, a sentence each; `first` is the run's first step's event.
std::vector<std::string> Alarms(const Json& event, const Json& first);

// metrics.jsonl and TensorBoard in `folder`. Steps after `done` of an earlier start are dropped.
class StepLog {
 public:
  StepLog(const std::filesystem::path& folder, int64_t done);
  void Add(const Json& event);
  const std::optional<Json>& first() const { return first_; }  // the first step's event, if there was one

 private:
  std::filesystem::path path_;
  std::optional<Json> first_;
  TensorBoardFile board_;
};

}  // namespace kevin
