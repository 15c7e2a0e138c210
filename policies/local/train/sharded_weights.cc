#include "policies/local/train/sharded_weights.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "env/error.h"

namespace kevin::local {
namespace {

// The tensors that view a layer's leaves together.
std::vector<at::Tensor> Stacked(const Layer& layer) {
  std::vector<at::Tensor> all;
  for (const Linear* linear : {&layer.qkv, &layer.o, &layer.gate_up, &layer.down}) {
    if (linear->weight.defined()) all.push_back(linear->weight);
    if (linear->bias.defined()) all.push_back(linear->bias);
  }
  return all;
}

constexpr int64_t kNormNumbers = int64_t{1} << 20;

}  // namespace

void ResizeMemory(const at::Tensor& tensor, size_t bytes) {
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  storage->set_data_ptr_noswap(storage->allocator()->allocate(bytes));
  storage->set_nbytes(bytes);
}

double SquaresOf(const at::Tensor& values) {
  at::Tensor sum = at::zeros({}, values.options().dtype(at::kDouble));
  for (int64_t at = 0; at < values.numel(); at += kNormNumbers) {
    const at::Tensor part = values.narrow(0, at, std::min(kNormNumbers, values.numel() - at)).to(at::kDouble);
    sum.add_(at::dot(part, part));
  }
  return sum.item<double>();
}

ShardedWeights::ShardedWeights(LanguageModel& model, const AdamOptions& options, Ranks& ranks)
    : model_(model), options_(options), ranks_(ranks) {
  const c10::NoGradGuard no_gradients;
  layers_.resize(model.GetWeights().layers.size());
  for (size_t l = 0; l < layers_.size(); ++l) {
    layers_[l].leaves = model.LayerParameters(static_cast<int>(l));
    Lay(static_cast<int>(l), &layers_[l]);
    for (Piece& piece : layers_[l].pieces) Free(&piece);
  }
  LayerHooks hooks;
  hooks.begin = [this](int layer, bool backward) { Begin(layer, backward); };
  hooks.end = [this](int layer) { End(layer); };
  hooks.take = [this](int layer, const std::vector<at::Tensor>& gradients) { Take(layer, gradients); };
  model_.SetLayerHooks(std::move(hooks));
}

ShardedWeights::~ShardedWeights() { model_.SetLayerHooks({}); }

// Copies a layer's leaves into two flat tensors, and makes them views of these.
void ShardedWeights::Lay(int layer, LayerShards* shards) {
  for (const bool matrices : {true, false}) {
    Piece piece;
    piece.name = fmt::format("layer{}.{}.", layer, matrices ? "matrices" : "vectors");
    piece.weight_decay = matrices ? options_.weight_decay : 0;
    for (size_t i = 0; i < shards->leaves.size(); ++i) {
      const at::Tensor& leaf = shards->leaves[i].value;
      if ((leaf.dim() > 1) != matrices) continue;
      piece.leaves.push_back(i), piece.begins.push_back(piece.size);
      piece.size += leaf.numel();
    }
    if (piece.leaves.empty()) continue;
    piece.share = (piece.size + ranks_.Size() - 1) / ranks_.Size();
    const at::TensorOptions numbers = shards->leaves[piece.leaves[0]].value.options().requires_grad(false);
    piece.flat = at::zeros({piece.share * ranks_.Size()}, numbers);
    const std::vector<at::Tensor> stacked = Stacked(model_.GetWeights().layers[static_cast<size_t>(layer)]);
    for (size_t k = 0; k < piece.leaves.size(); ++k) {
      at::Tensor leaf = shards->leaves[piece.leaves[k]].value;
      const int64_t begin = piece.begins[k];
      piece.flat.narrow(0, begin, leaf.numel()).copy_(leaf.reshape(-1));
      // Projections that are stacked are neighbours here too: the first one's place is that of all.
      for (at::Tensor whole : stacked) {
        if (whole.dim() == leaf.dim() && whole.is_contiguous() &&
            whole.storage().is_alias_of(leaf.storage()) && whole.storage_offset() == leaf.storage_offset())
          whole.set_(piece.flat.storage(), begin, whole.sizes().vec(), whole.strides().vec());
      }
      leaf.set_(piece.flat.storage(), begin, leaf.sizes().vec(), leaf.strides().vec());
    }
    const at::TensorOptions floats =
        numbers.dtype(at::kFloat).device(options_.on_cpu ? at::Device(at::kCPU) : numbers.device());
    piece.weights = piece.flat.narrow(0, piece.share * ranks_.Rank(), piece.share).to(floats, false, true);
    piece.first = at::zeros({piece.share}, floats), piece.second = at::zeros({piece.share}, floats);
    piece.steps = at::zeros({}, floats);
    shards->pieces.push_back(std::move(piece));
  }
}

void ShardedWeights::Free(Piece* piece) {
  if (!piece->is_there) return;
  ResizeMemory(piece->flat, 0);
  piece->is_there = false;
}

void ShardedWeights::StartGathering(int layer) {
  if (layer < 0 || layer >= static_cast<int>(layers_.size())) return;
  const c10::NoGradGuard no_gradients;
  for (Piece& piece : layers_[static_cast<size_t>(layer)].pieces) {
    if (piece.is_there || piece.arriving) continue;
    ResizeMemory(piece.flat, static_cast<size_t>(piece.flat.numel()) * piece.flat.element_size());
    const at::Tensor own = piece.weights.to(piece.flat.options());
    piece.arriving = ranks_.StartGather(own.view(at::kByte), piece.flat.view(at::kByte));
  }
}

void ShardedWeights::Finish(Piece* piece) {
  if (!piece->arriving) return;
  piece->arriving();
  piece->arriving = nullptr;
  piece->is_there = true;
}

void ShardedWeights::Begin(int layer, bool backward) {
  if (is_whole_) return;
  StartGathering(layer);
  for (Piece& piece : layers_[static_cast<size_t>(layer)].pieces) Finish(&piece);
  StartGathering(backward ? layer - 1 : layer + 1);
}

void ShardedWeights::End(int layer) {
  if (is_whole_) return;
  for (Piece& piece : layers_[static_cast<size_t>(layer)].pieces) Free(&piece);
}

void ShardedWeights::Take(int layer, const std::vector<at::Tensor>& gradients) {
  const c10::NoGradGuard no_gradients;
  FinishSums();  // before these gradients take memory
  for (Piece& piece : layers_[static_cast<size_t>(layer)].pieces) {
    at::Tensor all = at::zeros({piece.share * ranks_.Size()}, piece.flat.options().dtype(at::kFloat));
    for (size_t k = 0; k < piece.leaves.size(); ++k) {
      const at::Tensor& gradient = gradients[piece.leaves[k]];
      if (gradient.defined()) all.narrow(0, piece.begins[k], gradient.numel()).copy_(gradient.reshape(-1));
    }
    const at::Tensor own = at::empty({piece.share}, all.options());
    sums_.push_back({&piece, own, ranks_.StartSumShares(all, own)});
  }
}

void ShardedWeights::FinishSums() {
  const c10::NoGradGuard no_gradients;
  for (Sum& sum : std::exchange(sums_, {})) {
    sum.wait();
    sum.wait = nullptr;  // and the whole gradients, which it kept
    RequireGradient(sum.piece);
    sum.piece->gradient.add_(sum.own.to(sum.piece->gradient.device()));
  }
}

void ShardedWeights::RequireGradient(Piece* piece) {
  if (!piece->gradient.defined()) piece->gradient = at::zeros_like(piece->weights);
}

void ShardedWeights::Release() {
  if (!is_whole_) return;
  EachPiece([](Piece& piece) { Free(&piece); });
  is_whole_ = false;
}

void ShardedWeights::MakeWhole() {
  if (is_whole_) return;
  for (size_t l = 0; l < layers_.size(); ++l) {
    StartGathering(static_cast<int>(l));
    StartGathering(static_cast<int>(l) + 1);
    for (Piece& piece : layers_[l].pieces) Finish(&piece);
  }
  is_whole_ = true;
}

void ShardedWeights::VisitLayers(const std::function<void(int layer)>& visit) {
  const c10::NoGradGuard no_gradients;
  for (size_t l = 0; l < layers_.size(); ++l) {
    StartGathering(static_cast<int>(l));
    StartGathering(static_cast<int>(l) + 1);
    for (Piece& piece : layers_[l].pieces) Finish(&piece);
    visit(static_cast<int>(l));
    if (is_whole_) continue;
    for (Piece& piece : layers_[l].pieces) Free(&piece);
  }
}

void ShardedWeights::DropGradients() {
  FinishSums();
  EachPiece([](Piece& piece) { piece.gradient.reset(); });
}

double ShardedWeights::SumOfSquares() {
  FinishSums();
  double squares = 0;
  EachPiece([&](const Piece& piece) {
    if (piece.gradient.defined()) squares += SquaresOf(piece.gradient);
  });
  return squares;
}

void ShardedWeights::Update(double learning_rate, double gradient_scale) {
  const c10::NoGradGuard no_gradients;
  FinishSums();
  EachPiece([&](Piece& p) {
    RequireGradient(&p);
    if (gradient_scale < 1) p.gradient.mul_(gradient_scale);
    p.steps.add_(1);
    at::_fused_adamw_({p.weights}, {p.gradient}, {p.first}, {p.second}, {}, {p.steps}, learning_rate,
                      options_.beta1, options_.beta2, p.weight_decay, options_.epsilon, false, false);
  });
  Discard();
  SharesChanged();
}

void ShardedWeights::Discard() {
  FinishSums();
  EachPiece([](Piece& piece) {
    if (piece.gradient.defined()) piece.gradient.zero_();
  });
}

void ShardedWeights::SharesChanged() {
  if (!is_whole_) return;
  Release();
  MakeWhole();
}

std::vector<std::pair<std::string, at::Tensor>> ShardedWeights::State() const {
  std::vector<std::pair<std::string, at::Tensor>> state;
  for (const LayerShards& layer : layers_) {
    for (const Piece& p : layer.pieces) {
      state.emplace_back(p.name + "weights", p.weights), state.emplace_back(p.name + "first", p.first);
      state.emplace_back(p.name + "second", p.second),
          state.emplace_back(p.name + "steps", p.steps.view({1}));
    }
  }
  return state;
}

void ShardedWeights::ReadState(StoredShares& stored) {
  const c10::NoGradGuard no_gradients;
  for (LayerShards& layer : layers_) {
    for (Piece& p : layer.pieces) {
      StoredShares::Parts parts;
      for (const size_t leaf : p.leaves)
        parts.emplace_back(layer.leaves[leaf].name, layer.leaves[leaf].value.numel());
      stored.ReadShare(parts, ranks_, {&p.weights, &p.first, &p.second});
      p.steps.fill_(stored.StepsOf(parts[0].first));
    }
  }
}

}  // namespace kevin::local
