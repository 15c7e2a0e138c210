#pragma once
// Shapes of published models for benchmarks on random weights, and transformers on the same shape to compare.

#include <string>

#include "policies/local/files/model_config.h"

namespace kevin {

// Qwen2.5's: "0.5B", "1.5B", "7B", "32B", and "25M", which is Kevin's own. Throws Error(kBadRequest).
local::ModelConfig ShapeNamed(const std::string& name);

// Runs a Python script with transformers and torch, in a process of its own because it brings its own CUDA
// context. Lines before `script` import time and torch and make `model`, a bfloat16 Qwen2ForCausalLM of the
// shape with random weights on the GPU. Its output goes to stdout. Returns 0, or 1 when Python or the script
// fails.
int RunTransformers(const local::ModelConfig& shape, const std::string& script);

}  // namespace kevin
