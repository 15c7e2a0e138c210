#pragma once
// The trainer as a child process; policies/local/train/batch.h has the reason and the protocol. The functions
// that talk to it are for one thread.

#include <filesystem>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "env/error.h"
#include "env/process/files.h"
#include "env/process/shared_memory.h"
#include "env/sandbox/sandbox.h"
#include "policies/local/train/batch.h"
#include "policies/local/train/options.h"
#include "policies/local/train/sampling_options.h"

namespace kevin {

class TrainerProcess {
 public:
  struct Opened {
    int64_t steps = 0;       // already done, where it continues from a checkpoint
    std::string checkpoint;  // its folder; empty: from the beginning
    int64_t trained = 0;     // count of trained numbers
    int rank = 0, ranks = 1;
    // The model's server, if one was asked for.
    std::string url, model;
    int64_t context = 0;  // tokens of prompt and reply
    bool split = false;   // all ranks compute its answers together; it is rank 0's
  };
  // Starts kevin-trainer with this process's standard error and environment. This and the functions below
  // throw the trainer's own Error, Error(kMachine) where the program is not built, and Error(kBroken) when it
  // ended.
  TrainerProcess();
  ~TrainerProcess();  // lets the trainer end, for some seconds; then kills it

  // Memory that is available on devices now, in bytes; 0: unknown. Waits for no rank.
  std::vector<int64_t> FreeBytes(const std::vector<std::string>& devices);
  // `sampled`: the model also answers requests, on a Unix socket in a private folder, whose path is filled in; null: it does
  // not.
  Opened Open(const local::TrainOptions& options, const local::SamplingOptions* sampled = nullptr);
  local::StepFigures Step(const local::Batch& batch);
  // Gives a second copy of the weights, on the sampler's device, those of the trainer; after Step and Restore. Until then
  // answers come from the weights before. Returns the seconds that it took. Waits for no rank.
  double BringSamplerUp();
  std::string Save();  // a checkpoint; returns its folder
  // The model's weights, or its adapters, in the first rank's `folder`, in place of what it has. All ranks call it. No
  // checkpoint.
  void WriteModel(const std::string& folder);
  std::string Finish();  // the trained model; returns its folder
  void Restore(
      const std::string& checkpoint);  // requests are then answered with its weights, see BringSamplerUp
  // A short text of each rank, in their order; waits for all ranks, and throws when one is lost.
  std::vector<std::string> Exchange(const std::string& own);
  // Answers name their weights as `run`@STEPS (policies/local/train/serve_training.h).
  void NameRun(const std::string& run);

  // The error of a trainer that has ended; nullopt while it runs. Any thread.
  std::optional<Error> PermanentFailure();

 private:
  nlohmann::json Ask(const nlohmann::json& request, const char* answer);

  std::optional<WorkFolder> folder_;  // of the socket; outlives the process
  Fd socket_;
  std::mutex mutex_;  // of the members below
  bool is_asking_ = false;
  ChildProcess process_;
  std::optional<Error> failure_;
};

}  // namespace kevin
