// LoRA adapters of LanguageModel.

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <cmath>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <utility>

#include "env/error.h"
#include "policies/local/files/model_config.h"
#include "policies/local/files/safetensors.h"
#include "policies/local/model/apply_weights.h"
#include "policies/local/model/build_weights.h"
#include "policies/local/model/device.h"
#include "policies/local/model/language_model.h"
#include "policies/local/model/weights.h"

namespace kevin::local {
namespace {

constexpr char kPrefix[] = "base_model.model.";
constexpr char kConfig[] = "adapter_config.json";
constexpr char kWeights[] = "adapter_model.safetensors";

template <typename Visit>
void EachLinear(Weights& weights, const Visit& visit) {
  for (Layer& layer : weights.layers) {
    for (Linear* linear : {&layer.qkv, &layer.o, &layer.gate_up, &layer.down}) visit(*linear);
  }
}

// Visits (name of the projection, its adapters, in, out) of each sparse layer's experts.
template <typename Visit>
void EachExpertAdapters(Experts& experts, const ModelConfig& config, const Visit& visit) {
  visit("gate_proj", experts.lora_gate, config.hidden, config.expert_ffn);
  visit("up_proj", experts.lora_up, config.hidden, config.expert_ffn);
  visit("down_proj", experts.lora_down, config.expert_ffn, config.hidden);
}

template <typename Visit>
void EachScale(Weights& weights, const Visit& visit) {
  EachLinear(weights, [&](Linear& linear) { visit(linear.lora_scale); });
  for (Layer& layer : weights.layers) visit(layer.experts.lora_scale);
}

std::string LastName(const std::string& name) { return name.substr(name.rfind('.') + 1); }

void FreezeAll(Weights& weights) {
  const auto freeze = [](at::Tensor& tensor) {
    if (tensor.defined()) tensor.requires_grad_(false);
  };
  freeze(weights.embedding);
  freeze(weights.norm);
  freeze(weights.head);
  for (Layer& layer : weights.layers) {
    for (at::Tensor* tensor : {&layer.input_norm, &layer.q_norm, &layer.k_norm, &layer.ffn_norm,
                               &layer.experts.router, &layer.experts.gate_up, &layer.experts.down})
      freeze(*tensor);
  }
  EachLinear(weights, [&](Linear& linear) {
    for (Projection& part : linear.parts) {
      freeze(part.weight);
      freeze(part.bias);
    }
  });
}

at::Tensor Uniform(at::IntArrayRef shape, double bound, uint64_t seed) {
  at::Tensor tensor = at::empty(shape, at::kFloat);
  return tensor.uniform_(-bound, bound, at::make_generator<at::CPUGeneratorImpl>(seed));
}

// `dense` is [out, in] in the compute type: the adapters' products are added in float and rounded once.
void AddProducts(const Linear& linear, at::Tensor& dense) {
  for (const Projection& part : linear.parts) {
    if (!part.lora_a.defined()) continue;
    at::Tensor rows = dense.narrow(0, part.first_row, part.rows);
    rows.copy_(rows.to(at::kFloat) + AdapterProduct(part, linear.lora_scale));
  }
}

at::Tensor DenseCopy(const Linear& linear, at::ScalarType type) {
  if (!linear.IsQuantized()) return linear.weight.clone();
  std::vector<at::Tensor> parts;
  for (const Projection& part : linear.parts) parts.push_back(Dequantize(part.quantized, type));
  return at::cat(parts, 0);
}

void Detach(Linear& linear) {
  linear.lora_scale = 0;
  for (Projection& part : linear.parts) {
    part.lora_a = at::Tensor();
    part.lora_b = at::Tensor();
  }
}

void Detach(Experts& experts) {
  experts.lora_scale = 0;
  for (ExpertAdapters* adapters : {&experts.lora_gate, &experts.lora_up, &experts.lora_down}) *adapters = {};
}

// Adds the products of one projection's adapters to `dense`, [experts, out, in], expert by expert.
void AddProducts(const ExpertAdapters& adapters, double scale, const at::Tensor& dense) {
  for (int64_t expert = 0; adapters.a.defined() && expert < dense.size(0); ++expert) {
    at::Tensor rows = dense.select(0, expert);
    const at::Tensor a = adapters.a.select(0, expert).to(at::kFloat),
                     b = adapters.b.select(0, expert).to(at::kFloat);
    rows.copy_(rows.to(at::kFloat) + at::mm(b, a).mul_(scale));
  }
}

void MergeInto(Experts& experts) {
  const int64_t ffn = experts.down.size(2);
  AddProducts(experts.lora_gate, experts.lora_scale, experts.gate_up.narrow(1, 0, ffn));
  AddProducts(experts.lora_up, experts.lora_scale, experts.gate_up.narrow(1, ffn, ffn));
  AddProducts(experts.lora_down, experts.lora_scale, experts.down);
  Detach(experts);
}

// The experts' weights in memory of their own, in `type`.
void MakeDense(Experts& experts, at::ScalarType type) {
  if (experts.gate_up.defined()) {
    experts.gate_up = experts.gate_up.clone(), experts.down = experts.down.clone();
    return;
  }
  std::vector<at::Tensor> gate_up, down;
  for (size_t i = 0; i < experts.quantized_down.size(); ++i) {
    gate_up.push_back(
        at::cat({Dequantize(experts.quantized_gate[i], type), Dequantize(experts.quantized_up[i], type)}, 0));
    down.push_back(Dequantize(experts.quantized_down[i], type));
  }
  experts.gate_up = at::stack(gate_up), experts.down = at::stack(down);
  experts.quantized_gate.clear(), experts.quantized_up.clear(), experts.quantized_down.clear();
}

// The adapters as PEFT's files have them: those of experts one by one. Views of the parameters.
std::map<std::string, at::Tensor> AsInFiles(const std::vector<NamedParameter>& parameters) {
  static const std::string kExperts = ".experts.";
  std::map<std::string, at::Tensor> tensors;
  for (const NamedParameter& parameter : parameters) {
    const at::Tensor value = parameter.value.detach();
    if (value.dim() == 2) {
      tensors[parameter.name] = value;
      continue;
    }
    const size_t end = parameter.name.find(kExperts) + kExperts.size();
    for (int64_t expert = 0; expert < value.size(0); ++expert)
      tensors[fmt::format("{}{}.{}", parameter.name.substr(0, end), expert, parameter.name.substr(end))] =
          value.select(0, expert);
  }
  return tensors;
}

// Reads PEFT's configuration. Unknown fields that would change the arithmetic are errors.
AdapterOptions ReadAdapterConfig(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  text << file.rdbuf();
  if (!file)
    throw Error(ExitCode::kBadRequest, path.string() + " cannot be read", "give a PEFT adapter folder");
  const ConfigFields fields = ConfigFields::Parse(text.str(), path.string());
  if (fields.Text("peft_type", "") != "LORA") fields.Refuse("peft_type", "only LORA is supported");
  if (fields.Text("bias", "none") != "none") fields.Refuse("bias", "only none is supported");
  for (const char* field : {"use_dora", "use_rslora", "fan_in_fan_out", "lora_bias"}) {
    if (fields.Bool(field, false)) fields.Refuse(field, "not supported");
  }
  if (fields.Has("modules_to_save")) fields.Refuse("modules_to_save", "whole modules are not supported");
  AdapterOptions options;
  options.rank = fields.Int("r");
  options.alpha = fields.Number("lora_alpha");
  return options;
}

std::string AdapterConfigJson(const AdapterOptions& options, const std::string& base) {
  const nlohmann::ordered_json json = {{"base_model_name_or_path", base},
                                       {"bias", "none"},
                                       {"fan_in_fan_out", false},
                                       {"inference_mode", true},
                                       {"init_lora_weights", true},
                                       {"lora_alpha", options.alpha},
                                       {"lora_dropout", 0.0},
                                       {"modules_to_save", nullptr},
                                       {"peft_type", "LORA"},
                                       {"r", options.rank},
                                       {"target_modules", options.targets},
                                       {"task_type", "CAUSAL_LM"},
                                       {"use_dora", false},
                                       {"use_rslora", false}};
  return json.dump(2) + "\n";
}

}  // namespace

void LanguageModel::AttachAdapters(const AdapterOptions& options, uint64_t seed) {
  if (options.rank < 1) throw Error(ExitCode::kBadRequest, "the rank of adapters must be 1 or more");
  std::set<std::string> unused(options.targets.begin(), options.targets.end());
  const std::set<std::string> targets = unused;
  FreezeAll(weights_);
  const at::TensorOptions numbers = at::TensorOptions(TorchType(options.dtype)).device(options_.device);
  EachLinear(weights_, [&](Linear& linear) {
    Detach(linear);
    for (Projection& part : linear.parts) {
      unused.erase(LastName(part.name));
      if (!targets.contains(LastName(part.name))) continue;
      const double bound = 1 / std::sqrt(static_cast<double>(linear.in));
      part.lora_a = Uniform({options.rank, linear.in}, bound, seed++).to(numbers).requires_grad_(true);
      part.lora_b = at::zeros({part.rows, options.rank}, numbers).requires_grad_(true);
      linear.lora_scale = options.alpha / options.rank;
    }
  });
  for (Layer& layer : weights_.layers) {
    Detach(layer.experts);
    if (!layer.experts.router.defined()) continue;
    const auto attach = [&](const char* name, ExpertAdapters& adapters, int64_t in, int64_t out) {
      unused.erase(name);
      if (!targets.contains(name)) return;
      const double bound = 1 / std::sqrt(static_cast<double>(in));
      adapters.a =
          Uniform({config_.experts, options.rank, in}, bound, seed++).to(numbers).requires_grad_(true);
      adapters.b = at::zeros({config_.experts, out, options.rank}, numbers).requires_grad_(true);
      layer.experts.lora_scale = options.alpha / options.rank;
    };
    EachExpertAdapters(layer.experts, config_, attach);
  }
  if (!unused.empty())
    throw Error(ExitCode::kBadRequest, fmt::format("no projection is called `{}`", *unused.begin()),
                "targets are q_proj, k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj");
  adapters_ = options;
  has_adapters_ = true;
}

WithoutAdapters::WithoutAdapters(LanguageModel& model) : model_(model) {
  EachScale(model_.weights_, [&](double& scale) { scales_.push_back(std::exchange(scale, 0)); });
}

WithoutAdapters::~WithoutAdapters() {
  size_t next = 0;
  EachScale(model_.weights_, [&](double& scale) { scale = scales_[next++]; });
}

void LanguageModel::LoadAdapters(const std::filesystem::path& adapter_folder) {
  AdapterOptions options = ReadAdapterConfig(adapter_folder / kConfig);
  const Checkpoint checkpoint = Checkpoint::Open(adapter_folder / kWeights);
  std::set<std::string> targets;
  for (const auto& [name, stored] : checkpoint.Tensors()) {
    const size_t end = name.rfind(".lora_");
    if (end != std::string::npos) targets.insert(LastName(name.substr(0, end)));
  }
  options.targets.assign(targets.begin(), targets.end());
  AttachAdapters(options, 0);
  const at::NoGradGuard no_gradients;
  const std::map<std::string, at::Tensor> places = AsInFiles(Parameters());
  for (const auto& [name, value] : places) {
    const StoredTensor* stored = checkpoint.Find(name);
    if (!stored)
      throw Error(ExitCode::kBadRequest, fmt::format("{} has no `{}`", adapter_folder.string(), name));
    if (stored->shape != value.sizes().vec())
      throw Error(ExitCode::kBadRequest,
                  fmt::format("{}: `{}` does not have this model's shape", adapter_folder.string(), name));
    value.copy_(
        at::from_blob(const_cast<std::byte*>(stored->bytes.data()), stored->shape, TorchType(stored->type)));
  }
  for (const auto& [name, stored] : checkpoint.Tensors()) {
    if (!places.contains(name))
      throw Error(ExitCode::kBadRequest,
                  fmt::format("{}: `{}` has no place in this model", adapter_folder.string(), name));
  }
}

void LanguageModel::SaveAdapters(const std::filesystem::path& adapter_folder, const std::string& base) const {
  if (!has_adapters_) throw Error(ExitCode::kBadRequest, "this model has no adapters to save");
  NewFolder folder(adapter_folder);
  WriteOptions options;
  options.file_name = "adapter_model";
  SaveTensors(folder.Path(), AsInFiles(Parameters()), options);
  folder.WriteText(kConfig, AdapterConfigJson(adapters_, base));
  folder.Commit();
}

void LanguageModel::MergeAdapters() {
  if (options_.quantization != Quantization::kNone)
    throw Error(ExitCode::kBadRequest, "adapters cannot be merged into quantised weights",
                "save the model: that merges them into dense ones");
  const at::NoGradGuard no_gradients;
  EachLinear(weights_, [](Linear& linear) {
    if (linear.HasAdapters()) AddProducts(linear, linear.weight);
    Detach(linear);
  });
  for (Layer& layer : weights_.layers) {
    if (layer.experts.HasAdapters()) MergeInto(layer.experts);
  }
  has_adapters_ = false;
}

Weights LanguageModel::MergedWeights() const {
  const at::NoGradGuard no_gradients;
  Weights merged = weights_;
  if (!has_adapters_) return merged;
  EachLinear(merged, [&](Linear& linear) {
    if (!linear.HasAdapters()) return;
    linear.weight = DenseCopy(linear, TorchType(options_.dtype));
    AddProducts(linear, linear.weight);
    Detach(linear);
    for (Projection& part : linear.parts) {
      part.weight = linear.weight.narrow(0, part.first_row, part.rows);
      part.quantized = {};
    }
  });
  for (Layer& layer : merged.layers) {
    if (!layer.experts.HasAdapters()) continue;
    MakeDense(layer.experts, TorchType(options_.dtype));
    MergeInto(layer.experts);
  }
  return merged;
}

}  // namespace kevin::local
