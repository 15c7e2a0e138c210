#pragma once
// How the decoding kernels are cut for a model and a GPU: everything they are given as macros. No torch, no
// GPU.

#include <string>
#include <vector>

#include "policies/local/files/model_config.h"
#include "policies/local/gpu/gpu_program.h"

namespace kevin::local {

struct DecoderPlan {
  std::vector<std::string> macros;  // "HIDDEN=1536"
  int blocks = 0;                   // of the launch that decodes one row: one on each multiprocessor
  int decode_shared_bytes = 0;      // of each of them
  int attend_shared_bytes = 0;      // of a block of kevin_attend
  int slices = 0;                   // blocks for each row in kevin_draw_slices
};

// Why these kernels cannot run the model there; empty when they can. Without them torch decodes, slower.
std::string WhyNoDecoder(const ModelConfig& config, const GpuShape& gpu);
// Only where WhyNoDecoder is empty.
DecoderPlan PlanDecoder(const ModelConfig& config, const GpuShape& gpu, int page_tokens);

}  // namespace kevin::local
