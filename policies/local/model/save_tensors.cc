#include "policies/local/model/save_tensors.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include "env/error.h"
#include "policies/local/files/new_folder.h"
#include "policies/local/files/tensor_list.h"
#include "policies/local/model/build_weights.h"
#include "policies/local/model/language_model.h"
#include "policies/local/model/quantize.h"

namespace kevin::local {
namespace {

// Dense copies in the place of what is quantised.
Weights Dequantized(Weights weights, at::ScalarType type) {
  for (Layer& layer : weights.layers) {
    for (Linear* linear : {&layer.qkv, &layer.o, &layer.gate_up, &layer.down}) {
      if (linear->parts.empty() || !linear->IsQuantized()) continue;
      std::vector<at::Tensor> parts;
      for (const Projection& part : linear->parts) parts.push_back(Dequantize(part.quantized, type));
      linear->weight = at::cat(parts, 0);
    }
    Experts& experts = layer.experts;
    if (experts.quantized_down.empty()) continue;
    std::vector<at::Tensor> gate_up, down;
    for (const QuantizedMatrix& matrix : experts.quantized_gate_up)
      gate_up.push_back(Dequantize(matrix, type));
    for (const QuantizedMatrix& matrix : experts.quantized_down) down.push_back(Dequantize(matrix, type));
    experts.gate_up = at::stack(gate_up);
    experts.down = at::stack(down);
  }
  return weights;
}

}  // namespace

NumberType NumberTypeOf(at::ScalarType type) {
  for (const NumberType candidate : {NumberType::kF32, NumberType::kBF16, NumberType::kF16}) {
    if (TorchType(candidate) == type) return candidate;
  }
  throw Error(ExitCode::kBroken, fmt::format("tensors of type {} are not written", c10::toString(type)));
}

void SaveTensors(const std::filesystem::path& folder, const std::map<std::string, at::Tensor>& tensors,
                 const WriteOptions& options, const std::vector<std::string>& order) {
  std::vector<std::string> names = order;
  if (names.empty()) {
    for (const auto& [name, tensor] : tensors) names.push_back(name);
  }
  std::vector<TensorToWrite> writes;
  at::Tensor on_host;  // of the tensor being written
  for (const std::string& name : names) {
    const at::Tensor& tensor = tensors.at(name);
    writes.push_back({name, NumberTypeOf(tensor.scalar_type()), tensor.sizes().vec(), [&on_host, &tensor] {
                        on_host = tensor.detach().cpu().contiguous();
                        return std::span(static_cast<const std::byte*>(on_host.const_data_ptr()),
                                         on_host.nbytes());
                      }});
  }
  WriteTensors(folder, writes, options);
}

void LanguageModel::Save(const std::filesystem::path& folder, const std::filesystem::path& files_from) const {
  const at::NoGradGuard no_gradients;
  NewFolder place(folder);
  if (!files_from.empty()) place.CopyModelFiles(files_from);
  ModelConfig config = config_;
  config.dtype = options_.dtype;
  if (!std::filesystem::exists(place.Path() / "config.json"))
    place.WriteText("config.json", ConfigJson(config));
  if (!std::filesystem::exists(place.Path() / "generation_config.json"))
    place.WriteText("generation_config.json", GenerationConfigJson(config));
  const Weights dense = Dequantized(MergedWeights(), TorchType(options_.dtype));
  std::vector<std::string> order;
  for (const ExpectedTensor& tensor : ExpectedTensors(config_)) order.push_back(tensor.name);
  SaveTensors(place.Path(), NamedTensors(dense, config_), {}, order);
  place.Commit();
}

}  // namespace kevin::local
