#pragma once
// Decoding on a GPU by kernels of our own (kernels/): one row in a single launch that reads the weights at
// the memory's speed, several rows with cuBLAS's products and fused kernels between them. The cache is the
// torch runner's, in its layout, so that prefill by torch and decoding here take turns on it.
//
// bfloat16, dense, not quantised. One thread; launches return at once, on torch's default stream.

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "policies/local/generate/model_runner.h"
#include "policies/local/model/language_model.h"

namespace kevin::local {

class FusedDecoder {
 public:
  static constexpr int kMostRows = 64;

  struct Row {
    int given_token = -1;  // or, where negative, the one drawn for row `earlier_row` of the step before
    int earlier_row = -1;
    int position = 0;
    std::span<const int32_t> pages;
    TokenSampling sampling = {};  // no filters: see Draws
  };

  // Why the model cannot be decoded here; empty when it can.
  static std::string WhyNot(const LanguageModel& model);
  // Whether the kernels draw so; temperature alone.
  static bool Draws(const TokenSampling& sampling) {
    return sampling.top_k == 0 && sampling.top_p >= 1 && sampling.min_p <= 0;
  }

  // Model and cache must outlive the decoder. Weights may change in place between steps; where adapters are
  // attached it has to be told.
  FusedDecoder(const LanguageModel& model, const PagedCache& cache, int context_tokens);
  ~FusedDecoder();

  // One token for each row, all of them drawn. At most two steps may be uncollected.
  void Decode(std::span<const Row> rows);
  // Of the oldest step; waits for it.
  std::vector<SampledToken> Collect();
  void WeightsChanged();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kevin::local
