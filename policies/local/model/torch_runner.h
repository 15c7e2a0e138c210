#pragma once
// A ModelRunner over a LanguageModel: on a CPU, and through ATen on a GPU. Prefill chunks and single tokens
// run together in one step.

#include <memory>

#include "policies/local/generate/model_runner.h"
#include "policies/local/model/language_model.h"

namespace kevin::local {

struct TorchRunnerOptions {
  int pages = 0;
  int page_tokens = 32;
  int context_tokens = 0;  // of one sequence; 0: the config's context, or what the pages hold if less
  int step_sequences = 64;
  int step_tokens = 2048;
};

class TorchRunner : public ModelRunner {
 public:
  // The model must outlive the runner; its weights may change between steps (then cached keys and values
  // are stale, which is the engine's business).
  static std::unique_ptr<TorchRunner> Make(LanguageModel& model, const TorchRunnerOptions& options);
  // Zeroed; for kernels of our own that share it.
  virtual const PagedCache& Cache() const = 0;
};

}  // namespace kevin::local
