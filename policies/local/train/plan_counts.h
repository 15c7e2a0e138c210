#pragma once
// What a memory plan (train_plan.h) counts of one tensor, and of one token in one layer. Pure.

#include <cstdint>
#include <string>

#include "policies/local/files/model_config.h"
#include "policies/local/files/tensor_list.h"
#include "policies/local/train/options.h"

namespace kevin::local {

// The compute type: TrainOptions::dtype, else the model's own.
NumberType TypeOf(const ModelConfig& config, const TrainOptions& options);

// Bits of one number of `tensor` in memory, with the scales of its blocks. `dense`: bytes of the compute type.
double BitsOfWeight(const ExpectedTensor& tensor, const std::string& quantization, int dense);

// Numbers of the adapters of a projection [out, in]; 0 for other tensors.
int64_t AdapterNumbers(const ExpectedTensor& tensor, const LoraOptions& lora);

// Numbers that a token's layer keeps for its backward pass.
struct Widths {
  int64_t attention = 0, ffn = 0;
};
Widths WidthsOf(const ModelConfig& config);

}  // namespace kevin::local
