#pragma once
// The command line of `kevin train`: what is trained on what, the algorithm's settings, and for --online how
// turns are made and judged.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/train/algorithm.h"
#include "agent/train/batches.h"
#include "agent/train/rollouts.h"
#include "agent/train/sampled_training.h"
#include "env/environment.h"
#include "tools/device_options.h"
#include "tools/record_options.h"

namespace CLI {
class App;
}

namespace kevin {

// --- The algorithm and its settings ---

// One option of the command line for one member of local::TrainOptions.
struct TrainSetting {
  const char *flag, *member, *help, *group;
  std::string value;  // empty: the algorithm's own
};

struct TrainSettings {
  std::string algorithm = "grpo";
  SchemeOptions scheme;
  std::string select;  // sft: all, correct, best
  int batch = 0;       // units of a step; 0: the algorithm's
  std::vector<TrainSetting> settings;

  bool Has(const std::string& flag) const;  // it is on the command line
};

// `settings` must live as long as `command`.
void AddTrainSettings(CLI::App* command, TrainSettings* settings);

// The algorithm with the given options in place of its own. Throws Error(kBadRequest) for unknown names and
// invalid values.
Algorithm AlgorithmFrom(const TrainSettings& settings);

// --- --online: how turns are made and judged ---

void AddOnlineSettings(CLI::App* command, OnlineSettings* settings);

// Throws Error(kBadRequest) for an option that lacks the one it depends on.
void CheckOnlineSettings(const OnlineSettings& settings);

// One environment over all judges. Takes seconds.
std::unique_ptr<Environment> StartJudges(const OnlineSettings& settings);

// Whether a judge has this GPU ("cuda:0").
bool JudgesOnGpu(const OnlineSettings& settings, const std::string& device,
                 const GpuFinder& find_gpus = FindGpus);
// Bytes of a GPU without which some problem of the suites cannot be judged there.
int64_t JudgeBytes(const OnlineSettings& settings, const TrainSuites& suites);

// --- Which records are learnt from ---

struct FilterOptions {
  RecordFilter filter;       // its kind and rules are also those of turns that the model makes itself
  std::string versions;      // "10-40", "40"
  std::string problem_list;  // a file
};

void AddFilterOptions(CLI::App* command, FilterOptions* options);
// Throws Error(kBadRequest) for values that say nothing, and an unreadable file.
RecordFilter FilterFrom(const FilterOptions& options);

// --- The whole command line ---

struct TrainRequest {
  std::vector<std::string> databases = {"kevin.db"}, runs;
  std::string model, output, problems, without, held_out;
  FilterOptions filter;
  TrainSettings settings;
  OnlineSettings sampling;
  UnitOptions units;
  BatchOptions batches;
  int64_t steps = 0;
  double epochs = 0;
  uint64_t seed = 0;
  std::optional<bool> recompute;
  std::optional<bool> split_sampler;
  bool shard = false;
  bool resume = false, optimizer_on_cpu = false, keep_cut_off = false, json = false;
  bool from_base = false;
  AcceptedVerdicts accept;
  bool dry_run = false;
};

// `request` must live as long as `command`.
void AddTrainRequest(CLI::App* command, TrainRequest* request);

// The functions below throw Error(kBadRequest) for a request that cannot be carried out.

// Also fills in the problems of a step where the request leaves them open.
Algorithm AlgorithmOf(TrainRequest* request);
local::TrainOptions OptionsFrom(const TrainRequest& request, const Algorithm& algorithm);
// Offline: the records to learn from.
LearnRequest RecordsFrom(const TrainRequest& request, const TrainSuites& suites, const Algorithm& algorithm);
// Checks that options for records and for --online are not mixed.
void CheckSource(const TrainRequest& request);
// Checks that --out holds no other run.
void CheckOutput(const TrainRequest& request);

}  // namespace kevin
