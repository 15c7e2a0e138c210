#pragma once
// The figures of each training step: as a JSON event, in OUT/metrics.jsonl, for TensorBoard, and as text.

#include <cstdint>
#include <filesystem>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "agent/events.h"
#include "agent/train/batches.h"
#include "agent/train/turn_times.h"
#include "policies/local/train/batch.h"

namespace kevin {

// The event `step`: its figures by name, null where unknown. `return` is the mean return, `not_okay` Kevin's
// ratio, `delta_logprob` the gap between sampler and trainer (policies/local/train/batch.h says of which tokens). `mfu` is null here; the caller fills it in where it knows
// the GPU (PeakFlops). Online only: `flat_tasks` of `tasks` and their share `flat_share`, `staleness` in steps, `sync_s` until
// the sampler had the new weights, and what AddTurnTimes adds.
Json StepEvent(const LearnBatch& learned, const local::StepFigures& figures, int64_t steps,
               double step_seconds, double time_left_s);

// Adds `turns_s`, for which the step waited for its turns (`seconds` follow it), and of the turns that this process made for
// it `generate_s` and `judge_s` (turn_times.h; null where it made none, because they were there before a resumption). The
// latter two overlap each other where sampler and judge have devices of their own, and, with turns made ahead, earlier steps:
// their sum may exceed `turns_s`. Adds `parked_tasks`, which `tasks` does not count.
void AddTurnTimes(double turns_s, const TurnTimes& times, Json* event);

// "step 12/40  loss ...", one line.
std::string StepLine(const Json& event);

// Signs of trouble, a sentence each. `first`: the event of the run's first step.
std::vector<std::string> Warnings(const Json& event, const Json& first);

// FLOP/s of bfloat16 or float16 products with float32 sums, dense, as the vendor states them, by the driver's
// name of the GPU; nullopt: unknown. For the model FLOP utilisation:
//
//   mfu = FLOP of the model's products in a step / (train_s * ranks * peak)
//
// FLOP counts 2 for each weight that a token is multiplied with, three times (forward, backward to the
// inputs, backward to the weights; twice where only adapters are trained), the head's for trained tokens
// only; and attention's 6 * layers * heads * head_dim * length^2 a sequence. Recomputation and passes without
// gradients do not count.
std::optional<double> PeakFlops(const std::string& gpu_name);

// A TensorBoard event file of scalars: events.out.tfevents.SECONDS.HOST.PID.
class TensorBoardFile {
 public:
  // Creates the file, and `folder` if needed. Throws Error(kBadRequest) when that fails.
  TensorBoardFile(const std::filesystem::path& folder, double wall_time);
  // Flushed, so that a viewer sees it. Throws Error(kBroken) when the disk is full.
  void Add(int64_t step, double wall_time, const std::map<std::string, double>& scalars);

 private:
  void Record(const std::string& event);
  std::filesystem::path path_;
  std::ofstream file_;
};

uint32_t Crc32c(std::string_view bytes);

// metrics.jsonl and TensorBoard in `folder`: the events of steps and of evaluations (sampled_training.h).
// Events of an earlier start after its step `done` are dropped.
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
