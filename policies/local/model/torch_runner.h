#pragma once
// A ModelRunner over a LanguageModel: on a CPU, and through ATen on a GPU. Prefill chunks and single tokens
// run together in one step.
//
// On a CPU that others use too, start the process with OMP_WAIT_POLICY=passive: torch's threads otherwise
// spin where the others could run, and wait for each other longer than they work (8 instead of 76 tokens a
// second with 25 M parameters on 2 cores that 6 processes share).

#include <ATen/core/Tensor.h>

#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

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
  TorchRunner(LanguageModel& model, const TorchRunnerOptions& options);

  const Shape& GetShape() const override { return shape_; }
  void Submit(std::span<const SequenceStep> steps) override;
  std::vector<SampledToken> Wait() override;
  void CopyPage(int from, int to) override;

  // Zeroed at first; kernels of our own may share it.
  const PagedCache& Cache() const { return cache_; }

 private:
  int32_t LastToken(int64_t sequence) const;
  at::Tensor Hidden(std::span<const SequenceStep> steps);
  std::vector<SampledToken> Draw(std::span<const SequenceStep> steps, const at::Tensor& hidden);

  LanguageModel& model_;
  Shape shape_;
  PagedCache cache_;
  std::optional<std::vector<SampledToken>> drawn_;  // of the step in flight
  std::unordered_map<int64_t, int32_t> last_;       // what each sequence of the last step drew
};

// Drawing tokens from the logits of a step, on the device they are on.

struct DrawRequest {
  TokenSampling sampling;
  int position = 0;  // of the token to be drawn
  const LogitsProcessor* processor = nullptr;
};

// `logits` is [requests, vocabulary]. The rule is that of generate/sampler.h, which draws from logits on a
// CPU and from those that a processor changes.
std::vector<SampledToken> DrawTokens(const at::Tensor& logits, std::span<const DrawRequest> requests);

// The same rule by torch operators, which leave the logits where they are; processors are not called. For
// GPUs: it is slow on a CPU.
std::vector<SampledToken> DrawByOperators(const at::Tensor& logits, std::span<const DrawRequest> requests);

}  // namespace kevin::local
