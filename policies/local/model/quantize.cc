#include <ATen/ATen.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "policies/local/model/weights.h"

namespace kevin::local {
namespace {

constexpr int64_t kBlock = 64, kGroup = 256;
constexpr double kSmallestScale = 1e-38;  // a block of zeros divides by this

// From the appendix of the QLoRA paper, rounded as in bitsandbytes.
constexpr float kLevels[16] = {-1.0f,
                               -0.6961928009986877f,
                               -0.5250730514526367f,
                               -0.39491748809814453f,
                               -0.28444138169288635f,
                               -0.18477343022823334f,
                               -0.09105003625154495f,
                               0.0f,
                               0.07958029955625534f,
                               0.16093020141124725f,
                               0.24611230194568634f,
                               0.33791524171829224f,
                               0.44070982933044434f,
                               0.5626170039176941f,
                               0.7229568362236023f,
                               1.0f};

// Seven decades, the n-th with 2^n values spaced evenly between 0.1 and 1, both signs; and 0 and 1.
std::vector<float> DynamicValues() {
  std::vector<float> values = {0.0f, 1.0f};
  for (int decade = 0; decade < 7; ++decade) {
    const int count = 1 << decade;
    const at::Tensor bounds = at::linspace(0.1, 1, count + 1, at::kFloat);
    const at::Tensor middles = (bounds.narrow(0, 0, count) + bounds.narrow(0, 1, count)) / 2;
    const at::Tensor scaled = middles * std::pow(10.0, decade - 6);
    for (int i = 0; i < count; ++i) {
      values.push_back(scaled.const_data_ptr<float>()[i]);
      values.push_back(-scaled.const_data_ptr<float>()[i]);
    }
  }
  std::sort(values.begin(), values.end());
  return values;
}

at::Tensor Floats(const float* data, int64_t count, at::Device device) {
  at::Tensor tensor = at::empty({count}, at::kFloat);
  std::copy(data, data + count, tensor.mutable_data_ptr<float>());
  return tensor.to(device);
}

struct Coded {
  at::Tensor codes, scales;  // int64 [blocks, size], float [blocks]
};

// Each block of `size` numbers by its largest magnitude; the last may be short.
Coded CodeBlocks(const at::Tensor& flat, int64_t size, const at::Tensor& levels) {
  const int64_t missing = (size - flat.numel() % size) % size;
  const at::Tensor blocks = at::constant_pad_nd(flat, {0, missing}).view({-1, size});
  const at::Tensor scales = blocks.abs().amax(1);
  const at::Tensor shares =
      (blocks * scales.clamp_min(kSmallestScale).reciprocal().unsqueeze(1)).clamp(-1, 1);
  const int64_t count = levels.numel();
  const at::Tensor bounds = (levels.narrow(0, 0, count - 1) + levels.narrow(0, 1, count - 1)) / 2;
  return {at::bucketize(shares, bounds), scales};
}

void KeepScales(QuantizedMatrix& matrix, const at::Tensor& scales) {
  if (matrix.kind == Quantization::kNf4) {
    matrix.scales = scales;
    return;
  }
  matrix.scale_offset = scales.mean().view({1});
  const Coded coded = CodeBlocks(scales - matrix.scale_offset, kGroup, DynamicMap(scales.device()));
  matrix.scale_codes = coded.codes.to(at::kByte).view({-1}).narrow(0, 0, scales.numel()).clone();
  matrix.group_scales = coded.scales;
}

at::Tensor Nf4Scales(const QuantizedMatrix& matrix) {
  if (matrix.kind == Quantization::kNf4) return matrix.scales;
  const int64_t blocks = matrix.scale_codes.numel(), groups = matrix.group_scales.numel();
  const at::Tensor values =
      DynamicMap(matrix.codes.device()).index_select(0, matrix.scale_codes.to(at::kInt));
  const at::Tensor padded = at::constant_pad_nd(values, {0, groups * kGroup - blocks}).view({groups, kGroup});
  const at::Tensor scales = (padded * matrix.group_scales.unsqueeze(1)).view({-1}).narrow(0, 0, blocks);
  return scales + matrix.scale_offset;
}

at::Tensor DequantizeNf4(const QuantizedMatrix& matrix, at::ScalarType type) {
  const at::Tensor levels = Nf4Levels(matrix.codes.device());
  // Both levels of a byte at once.
  const at::Tensor pairs =
      at::stack({levels.repeat_interleave(16), levels.repeat({16})}, 1);  // [256, 2]: high half first
  const at::Tensor values = pairs.index_select(0, matrix.codes.to(at::kInt)).view({-1, kBlock});
  const at::Tensor numbers = values.mul_(Nf4Scales(matrix).unsqueeze(1)).view({-1});
  return numbers.narrow(0, 0, matrix.rows * matrix.columns).view({matrix.rows, matrix.columns}).to(type);
}

}  // namespace

at::Tensor Nf4Levels(at::Device device) { return Floats(kLevels, 16, device); }

at::Tensor DynamicMap(at::Device device) {
  static const std::vector<float> values = DynamicValues();
  return Floats(values.data(), static_cast<int64_t>(values.size()), device);
}

QuantizedMatrix Quantize(const at::Tensor& matrix, Quantization kind) {
  const at::NoGradGuard no_gradients;
  QuantizedMatrix result;
  result.kind = kind;
  result.rows = matrix.size(0);
  result.columns = matrix.size(1);
  const at::Tensor numbers = matrix.to(at::kFloat);
  if (kind == Quantization::kInt8) {
    result.scales = numbers.abs().amax(1) / 127;
    const at::Tensor steps = numbers / result.scales.clamp_min(kSmallestScale).unsqueeze(1);
    result.codes = steps.round().clamp(-127, 127).to(at::kChar);
    return result;
  }
  const Coded coded = CodeBlocks(numbers.reshape({-1}), kBlock, Nf4Levels(matrix.device()));
  const at::Tensor pairs = coded.codes.to(at::kByte).view({-1, 2});
  result.codes = at::bitwise_or(at::bitwise_left_shift(pairs.select(1, 0), 4), pairs.select(1, 1));
  KeepScales(result, coded.scales);
  return result;
}

at::Tensor Dequantize(const QuantizedMatrix& matrix, at::ScalarType type) {
  const at::NoGradGuard no_gradients;
  if (matrix.kind == Quantization::kInt8)
    return (matrix.codes.to(at::kFloat) * matrix.scales.unsqueeze(1)).to(type);
  return DequantizeNf4(matrix, type);
}

}  // namespace kevin::local
