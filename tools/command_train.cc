// `kevin train`: its manual; tools/train_options.h has its options, tools/train_run.h the run.

#include <CLI/CLI.hpp>
#include <memory>

#include "tools/commands.h"
#include "tools/train_options.h"
#include "tools/train_run.h"

namespace kevin {
namespace {

constexpr const char* kTrainExamples = R"(Examples:
  kevin train --model models/qwen --out run1                     GRPO in the Kevin recipe, one epoch, from kevin.db
  kevin train --model models/qwen --out run1 --resume            continues from the newest checkpoint
  kevin train --model models/qwen --kind cuda --since 2026-11-01 --dry-run    what would be learnt from
  kevin train --algorithm tpt --model models/qwen --out tpt1     imitate the fastest correct kernel of each problem
  kevin train --algorithm sft --select all --min-speedup 1.2 --epochs 2 --model models/qwen --out sft1
  kevin train --lora 32 --quantization nf4 --device cuda:0 --model models/qwen --out lora1
  kevin train --online --suite level1,level2 --without core --eval-suite core --eval-every 10 --model models/qwen \
              --out run2                                 turns made by the model as it is, 8 x 16 x 4 a step
  torchrun --no-python --nproc-per-node 2 kevin train --model models/qwen --out run3

OUT gets checkpoints/, model/ (or adapter/), metrics.jsonl, rollouts/ and tensorboard/; best/ and run.json from
evaluations.)";

}  // namespace

void AddTrainCommand(CLI::App& app, Action* action) {
  auto options = std::make_shared<TrainRequest>();
  CLI::App* command = app.add_subcommand(
      "train", "Train a local model on the records of a database, or online on its own turns");
  command->footer(kTrainExamples);
  AddTrainRequest(command, options.get());
  command->callback([options, action] { *action = [options] { return RunTraining(*options); }; });
}

}  // namespace kevin
