#pragma once
// What the decoding kernels take, as kernels/ lay it out: pointers are the device's.

#include <array>
#include <cstdint>

namespace kevin::local {

constexpr int kMostDecoderRows = 64;

struct DeviceLayer {
  const void *qkv = nullptr, *qkv_bias = nullptr, *o = nullptr, *gate_up = nullptr, *down = nullptr;
  const void *norm1 = nullptr, *norm2 = nullptr, *q_norm = nullptr, *k_norm = nullptr;
  void *keys = nullptr, *values = nullptr;
};
struct DeviceModel {
  const void* layers = nullptr;
  const void *embedding = nullptr, *final_norm = nullptr, *head = nullptr;
  const void *cosines = nullptr, *sines = nullptr;
  void *stream = nullptr, *qkv = nullptr, *attended = nullptr, *hidden = nullptr, *logits = nullptr;
  void *partial = nullptr, *counters = nullptr, *arrived = nullptr;
};
struct OneStep {
  const void* token = nullptr;
  const void* pages = nullptr;
  int given_token = -1, position = 0;
  uint32_t meetings = 0;
};
struct BatchStep {
  const void* drawn = nullptr;
  std::array<int, kMostDecoderRows> given_token{}, earlier_row{}, position{};
};
struct DeviceBatch {
  const void* pages = nullptr;
  int page_stride = 0, splits = 1;
  void *stream = nullptr, *normed = nullptr, *attended = nullptr, *hidden = nullptr;
  void* projected = nullptr;
  const void *added = nullptr, *gate_up = nullptr;
  void *partial = nullptr, *counters = nullptr;
};
struct DrawStep {
  std::array<float, kMostDecoderRows> inverse_temperature{};
  std::array<double, kMostDecoderRows> uniform{};
};
struct Drawn {
  int32_t id = -1;
  float logprob = 0, model_logprob = 0;
  uint32_t step = 0;
};

}  // namespace kevin::local
