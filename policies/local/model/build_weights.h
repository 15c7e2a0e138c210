#pragma once
// Lays a model's weights out in memory, from whatever gives their numbers.

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "policies/local/files/safetensors.h"
#include "policies/local/model/language_model.h"
#include "policies/local/model/weights.h"

namespace kevin::local {

class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // Into `destination`, of the tensor's shape (checked before), on the model's device in its compute type.
  virtual void Fill(const std::string& name, const at::Tensor& destination) = 0;
};

// `checkpoint` must outlive it and must have been checked (tensor_list.h).
std::unique_ptr<WeightSource> MakeCheckpointSource(const Checkpoint& checkpoint, at::Device device);
// Norms 1, biases 0, the rest normal with deviation 0.02; each tensor's draw depends on seed and name alone.
std::unique_ptr<WeightSource> MakeRandomSource(uint64_t seed, at::Device device);

Weights BuildWeights(const ModelConfig& config, const ModelOptions& options, WeightSource& source);

// Every tensor by its checkpoint's name, as views of the weights; those that are quantised are absent.
std::map<std::string, at::Tensor> NamedTensors(const Weights& weights, const ModelConfig& config);

// From tensors to weight files.

NumberType NumberTypeOf(at::ScalarType type);

// In the order of their names, or in that of `order` where it is given; one tensor at a time is copied to the
// host. Throws as WriteTensors.
void SaveTensors(const std::filesystem::path& folder, const std::map<std::string, at::Tensor>& tensors,
                 const WriteOptions& options = {}, const std::vector<std::string>& order = {});

}  // namespace kevin::local
