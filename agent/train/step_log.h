#pragma once
// What a step came to, for every kind of reader: `--json`, OUT/metrics.jsonl, TensorBoard, a person.

#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "agent/events.h"
#include "agent/train/batches.h"
#include "agent/train/tensorboard.h"
#include "policies/local/train/batch.h"

namespace kevin {

// The event `step`: its figures by name, null where unknown. `return` is the mean return, `not_okay` Kevin's
// ratio, `delta_logprob` the gap between sampler and trainer, `mfu` (peak_flops.h) is added by who knows the
// GPU. Online: `flat_tasks`, `staleness` in steps, `sync_s` until the sampler had the new weights.
Json StepEvent(const LearnBatch& learned, const local::StepFigures& figures, int64_t steps,
               double step_seconds, double time_left_s);

// "step 12/40  loss ...", one line.
std::string StepLine(const Json& event);

// What a person should look at, a sentence each; `first` is the run's first step's event.
std::vector<std::string> Alarms(const Json& event, const Json& first);

// metrics.jsonl and TensorBoard in `folder`: steps, and evaluations between them (evaluation.h). What came
// after `done` steps of an earlier start is dropped.
class StepLog {
 public:
  StepLog(const std::filesystem::path& folder, int64_t done);
  void Add(const Json& event);
  bool HasEvaluation(int64_t step) const;                      // of the dev suite
  const std::optional<Json>& first() const { return first_; }  // the first step's event, if there was one

 private:
  void Note(const Json& event);

  std::filesystem::path path_;
  std::optional<Json> first_;
  std::set<int64_t> evaluated_;
  TensorBoardFile board_;
};

}  // namespace kevin
