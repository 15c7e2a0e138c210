#pragma once
// transformers and torch beside a benchmark of ours: the same shape on the GPU, in a Python of its own.

#include <string>

#include "policies/local/files/model_config.h"

namespace kevin {

// Runs `script` after lines that import time and torch and make `model`, a bfloat16 Qwen2ForCausalLM of the
// shape with random weights on the GPU. What it prints goes to stdout. 0, or 1 where Python or the script
// fails. A process of its own, since it brings its own CUDA context.
int RunTransformers(const local::ModelConfig& shape, const std::string& script);

}  // namespace kevin
