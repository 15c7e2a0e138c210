#include "policies/local/train/split_model.h"

#include <ATen/ATen.h>
#include <ATen/DeviceAccelerator.h>
#include <c10/core/GradMode.h>

#include <string>
#include <utility>

#include "env/error.h"
#include "policies/local/model/build_weights.h"
#include "policies/local/train/sampling_options.h"
#include "policies/local/train/sharded_weights.h"

namespace kevin::local {
namespace {

// The part of `whole` along `dimension` that belongs to `rank`; `slice` has its shape.
void CopyPart(const at::Tensor& whole, int rank, int dimension, at::Tensor slice) {
  const int64_t size = slice.size(dimension);
  slice.copy_(whole.narrow(dimension, rank * size, size));
}

void CopyRows(const Linear& whole, int rank, Linear* slice) {
  for (size_t i = 0; i < whole.parts.size(); ++i) {
    CopyPart(whole.parts[i].weight, rank, 0, slice->parts[i].weight);
    if (whole.parts[i].bias.defined()) CopyPart(whole.parts[i].bias, rank, 0, slice->parts[i].bias);
  }
}

void CopyColumns(const Linear& whole, int rank, Linear* slice) {
  CopyPart(whole.parts[0].weight, rank, 1, slice->parts[0].weight);
}

}  // namespace

ModelConfig SliceConfig(const ModelConfig& config, int ranks) {
  const CannotSplit why = WhyNotSplit(config, "none", ranks);
  if (!why.reason.empty()) throw Error(ExitCode::kBadRequest, why.reason, why.next);
  ModelConfig slice = config;
  slice.heads /= ranks, slice.kv_heads /= ranks, slice.ffn /= ranks;
  return slice;
}

SplitModel::SplitModel(const LanguageModel& model, Ranks& sums) : model_(model), sums_(sums) {
  const ModelConfig config = SliceConfig(model.Config(), sums.Size());
  ModelOptions options = model.Options();
  options.trainable = false, options.checkpoint_layers = false;
  const Weights& whole = model.GetWeights();
  options.rope_tokens = static_cast<int>(whole.rope_cos.size(0));
  Weights weights = BuildWeights(config, options, *MakeNoSource());
  weights.embedding = whole.embedding, weights.norm = whole.norm, weights.head = whole.head;
  slice_ = std::make_unique<LanguageModel>(config, options, std::move(weights));
  slice_->SetPartialSum([this](at::Tensor* partial) { Add(partial); });
}

void SplitModel::Add(at::Tensor* partial) {
  at::Tensor sum = partial->to(at::kFloat).contiguous();
  sums_.Sum(&sum);
  *partial = sum.to(partial->scalar_type());
}

void SplitModel::WaitForDevice() const {
  const at::Device device = model_.Options().device;
  if (device.is_cuda()) at::accelerator::synchronizeDevice(device.index());
}

// The copies are asynchronous, and sampling has a stream of its own.
void SplitModel::Refresh(const std::function<void(const std::function<void(int layer)>&)>& visit_layers) {
  Allocate();
  visit_layers([this](int layer) { Take(layer); });
  WaitForDevice();
}

void SplitModel::Take(int layer) {
  const c10::NoGradGuard no_gradients;
  const auto index = static_cast<size_t>(layer);
  const Layer& whole = model_.GetWeights().layers[index];
  Layer slice = slice_->GetWeights().layers[index];  // the same tensors
  const int rank = sums_.Rank();
  slice.input_norm.copy_(whole.input_norm), slice.ffn_norm.copy_(whole.ffn_norm);
  if (whole.q_norm.defined()) slice.q_norm.copy_(whole.q_norm), slice.k_norm.copy_(whole.k_norm);
  CopyRows(whole.qkv, rank, &slice.qkv), CopyColumns(whole.o, rank, &slice.o);
  CopyRows(whole.gate_up, rank, &slice.gate_up), CopyColumns(whole.down, rank, &slice.down);
}

template <typename Visit>
void SplitModel::EachTensor(const Visit& visit) {
  for (const Layer& layer : slice_->GetWeights().layers) {
    for (const Linear* linear : {&layer.qkv, &layer.o, &layer.gate_up, &layer.down}) visit(linear->weight);
  }
}

void SplitModel::Free() {
  EachTensor([](const at::Tensor& tensor) { ResizeMemory(tensor, 0); });
}

void SplitModel::Allocate() {
  EachTensor([](const at::Tensor& tensor) {
    if (tensor.storage().nbytes() == 0)
      ResizeMemory(tensor, static_cast<size_t>(tensor.numel()) * tensor.element_size());
  });
}

}  // namespace kevin::local
