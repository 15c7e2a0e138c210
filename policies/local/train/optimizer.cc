#include "policies/local/train/optimizer.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <map>

#include "policies/local/train/state_layout.h"

namespace kevin::local {

Optimizer::Optimizer(std::vector<NamedParameter> parameters, const AdamOptions& options, Ranks& ranks,
                     ShardedWeights* layers)
    : options_(options), ranks_(ranks), layers_(layers) {
  const c10::NoGradGuard no_gradients;
  for (const NamedParameter& p : parameters) count_ += p.value.numel();
  if (layers_ != nullptr) std::erase_if(parameters, IsInLayer);
  MakeBuckets(std::move(parameters));
  for (Bucket& b : buckets_) {
    b.share = (b.size + ranks_.Size() - 1) / ranks_.Size();
    const at::TensorOptions numbers =
        at::TensorOptions(at::kFloat)
            .device(options_.on_cpu ? at::Device(at::kCPU) : b.parameters[0].value.device());
    b.gradient = at::zeros({b.share * ranks_.Size()}, numbers);
    b.weights = Flat(b).narrow(0, b.share * ranks_.Rank(), b.share).to(numbers.device()).clone();
    b.first = at::zeros({b.share}, numbers), b.second = at::zeros({b.share}, numbers);
    b.steps = at::zeros({}, numbers);
  }
}

void Optimizer::MakeBuckets(std::vector<NamedParameter> parameters) {
  const StateLayout layout = LayoutOf(parameters, false);
  std::map<std::string, size_t> at;
  for (NamedParameter& p : parameters) {
    const auto [found, is_new] = at.try_emplace(layout.places.at(p.name).piece, buckets_.size());
    if (is_new) {
      Bucket bucket;
      bucket.piece = found->first;
      bucket.size = layout.sizes.at(bucket.piece);
      bucket.weight_decay = p.value.dim() > 1 ? options_.weight_decay : 0;
      buckets_.push_back(std::move(bucket));
    }
    buckets_[found->second].parameters.push_back(std::move(p));
  }
}

// The parameters' values, padded with zeros to equal shares of all ranks.
at::Tensor Optimizer::Flat(const Bucket& bucket) const {
  std::vector<at::Tensor> pieces;
  for (const NamedParameter& p : bucket.parameters)
    pieces.push_back(p.value.detach().reshape(-1).to(at::kFloat));
  const int64_t padding = bucket.share * ranks_.Size() - bucket.size;
  pieces.push_back(at::zeros({padding}, pieces[0].options()));
  return at::cat(pieces);
}

void Optimizer::Accumulate() {
  const c10::NoGradGuard no_gradients;
  for (Bucket& bucket : buckets_) {
    int64_t at = 0;
    for (NamedParameter& p : bucket.parameters) {
      at::Tensor& gradient = p.value.mutable_grad();
      if (gradient.defined()) {
        bucket.gradient.narrow(0, at, p.value.numel())
            .add_(gradient.reshape(-1).to(bucket.gradient.device()));
        gradient.reset();
      }
      at += p.value.numel();
    }
  }
}

double Optimizer::Reduce() {
  const c10::NoGradGuard no_gradients;
  double squares = 0;
  for (Bucket& bucket : buckets_) {
    ranks_.Sum(&bucket.gradient);
    squares += SquaresOf(bucket.gradient);
  }
  if (layers_ != nullptr) {
    at::Tensor all = at::tensor({layers_->SumOfSquares()}, at::kDouble);
    ranks_.Sum(&all);
    squares += all.item<double>();
  }
  return std::sqrt(squares);
}

void Optimizer::Update(double learning_rate, double norm) {
  const c10::NoGradGuard no_gradients;
  const double limit = options_.max_grad_norm;
  const double scale = limit > 0 ? std::min(1.0, limit / (norm + 1e-6)) : 1;
  for (Bucket& b : buckets_) {
    at::Tensor gradient = b.gradient.narrow(0, b.share * ranks_.Rank(), b.share);
    if (scale < 1) gradient.mul_(scale);
    b.steps.add_(1);
    at::_fused_adamw_({b.weights}, {gradient}, {b.first}, {b.second}, {}, {b.steps}, learning_rate,
                      options_.beta1, options_.beta2, b.weight_decay, options_.epsilon, false, false);
    WriteBack(b);
  }
  if (layers_ != nullptr) layers_->Update(learning_rate, scale);
  Discard();
}

void Optimizer::WriteBack(Bucket& bucket) {
  at::Tensor all = bucket.weights;
  if (ranks_.Size() > 1) {
    all = at::empty_like(bucket.gradient);
    ranks_.Gather(bucket.weights, &all);
  }
  int64_t at = 0;
  for (NamedParameter& p : bucket.parameters) {
    p.value.copy_(all.narrow(0, at, p.value.numel()).view(p.value.sizes()));
    at += p.value.numel();
  }
}

void Optimizer::Discard() {
  for (Bucket& bucket : buckets_) bucket.gradient.zero_();
  if (layers_ != nullptr) layers_->Discard();
}

std::vector<at::Tensor> Optimizer::Share() const {
  std::vector<at::Tensor> share;
  for (const auto& [name, tensor] : State()) share.push_back(tensor.to(at::kCPU, at::kFloat, false, true));
  return share;
}

void Optimizer::SetShare(const std::vector<at::Tensor>& share) {
  const c10::NoGradGuard no_gradients;
  size_t next = 0;
  for (const auto& [name, tensor] : State()) tensor.copy_(share.at(next++));
  StateChanged();
}

std::vector<std::pair<std::string, at::Tensor>> Optimizer::State() const {
  std::vector<std::pair<std::string, at::Tensor>> state;
  for (const Bucket& b : buckets_) {
    state.emplace_back(b.piece + "weights", b.weights);
    state.emplace_back(b.piece + "first", b.first);
    state.emplace_back(b.piece + "second", b.second);
    state.emplace_back(b.piece + "steps", b.steps.view({1}));
  }
  if (layers_ == nullptr) return state;
  for (auto& each : layers_->State()) state.push_back(std::move(each));
  return state;
}

void Optimizer::ReadState(StoredShares& stored) {
  const c10::NoGradGuard no_gradients;
  for (Bucket& b : buckets_) {
    StoredShares::Parts parts;
    for (const NamedParameter& p : b.parameters) parts.emplace_back(p.name, p.value.numel());
    stored.ReadShare(parts, ranks_, {&b.weights, &b.first, &b.second});
    b.steps.fill_(stored.StepsOf(parts[0].first));
  }
  if (layers_ != nullptr) layers_->ReadState(stored);
}

void Optimizer::StateChanged() {
  const c10::NoGradGuard no_gradients;
  for (Bucket& bucket : buckets_) WriteBack(bucket);
  if (layers_ != nullptr) layers_->SharesChanged();
}

}  // namespace kevin::local
