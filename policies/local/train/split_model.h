#pragma once
// The slice of a model that one of several ranks samples with, where no GPU can hold all weights (tensor parallelism,
// arXiv 1909.08053). Rank r of R has the r-th part of the kv heads with their query heads, and of the columns of the
// feed-forward layers:
//
//   q_proj, k_proj, v_proj, gate_proj, up_proj    rows of the part, with their biases
//   o_proj, down_proj                             columns of the part; the outputs are summed over the ranks
//   norms                                         copies
//   embedding, last norm, head                    those of the model in training, which are whole on every rank
//
// A forward pass sums twice a layer, in float32 whatever the model computes in. All ranks run the same tokens; each has the
// keys and values of its own heads.

#include <functional>
#include <memory>

#include "policies/local/model/language_model.h"
#include "policies/local/train/ranks.h"

namespace kevin::local {

// The config of a slice: 1/R of heads, kv_heads and ffn. Throws Error(kBadRequest) for a model that cannot be split so
// (WhyNotSplit in sampling_options.h).
ModelConfig SliceConfig(const ModelConfig& config, int ranks);

class SplitModel {
 public:
  // Of `model`, in its type and on its device; `sums`: the group that adds up, used by the thread that samples. Both
  // outlive this. The memory of the slice is there at first, its numbers are not.
  SplitModel(const LanguageModel& model, Ranks& sums);

  LanguageModel& Slice() { return *slice_; }

  // Copies this rank's part of all layers, whose memory is allocated where it was freed. `visit_layers` calls its argument
  // with each layer while that is whole (Trainer::VisitLayers). Returns when the copies are made.
  void Refresh(const std::function<void(const std::function<void(int layer)>&)>& visit_layers);
  // Frees the memory of the layers until Refresh. Addresses change.
  void Free();
  void WaitForDevice() const;  // until its kernels and copies are done, on all streams

 private:
  void Take(int layer);
  void Allocate();
  void Add(at::Tensor* partial);
  template <typename Visit>
  void EachTensor(const Visit& visit);

  const LanguageModel& model_;
  Ranks& sums_;
  std::unique_ptr<LanguageModel> slice_;
};

}  // namespace kevin::local
