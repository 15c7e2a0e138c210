#pragma once
// The trainer as a child process (policies/local/train/wire.h says why and what is said).

#include <string>

#include "env/cpu/shared_memory.h"
#include "env/sandbox/sandbox.h"
#include "policies/local/train/batch.h"
#include "policies/local/train/options.h"
#include "policies/local/train/wire.h"

namespace kevin {

class TrainerProcess {
 public:
  struct Opened {
    int64_t steps = 0;    // done already, where it goes on from a checkpoint
    int64_t trained = 0;  // numbers that are trained
    int rank = 0, ranks = 1;
  };

  // Starts kevin-trainer, which has our standard error and environment. Throws Error: what the trainer says,
  // or kMachine where the program was not built, or kBroken where it ended.
  TrainerProcess();
  Opened Open(const local::TrainOptions& options);
  local::StepFigures Step(const local::Batch& batch);
  std::string Save();    // a checkpoint; its folder
  std::string Finish();  // the trained model; its folder

 private:
  nlohmann::json Ask(const nlohmann::json& request, const char* answer);

  Fd socket_;
  ChildProcess process_;
};

}  // namespace kevin
