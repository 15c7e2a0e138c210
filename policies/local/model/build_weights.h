#pragma once
// The weights of a model between files and memory: laid out from a checkpoint or at random, and saved again.

#include <ATen/core/Tensor.h>

#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "policies/local/files/safetensors.h"
#include "policies/local/model/language_model.h"
#include "policies/local/model/weights.h"

namespace kevin::local {

// Fills tensors, from a checkpoint or at random.
class WeightSource {
 public:
  virtual ~WeightSource() = default;
  // `destination` has the tensor's shape, the model's device and its compute type.
  virtual void Fill(const std::string& name, const at::Tensor& destination) = 0;
};

// `checkpoint` must outlive the source and must have passed CheckTensors (tensor_list.h).
std::unique_ptr<WeightSource> MakeCheckpointSource(const Checkpoint& checkpoint, at::Device device);
// Norms 1, biases 0, the rest normal with deviation 0.02; each tensor depends on seed and name alone.
std::unique_ptr<WeightSource> MakeRandomSource(uint64_t seed, at::Device device);

// Leaves tensors as they are, for weights that are filled later.
std::unique_ptr<WeightSource> MakeNoSource();

Weights BuildWeights(const ModelConfig& config, const ModelOptions& options, WeightSource& source);

// Views of all tensors that are not quantised, by their names in the checkpoint.
std::map<std::string, at::Tensor> NamedTensors(const Weights& weights, const ModelConfig& config);

NumberType NumberTypeOf(at::ScalarType type);

// Writes weight files, in the order of names or of `order` if given. Copies one tensor at a time to the host.
// Throws like WriteTensors.
void SaveTensors(const std::filesystem::path& folder, const std::map<std::string, at::Tensor>& tensors,
                 const WriteOptions& options = {}, const std::vector<std::string>& order = {});

}  // namespace kevin::local
