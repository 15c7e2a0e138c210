#pragma once
// AdamW (arXiv 1711.05101) over all trained parameters, by torch's fused operator, in float32 whatever the
// model computes in: the optimiser updates a float32 copy of the weights; the model's weights are rounded
// from it. Weights and moments are split into equal shares, one per rank (ZeRO-1); gradients are summed in
// float32.
//
//   optimizer.Accumulate();                          after each backward pass
//   double norm = optimizer.Reduce();                over all ranks
//   optimizer.Update(learning_rate, norm);           or Discard() when the norm is not finite
//
// With max_grad_norm m > 0 gradients are multiplied by min(1, m / (norm + 1e-6)). Matrices decay, vectors
// (norms, biases) do not.

#include <ATen/core/Tensor.h>

#include <string>
#include <utility>
#include <vector>

#include "policies/local/model/language_model.h"
#include "policies/local/train/options.h"
#include "policies/local/train/ranks.h"
#include "policies/local/train/sharded_weights.h"
#include "policies/local/train/stored_shares.h"

namespace kevin::local {

class Optimizer {
 public:
  // `ranks` must outlive it. All ranks pass the same parameters.
  // `layers`: has the parameters of the layers; null: all parameters are here.
  Optimizer(std::vector<NamedParameter> parameters, const AdamOptions& options, Ranks& ranks,
            ShardedWeights* layers = nullptr);

  void Accumulate();  // adds the parameters' .grad to the sum and clears them
  double Reduce();
  void Update(double learning_rate, double norm);
  void Discard();
  int64_t Count() const { return count_; }  // of trained numbers

  // SetShare restores a copy made by Share, and the parameters from it.
  std::vector<at::Tensor> Share() const;
  void SetShare(const std::vector<at::Tensor>& share);

  // This rank's share, by name (state_layout.h). The shares of all ranks, concatenated, are the whole.
  std::vector<std::pair<std::string, at::Tensor>> State() const;
  // Reads this rank's share of a state that any number of ranks stored, with sharded layers or without; waits for no
  // rank. Throws Error(kBadRequest) when it does not fit the parameters. StateChanged sets the parameters from all
  // shares; all ranks call it.
  void ReadState(StoredShares& stored);
  void StateChanged();

 private:
  // Parameters laid end to end.
  struct Bucket {
    std::string piece;
    std::vector<NamedParameter> parameters;
    int64_t size = 0, share = 0;  // share: numbers a rank has, the last ranks' padded
    double weight_decay = 0;
    at::Tensor gradient;                       // [share * ranks] float32
    at::Tensor weights, first, second, steps;  // [share] float32; steps: scalar
  };
  at::Tensor Flat(const Bucket& bucket) const;
  void WriteBack(Bucket& bucket);
  void MakeBuckets(std::vector<NamedParameter> parameters);

  const AdamOptions options_;
  Ranks& ranks_;
  ShardedWeights* const layers_;
  std::vector<Bucket> buckets_;
  int64_t count_ = 0;
};

}  // namespace kevin::local
