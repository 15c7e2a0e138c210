#include "policies/local/model/build_weights.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "policies/local/model/weights.h"

namespace kevin::local {
namespace {

class Builder {
 public:
  Builder(const ModelConfig& config, const ModelOptions& options, WeightSource& source)
      : config_(config),
        options_(options),
        source_(source),
        numbers_(at::TensorOptions(TorchType(options.dtype)).device(options.device)) {}

  Weights Build() {
    Weights weights;
    weights.embedding = Filled("model.embed_tokens.weight", {config_.vocabulary, config_.hidden});
    for (int layer = 0; layer < config_.layers; ++layer) weights.layers.push_back(BuildLayer(layer));
    weights.norm = Filled("model.norm.weight", {config_.hidden});
    weights.head = config_.tied_embeddings ? weights.embedding
                                           : Filled("lm_head.weight", {config_.vocabulary, config_.hidden});
    BuildRope(weights);
    return weights;
  }

 private:
  at::Tensor Filled(const std::string& name, at::IntArrayRef shape) {
    at::Tensor tensor = at::empty(shape, numbers_);
    source_.Fill(name, tensor);
    return tensor.requires_grad_(options_.trainable);
  }

  // A leaf that shares `part`'s memory.
  at::Tensor Leaf(const at::Tensor& part) const { return part.detach().requires_grad_(options_.trainable); }

  Linear BuildLinear(const std::string& prefix, const std::vector<std::pair<std::string, int64_t>>& parts,
                     int64_t in, bool bias) {
    Linear linear;
    linear.in = in;
    for (const auto& [name, rows] : parts) linear.out += rows;
    at::Tensor dense = at::empty({linear.out, in}, numbers_);
    if (bias) linear.bias = at::empty({linear.out}, numbers_);
    int64_t row = 0;
    for (const auto& [name, rows] : parts) {
      Projection part;
      part.name = prefix + name;
      part.first_row = row;
      part.rows = rows;
      const at::Tensor numbers = dense.narrow(0, row, rows);
      source_.Fill(part.name + ".weight", numbers);
      if (bias) source_.Fill(part.name + ".bias", linear.bias.narrow(0, row, rows));
      if (bias) part.bias = Leaf(linear.bias.narrow(0, row, rows));
      if (options_.quantization == Quantization::kNone) {
        part.weight = Leaf(numbers);
      } else {
        part.quantized = Quantize(numbers, options_.quantization);
      }
      linear.parts.push_back(std::move(part));
      row += rows;
    }
    if (options_.quantization == Quantization::kNone) linear.weight = dense;
    return linear;
  }

  Layer BuildLayer(int index) {
    const std::string prefix = fmt::format("model.layers.{}.", index), attention = prefix + "self_attn.";
    const int64_t hidden = config_.hidden, ffn = config_.ffn;
    const int64_t q = static_cast<int64_t>(config_.heads) * config_.head_dim;
    const int64_t kv = static_cast<int64_t>(config_.kv_heads) * config_.head_dim;
    Layer layer;
    layer.input_norm = Filled(prefix + "input_layernorm.weight", {hidden});
    layer.qkv =
        BuildLinear(attention, {{"q_proj", q}, {"k_proj", kv}, {"v_proj", kv}}, hidden, config_.qkv_bias);
    if (config_.qk_norm) {
      layer.q_norm = Filled(attention + "q_norm.weight", {config_.head_dim});
      layer.k_norm = Filled(attention + "k_norm.weight", {config_.head_dim});
    }
    layer.o = BuildLinear(attention, {{"o_proj", hidden}}, q, false);
    layer.ffn_norm = Filled(prefix + "post_attention_layernorm.weight", {hidden});
    if (config_.IsSparse(index)) {
      layer.experts = BuildExperts(prefix + "mlp.");
    } else {
      layer.gate_up = BuildLinear(prefix + "mlp.", {{"gate_proj", ffn}, {"up_proj", ffn}}, hidden, false);
      layer.down = BuildLinear(prefix + "mlp.", {{"down_proj", hidden}}, ffn, false);
    }
    return layer;
  }

  Experts BuildExperts(const std::string& prefix) {
    const int64_t hidden = config_.hidden, ffn = config_.expert_ffn, count = config_.experts;
    const bool quantize = options_.quantization != Quantization::kNone;
    const int64_t dense = quantize ? 1 : count;  // one expert at a time is dense
    Experts experts;
    experts.router = Filled(prefix + "gate.weight", {count, hidden});
    at::Tensor gate_up = at::empty({dense, 2 * ffn, hidden}, numbers_);
    at::Tensor down = at::empty({dense, hidden, ffn}, numbers_);
    for (int64_t expert = 0; expert < count; ++expert) {
      const std::string name = fmt::format("{}experts.{}.", prefix, expert);
      const at::Tensor rows = gate_up.select(0, quantize ? 0 : expert),
                       last = down.select(0, quantize ? 0 : expert);
      source_.Fill(name + "gate_proj.weight", rows.narrow(0, 0, ffn));
      source_.Fill(name + "up_proj.weight", rows.narrow(0, ffn, ffn));
      source_.Fill(name + "down_proj.weight", last);
      if (!quantize) continue;
      experts.quantized_gate.push_back(Quantize(rows.narrow(0, 0, ffn), options_.quantization));
      experts.quantized_up.push_back(Quantize(rows.narrow(0, ffn, ffn), options_.quantization));
      experts.quantized_down.push_back(Quantize(last, options_.quantization));
    }
    if (!quantize) {
      experts.gate_up = gate_up.requires_grad_(options_.trainable);
      experts.down = down.requires_grad_(options_.trainable);
    }
    return experts;
  }

  void BuildRope(Weights& weights) {
    const RopeFrequencies rope = FrequenciesOf(config_);
    const int64_t tokens = options_.rope_tokens > 0 ? options_.rope_tokens : config_.context;
    weights.rope_factor = rope.attention_factor;
    weights.rope_frequencies = at::tensor(rope.frequencies, at::kFloat).to(options_.device);
    const at::Tensor positions = at::arange(tokens, weights.rope_frequencies.options());
    const at::Tensor angles = at::outer(positions, weights.rope_frequencies);
    weights.rope_cos = angles.cos().mul_(rope.attention_factor);
    weights.rope_sin = angles.sin().mul_(rope.attention_factor);
  }

  const ModelConfig& config_;
  const ModelOptions& options_;
  WeightSource& source_;
  at::TensorOptions numbers_;
};

class Namer {
 public:
  explicit Namer(std::map<std::string, at::Tensor>& names) : names_(names) {}

  void Add(const std::string& name, const at::Tensor& tensor) {
    if (tensor.defined()) names_[name] = tensor.detach();
  }

  void Add(const Linear& linear) {
    for (const Projection& part : linear.parts) {
      Add(part.name + ".bias", part.bias);
      if (!linear.IsQuantized())
        Add(part.name + ".weight", linear.weight.narrow(0, part.first_row, part.rows));
    }
  }

  void Add(const std::string& prefix, const Experts& experts) {
    Add(prefix + "gate.weight", experts.router);
    if (!experts.gate_up.defined()) return;
    const int64_t ffn = experts.down.size(2);
    for (int64_t expert = 0; expert < experts.down.size(0); ++expert) {
      const std::string name = fmt::format("{}experts.{}.", prefix, expert);
      Add(name + "gate_proj.weight", experts.gate_up.select(0, expert).narrow(0, 0, ffn));
      Add(name + "up_proj.weight", experts.gate_up.select(0, expert).narrow(0, ffn, ffn));
      Add(name + "down_proj.weight", experts.down.select(0, expert));
    }
  }

 private:
  std::map<std::string, at::Tensor>& names_;
};

}  // namespace

Weights BuildWeights(const ModelConfig& config, const ModelOptions& options, WeightSource& source) {
  return Builder(config, options, source).Build();
}

std::map<std::string, at::Tensor> NamedTensors(const Weights& weights, const ModelConfig& config) {
  std::map<std::string, at::Tensor> names;
  Namer namer(names);
  namer.Add("model.embed_tokens.weight", weights.embedding);
  namer.Add("model.norm.weight", weights.norm);
  if (!config.tied_embeddings) namer.Add("lm_head.weight", weights.head);
  for (size_t i = 0; i < weights.layers.size(); ++i) {
    const Layer& layer = weights.layers[i];
    const std::string prefix = fmt::format("model.layers.{}.", i);
    namer.Add(prefix + "input_layernorm.weight", layer.input_norm);
    namer.Add(prefix + "post_attention_layernorm.weight", layer.ffn_norm);
    namer.Add(prefix + "self_attn.q_norm.weight", layer.q_norm);
    namer.Add(prefix + "self_attn.k_norm.weight", layer.k_norm);
    namer.Add(layer.qkv);
    namer.Add(layer.o);
    namer.Add(layer.gate_up);
    namer.Add(layer.down);
    if (layer.experts.router.defined()) namer.Add(prefix + "mlp.", layer.experts);
  }
  return names;
}

}  // namespace kevin::local
