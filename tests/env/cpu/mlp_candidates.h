#pragma once
// The problem of problems/mlp.toml, with its 18 parameters in one block, and candidates for it.

#include <filesystem>
#include <string>

#include "tests/folders.h"

namespace kevin {

inline std::filesystem::path MlpPath() { return SourceFolder() / "tests/env/problems/mlp.toml"; }

inline const std::string kMlpCpp = R"(#include <vector>

static void layer(const float* x, long width, const float* w, const float* b, float* out) {
#pragma omp parallel for
  for (long i = 0; i < B; ++i) {
    for (long h = 0; h < H; ++h) {
      float sum = b[h];
      for (long d = 0; d < width; ++d) sum += x[i * width + d] * w[h * width + d];
      out[i * H + h] = sum > 0 ? sum : 0;
    }
  }
}

extern "C" void launch(const float* x, const float* params, float* out) {
  static std::vector<float> one(B * H), two(B * H);
  layer(x, D, params + w1_offset, params + b1_offset, one.data());
  layer(one.data(), H, params + w2_offset, params + b2_offset, two.data());
  layer(two.data(), H, params + w3_offset, params + b3_offset, one.data());
  layer(one.data(), H, params + w4_offset, params + b4_offset, two.data());
  layer(two.data(), H, params + w5_offset, params + b5_offset, one.data());
  layer(one.data(), H, params + w6_offset, params + b6_offset, two.data());
  layer(two.data(), H, params + w7_offset, params + b7_offset, one.data());
  layer(one.data(), H, params + w8_offset, params + b8_offset, two.data());
  layer(two.data(), H, params + w9_offset, params + b9_offset, out);
}
)";

inline const std::string kMlpCuda = R"(
__global__ void layer(const float* x, const float* w, const float* b, float* out, long width) {
  const long i = blockIdx.x, h = threadIdx.x;
  float sum = b[h];
  for (long d = 0; d < width; ++d) sum += x[i * width + d] * w[h * width + d];
  out[i * H + h] = fmaxf(sum, 0.f);
}

void launch(const float* x, const float* params, float* out) {
  float* one = workspace<float>(B * H);
  float* two = workspace<float>(B * H);
  layer<<<B, H>>>(x, params + w1_offset, params + b1_offset, one, D);
  layer<<<B, H>>>(one, params + w2_offset, params + b2_offset, two, H);
  layer<<<B, H>>>(two, params + w3_offset, params + b3_offset, one, H);
  layer<<<B, H>>>(one, params + w4_offset, params + b4_offset, two, H);
  layer<<<B, H>>>(two, params + w5_offset, params + b5_offset, one, H);
  layer<<<B, H>>>(one, params + w6_offset, params + b6_offset, two, H);
  layer<<<B, H>>>(two, params + w7_offset, params + b7_offset, one, H);
  layer<<<B, H>>>(one, params + w8_offset, params + b8_offset, two, H);
  layer<<<B, H>>>(two, params + w9_offset, params + b9_offset, out, H);
}
)";

// One block a row; the layers' places are constants of the device code.
inline const std::string kMlpCudaOneKernel = R"(
__constant__ long places[18] = {w1_offset, b1_offset, w2_offset, b2_offset, w3_offset, b3_offset,
                                w4_offset, b4_offset, w5_offset, b5_offset, w6_offset, b6_offset,
                                w7_offset, b7_offset, w8_offset, b8_offset, w9_offset, b9_offset};

__global__ void network(const float* x, const float* params, float* out) {
  __shared__ float row[2][D > H ? D : H];
  for (long d = threadIdx.x; d < D; d += blockDim.x) row[0][d] = x[blockIdx.x * D + d];
  __syncthreads();
  for (int l = 0; l < 9; ++l) {
    const long width = l == 0 ? D : H;
    const float* w = params + places[2 * l];
    for (long h = threadIdx.x; h < H; h += blockDim.x) {
      float sum = params[places[2 * l + 1] + h];
      for (long d = 0; d < width; ++d) sum += row[l & 1][d] * w[h * width + d];
      row[~l & 1][h] = fmaxf(sum, 0.f);
    }
    __syncthreads();
  }
  for (long h = threadIdx.x; h < H; h += blockDim.x) out[blockIdx.x * H + h] = row[1][h];
}

void launch(const float* x, const float* params, float* out) { network<<<B, 64>>>(x, params, out); }
)";

}  // namespace kevin
