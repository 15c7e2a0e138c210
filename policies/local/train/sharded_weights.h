#pragma once
// The layers' weights of a model, of which each rank keeps a share (arXiv 1910.02054, stage 3): float32 weights, Adam's
// moments and summed gradients. While the model learns, the whole weights of a layer are there only while it runs: they
// are gathered ahead, one layer before they are used, and its gradients are summed and cut into shares behind, while the
// layer before it runs backward; those of one layer at most are on the way. Forward passes keep the inputs of the layers
// alone, and each layer runs again in the backward pass.
//
// The embedding, the last norm and the head stay whole; Optimizer has them.
//
// All ranks call all functions in the same order, and run the same number of passes. One thread.

#include <ATen/core/Tensor.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "policies/local/model/language_model.h"
#include "policies/local/train/options.h"
#include "policies/local/train/ranks.h"
#include "policies/local/train/stored_shares.h"

namespace kevin::local {

// Of a tensor's storage, for all tensors that share it; 0 frees it. The numbers are lost.
void ResizeMemory(const at::Tensor& tensor, size_t bytes);

// In float64, of some numbers at a time.
double SquaresOf(const at::Tensor& values);

class ShardedWeights {
 public:
  // `model`: trainable, all weights there, without adapters. It and `ranks` must outlive this. Each layer is freed as soon
  // as it is shared out.
  ShardedWeights(LanguageModel& model, const AdamOptions& options, Ranks& ranks);
  ~ShardedWeights();
  ShardedWeights(const ShardedWeights&) = delete;
  ShardedWeights& operator=(const ShardedWeights&) = delete;

  void Release();    // frees what other ranks have a share of; the model then only learns
  void MakeWhole();  // gathers all weights, to sample from. Their addresses change.
  bool IsWhole() const { return is_whole_; }
  // Calls `visit` with each layer while its weights are whole, two layers at a time unless all are. For what takes of
  // each layer only a part, or takes it elsewhere.
  void VisitLayers(const std::function<void(int layer)>& visit);
  void DropGradients();  // and their memory, which is not planned for beside whole weights

  double SumOfSquares();  // of this rank's gradients
  void Update(double learning_rate, double gradient_scale);
  void Discard();  // the gradients

  // As Optimizer's.
  std::vector<std::pair<std::string, at::Tensor>> State() const;
  void ReadState(StoredShares& stored);
  void SharesChanged();  // tensors of State() were written to

 private:
  // Leaves of one layer laid end to end: its matrices, or its vectors.
  struct Piece {
    std::string name;            // as in state_layout.h
    std::vector<size_t> leaves;  // indices into the layer's
    std::vector<int64_t> begins;
    int64_t size = 0, share = 0;
    double weight_decay = 0;
    at::Tensor flat;                           // [share * ranks], the compute type; freed at times
    at::Tensor weights, first, second, steps;  // [share] float32; steps: scalar
    at::Tensor gradient;                       // [share] float32; undefined: zero
    std::function<void()> arriving;            // waits for a gathering under way
    bool is_there = true;
  };
  struct LayerShards {
    std::vector<NamedParameter> leaves;
    std::vector<Piece> pieces;
  };

  // A sum of gradients on the way.
  struct Sum {
    Piece* piece = nullptr;
    at::Tensor own;              // [share] float32
    std::function<void()> wait;  // until `own` is there
  };

  void Lay(int layer, LayerShards* shards);
  void Begin(int layer, bool backward);
  void End(int layer);
  void Take(int layer, const std::vector<at::Tensor>& gradients);
  void StartGathering(int layer);
  void Finish(Piece* piece);
  static void Free(Piece* piece);
  static void RequireGradient(Piece* piece);
  void FinishSums();
  template <typename Visit>
  void EachPiece(const Visit& visit) {
    for (LayerShards& layer : layers_)
      for (Piece& piece : layer.pieces) visit(piece);
  }

  LanguageModel& model_;
  const AdamOptions options_;
  Ranks& ranks_;
  std::vector<LayerShards> layers_;
  std::vector<Sum> sums_;  // of one layer
  bool is_whole_ = false;
};

}  // namespace kevin::local
