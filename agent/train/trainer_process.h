#pragma once
// The trainer as a child process (policies/local/train/batch.h says why and what is said).

#include <filesystem>
#include <mutex>
#include <optional>
#include <string>

#include "env/error.h"
#include "env/process/shared_memory.h"
#include "env/sandbox/sandbox.h"
#include "policies/local/train/batch.h"
#include "policies/local/train/options.h"

namespace kevin {

class TrainerProcess {
 public:
  struct Opened {
    int64_t steps = 0;    // done already, where it goes on from a checkpoint
    int64_t trained = 0;  // numbers that are trained
    int rank = 0, ranks = 1;
    // Where requests are answered, if that was asked for.
    std::string url, model;
    int64_t context = 0;  // tokens of prompt and answer
  };
  // What of local::SamplingOptions is the person's to choose.
  struct Sampled {
    std::string device;
    int64_t context_tokens = 0, cache_tokens = 0;
  };

  // Starts kevin-trainer, which has our standard error and environment. Throws Error: what the trainer says,
  // or kMachine where the program was not built, or kBroken where it ended.
  TrainerProcess();
  ~TrainerProcess();
  // `sampled`: the model also answers requests, on a socket in a folder of this object's; null: it does not.
  Opened Open(const local::TrainOptions& options, const Sampled* sampled = nullptr);
  local::StepFigures Step(const local::Batch& batch);
  std::string Save();                           // a checkpoint; its folder
  std::string Finish();                         // the trained model; its folder
  void Restore(const std::string& checkpoint);  // answers come from its weights then
  // Answers name their weights as `run`@STEPS (policies/local/train/serve_training.h).
  void NameRun(const std::string& run);

  // Why it is no more; nullopt while it lives. Any thread.
  std::optional<Error> Death();

 private:
  nlohmann::json Ask(const nlohmann::json& request, const char* answer);

  Error DeathBy(int status) const;

  Fd socket_;
  std::mutex mutex_;  // of process_ and death_
  ChildProcess process_;
  std::optional<Error> death_;
  std::filesystem::path folder_;  // of the socket that requests are taken on; empty: none
};

}  // namespace kevin
