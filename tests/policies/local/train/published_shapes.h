#pragma once
// Models of published shapes, for tests of the memory plan, on GPUs of 141 GB.

#include "policies/local/train/train_plan.h"

namespace kevin::local {

inline constexpr int64_t kGpu = 141000000000;

inline ModelConfig Published(int hidden, int layers, int heads, int kv_heads, int ffn, int vocabulary,
                             bool tied) {
  ModelConfig config;
  config.family = ModelFamily::kQwen2;
  config.hidden = hidden, config.layers = layers, config.heads = heads, config.kv_heads = kv_heads;
  config.head_dim = 128, config.ffn = ffn, config.vocabulary = vocabulary, config.tied_embeddings = tied;
  config.qkv_bias = true, config.context = 32768, config.dtype = NumberType::kBF16;
  return config;
}

inline const ModelConfig kSmall = Published(1536, 28, 12, 2, 8960, 151936, true);
inline const ModelConfig kSeven = Published(3584, 28, 28, 4, 18944, 152064, false);
inline const ModelConfig kThirtyTwo = Published(5120, 64, 40, 8, 27648, 152064, false);

inline TrainPlanRequest Ranks(int ranks, int64_t context = 0) {
  TrainPlanRequest request;
  request.ranks = ranks, request.device_bytes = kGpu, request.context_tokens = context;
  return request;
}

}  // namespace kevin::local
