#include "policies/local/model/cpu_rows.h"

#include <algorithm>
#include <bit>
#include <cmath>

namespace kevin::local {
namespace {

// e^x to within a few units in the last place, without branches. Below -87 the result is 0.
inline float Exp(float x) {
  x = std::min(std::max(x, -87.0f), 88.0f);
  const float rounded = x * 1.44269504f + 12582912.0f;  // 1.5 * 2^23: the fraction falls off
  const float n = rounded - 12582912.0f;
  const float r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return p * std::bit_cast<float>((static_cast<int32_t>(n) + 127) << 23);
}

float Dot(const float* a, const float* b, int64_t n) {
  constexpr int kLanes = 32;  // sums kept apart, so that they fill vectors
  float sums[kLanes] = {};
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    for (int lane = 0; lane < kLanes; ++lane) sums[lane] += a[i + lane] * b[i + lane];
  }
  float rest = 0;
  for (; i < n; ++i) rest += a[i] * b[i];
  for (int width = kLanes / 2; width > 0; width /= 2) {
    for (int lane = 0; lane < width; ++lane) sums[lane] += sums[lane + width];
  }
  return sums[0] + rest;
}

// Softmax, in place.
void Softmax(float* scores, int64_t n) {
  float largest = scores[0], sum = 0;
  for (int64_t i = 1; i < n; ++i) largest = std::max(largest, scores[i]);
  for (int64_t i = 0; i < n; ++i) scores[i] = Exp(scores[i] - largest);
  for (int64_t i = 0; i < n; ++i) sum += scores[i];
  const float scale = 1 / sum;
  for (int64_t i = 0; i < n; ++i) scores[i] *= scale;
}

}  // namespace

void NormalizeRow(const float* x, const float* weight, int64_t n, float epsilon, float* out) {
  const float scale = 1 / std::sqrt(Dot(x, x, n) / static_cast<float>(n) + epsilon);
  for (int64_t i = 0; i < n; ++i) out[i] = x[i] * scale * weight[i];
}

void RotateHead(float* head, const float* cos, const float* sin, int64_t half) {
  for (int64_t i = 0; i < half; ++i) {
    const float a = head[i], b = head[i + half];
    head[i] = a * cos[i] - b * sin[i];
    head[i + half] = b * cos[i] + a * sin[i];
  }
}

void SwigluRow(const float* gate, const float* up, int64_t n, float* out) {
  for (int64_t i = 0; i < n; ++i) out[i] = gate[i] / (1 + Exp(-gate[i])) * up[i];
}

void AttendHeads(const CachedLayer& layer, std::span<const int32_t> pages, int64_t length, int64_t head,
                 int64_t group, const float* queries, float* scores, float* out) {
  const int64_t dim = layer.head_dim;
  const float scale = 1 / std::sqrt(static_cast<float>(dim));
  for (int64_t first = 0; first < length; first += layer.page_tokens) {
    const float* keys = layer.keys + layer.Place(pages, first) + head * dim;
    const int64_t tokens = std::min(layer.page_tokens, length - first);
    for (int64_t query = 0; query < group; ++query) {
      for (int64_t token = 0; token < tokens; ++token)
        scores[query * length + first + token] =
            scale * Dot(queries + query * dim, keys + token * layer.TokenSize(), dim);
    }
  }
  for (int64_t query = 0; query < group; ++query) Softmax(scores + query * length, length);
  std::fill(out, out + group * dim, 0.0f);
  for (int64_t first = 0; first < length; first += layer.page_tokens) {
    const float* values = layer.values + layer.Place(pages, first) + head * dim;
    const int64_t tokens = std::min(layer.page_tokens, length - first);
    for (int64_t query = 0; query < group; ++query) {
      float* sum = out + query * dim;
      for (int64_t token = 0; token < tokens; ++token) {
        const float weight = scores[query * length + first + token];
        const float* value = values + token * layer.TokenSize();
        for (int64_t i = 0; i < dim; ++i) sum[i] += weight * value[i];
      }
    }
  }
}

}  // namespace kevin::local
