#pragma once
// Shapes of published models, for benchmarks on random weights.

#include <string>

#include "policies/local/files/model_config.h"

namespace kevin {

// Qwen2.5's: "0.5B", "1.5B", "7B", "32B", and a "25M" of ours. Throws Error(kBadRequest).
local::ModelConfig ShapeNamed(const std::string& name);

}  // namespace kevin
