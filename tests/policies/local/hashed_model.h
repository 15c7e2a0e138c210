#pragma once
// Tiny models whose weights come from an integer hash, the same in model/goldens/make_models.py: tests
// compare with what transformers computed for them, and no weights are stored.

#include <filesystem>
#include <string>
#include <vector>

#include "policies/local/files/model_config.h"
#include "policies/local/files/safetensors.h"

namespace kevin::testing {

// In [-1, 1).
std::vector<double> HashedNumbers(const std::string& name, int64_t count);
std::vector<float> HashedTensor(const std::string& name, const std::vector<int64_t>& shape);

// A folder with config.json and weights in float32.
void WriteHashedModel(const std::filesystem::path& folder, const std::string& config_json,
                      const local::WriteOptions& options = {});

// A small dense config of the family, of the shape of the goldens.
local::ModelConfig TinyConfig(local::ModelFamily family);

}  // namespace kevin::testing
