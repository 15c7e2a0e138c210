// The small operations between matrix products, each in one pass over memory. Written for NVRTC, which is given
// NUMBER: 0 float, 1 bfloat16, 2 half. Rounds where torch's operators round.

typedef unsigned u32;
typedef long long i64;

constexpr float kLowest = -3.4e38f;

#if NUMBER == 0
typedef float Number;
__device__ __forceinline__ float Wide(float x) { return x; }
__device__ __forceinline__ float Narrow(float x) { return x; }
#else
typedef unsigned short Number;
__device__ __forceinline__ float Wide(Number x) {
#if NUMBER == 1
  return __uint_as_float((u32)x << 16);
#else
  float wide;
  asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x));
  return wide;
#endif
}
__device__ __forceinline__ Number Narrow(float x) {
  Number narrow;
#if NUMBER == 1
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(narrow) : "f"(x));
#else
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(narrow) : "f"(x));
#endif
  return narrow;
}
#endif
__device__ __forceinline__ float Rounded(float x) { return Wide(Narrow(x)); }

struct __align__(16) Vector {
  Number x[8];
};
__device__ __forceinline__ void Load(const Number* from, float (&x)[8]) {
  const Vector v = *(const Vector*)from;
#pragma unroll
  for (int i = 0; i < 8; ++i) x[i] = Wide(v.x[i]);
}
__device__ __forceinline__ void Store(Number* to, const float (&x)[8]) {
  Vector v;
#pragma unroll
  for (int i = 0; i < 8; ++i) v.x[i] = Narrow(x[i]);
  *(Vector*)to = v;
}

__device__ __forceinline__ float WarpSum(float x) {
#pragma unroll
  for (int lane = 16; lane > 0; lane >>= 1) x += __shfl_xor_sync(~0u, x, lane);
  return x;
}
// Over the threads of a row: a warp or the block.
template <int kThreads>
__device__ __forceinline__ float RowSum(float x) {
  x = WarpSum(x);
  if (kThreads == 32) return x;
  __shared__ float sums[8];
  __syncthreads();
  if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = x;
  __syncthreads();
  float total = 0;
#pragma unroll
  for (int w = 0; w < 8; ++w) total += sums[w];
  return total;
}

// ---- root mean square norm of rows of n numbers; kVectors for each of a row's kThreads threads

template <int kThreads, int kVectors>
__device__ __forceinline__ void Norm(const Number* x, const Number* added, const Number* weight, Number* sum,
                                     Number* normed, float* scales, i64 rows, int n, float epsilon) {
  const i64 row = (i64)blockIdx.x * (256 / kThreads) + threadIdx.x / kThreads;
  if (row >= rows) return;
  const int thread = threadIdx.x % kThreads;
  float v[kVectors][8], squares = 0;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const int at = (thread + k * kThreads) * 8;
    if (at >= n) continue;
    Load(x + row * n + at, v[k]);
    if (added) {
      float more[8];
      Load(added + row * n + at, more);
#pragma unroll
      for (int i = 0; i < 8; ++i) v[k][i] = Rounded(v[k][i] + more[i]);
      Store(sum + row * n + at, v[k]);
    }
#pragma unroll
    for (int i = 0; i < 8; ++i) squares += v[k][i] * v[k][i];
  }
  const float scale = rsqrtf(RowSum<kThreads>(squares) / n + epsilon);
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const int at = (thread + k * kThreads) * 8;
    if (at >= n) continue;
    float w[8];
    Load(weight + at, w);
#pragma unroll
    for (int i = 0; i < 8; ++i) v[k][i] = v[k][i] * scale * w[i];
    Store(normed + row * n + at, v[k]);
  }
  if (thread == 0) scales[row] = scale;
}

// With s = scale, w = weight, g = the gradient of the normed row: x's is s (w g) - x s^3 / n sum(w g x), plus the
// gradient of the sum where there is one; the weight's is the sum of g x s over rows, of each warp's or block's
// rows for itself in `of_weight` [.., n], where that is wanted.
template <int kThreads, int kVectors>
__device__ __forceinline__ void NormBackward(const Number* of_normed, const Number* of_sum, const Number* x,
                                             const float* scales, const Number* weight, Number* of_x,
                                             float* of_weight, i64 rows, int n) {
  constexpr int kRows = 256 / kThreads;
  const i64 first = (i64)blockIdx.x * kRows + threadIdx.x / kThreads;
  const int thread = threadIdx.x % kThreads;
  float to_weight[kVectors][8] = {};
  for (i64 row = first; row < rows; row += (i64)gridDim.x * kRows) {
    const float scale = scales[row];
    float v[kVectors][8], g[kVectors][8], dot = 0;
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      const int at = (thread + k * kThreads) * 8;
      if (at >= n) continue;
      float w[8];
      Load(x + row * n + at, v[k]), Load(of_normed + row * n + at, g[k]), Load(weight + at, w);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        to_weight[k][i] += g[k][i] * v[k][i] * scale;
        g[k][i] *= w[i];
        dot += g[k][i] * v[k][i];
      }
    }
    const float slope = RowSum<kThreads>(dot) * scale * scale * scale / n;
#pragma unroll
    for (int k = 0; k < kVectors; ++k) {
      const int at = (thread + k * kThreads) * 8;
      if (at >= n) continue;
      float more[8] = {};
      if (of_sum) Load(of_sum + row * n + at, more);
#pragma unroll
      for (int i = 0; i < 8; ++i) g[k][i] = g[k][i] * scale - v[k][i] * slope + more[i];
      Store(of_x + row * n + at, g[k]);
    }
  }
  if (!of_weight) return;
#pragma unroll
  for (int k = 0; k < kVectors; ++k) {
    const int at = (thread + k * kThreads) * 8;
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (at < n) of_weight[first * n + at + i] = to_weight[k][i];
  }
}

#define NORM_KERNELS(threads, vectors)                                                              \
  extern "C" __global__ void __launch_bounds__(256) kevin_norm_##threads##_##vectors(               \
      const Number* x, const Number* added, const Number* weight, Number* sum, Number* normed,      \
      float* scales, i64 rows, int n, float epsilon) {                                              \
    Norm<threads, vectors>(x, added, weight, sum, normed, scales, rows, n, epsilon);                \
  }                                                                                                 \
  extern "C" __global__ void __launch_bounds__(256) kevin_norm_backward_##threads##_##vectors(      \
      const Number* of_normed, const Number* of_sum, const Number* x, const float* scales,          \
      const Number* weight, Number* of_x, float* of_weight, i64 rows, int n) {                      \
    NormBackward<threads, vectors>(of_normed, of_sum, x, scales, weight, of_x, of_weight, rows, n); \
  }
NORM_KERNELS(32, 1)
NORM_KERNELS(32, 2)
NORM_KERNELS(32, 4)
NORM_KERNELS(256, 1)
NORM_KERNELS(256, 2)
NORM_KERNELS(256, 4)

// ---- gates: silu(first half of the columns) * second half

extern "C" __global__ void __launch_bounds__(256)
    kevin_gate(const Number* gate_up, Number* out, u32 vectors, u32 n) {
  const u32 index = blockIdx.x * 256 + threadIdx.x;
  if (index >= vectors) return;
  const u32 each = n / 8, row = index / each, at = index % each * 8;
  const Number* gate = gate_up + (i64)row * 2 * n + at;
  float g[8], up[8];
  Load(gate, g), Load(gate + n, up);
#pragma unroll
  for (int i = 0; i < 8; ++i) g[i] = Rounded(g[i] / (1 + expf(-g[i]))) * up[i];
  Store(out + (i64)row * n + at, g);
}

extern "C" __global__ void __launch_bounds__(256)
    kevin_gate_backward(const Number* of_out, const Number* gate_up, Number* of_gate_up, u32 vectors, u32 n) {
  const u32 index = blockIdx.x * 256 + threadIdx.x;
  if (index >= vectors) return;
  const u32 each = n / 8, row = index / each, at = index % each * 8;
  const i64 place = (i64)row * 2 * n + at;
  float g[8], up[8], d[8];
  Load(gate_up + place, g), Load(gate_up + place + n, up), Load(of_out + (i64)row * n + at, d);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float sigmoid = 1 / (1 + expf(-g[i])), through = d[i] * up[i];
    up[i] = g[i] * sigmoid * d[i];
    g[i] = through * sigmoid * (1 + g[i] * (1 - sigmoid));
  }
  Store(of_gate_up + place, g), Store(of_gate_up + place + n, up);
}

// ---- heads: rotation of pairs (i, i + dim / 2) of the first `turned` heads by a row's angles, the others copied.
// Heads lie in up to three tensors one after the other, at both ends.

struct Heads {
  Number* data[3];
  i64 row_stride[3];
};

extern "C" __global__ void __launch_bounds__(256)
    kevin_turn(const Heads from, const Heads to, const float* cosines, const float* sines, u32 vectors,
               u32 q_heads, u32 k_heads, u32 v_heads, u32 dim, float sign) {
  const u32 index = blockIdx.x * 256 + threadIdx.x;
  if (index >= vectors) return;
  const u32 half = dim / 2, each = half / 8, heads = q_heads + k_heads + v_heads;
  const u32 at = index % each * 8, head = index / each % heads;
  const i64 row = index / each / heads;
  const int which = head < q_heads ? 0 : head < q_heads + k_heads ? 1 : 2;
  const u32 local = which == 0 ? head : which == 1 ? head - q_heads : head - q_heads - k_heads;
  const Number* source = from.data[which] + row * from.row_stride[which] + local * dim + at;
  Number* target = to.data[which] + row * to.row_stride[which] + local * dim + at;
  float a[8], b[8];
  Load(source, a), Load(source + half, b);
#pragma unroll
  for (int i = 0; which < 2 && i < 8; ++i) {
    const float c = cosines[row * half + at + i], s = sign * sines[row * half + at + i], first = a[i];
    a[i] = __fsub_rn(__fmul_rn(first, c), __fmul_rn(b[i], s));
    b[i] = __fadd_rn(__fmul_rn(b[i], c), __fmul_rn(first, s));
  }
  Store(target, a), Store(target + half, b);
}

// ---- log-probabilities: a block for each row of logits [rows, n], at the row's temperature

struct Sums {
  float greatest, weight, weighted;  // sums of e^(z - greatest) and of z e^(z - greatest)
};
__device__ __forceinline__ Sums Merged(const Sums& a, const Sums& b) {
  const float top = fmaxf(a.greatest, b.greatest), of_a = expf(a.greatest - top),
              of_b = expf(b.greatest - top);
  return {top, a.weight * of_a + b.weight * of_b, a.weighted * of_a + b.weighted * of_b};
}

extern "C" __global__ void __launch_bounds__(256)
    kevin_logprob(const Number* logits, const i64* targets, const float* temperatures, float* logprobs,
                  float* normalisers, float* entropies, int n) {
  __shared__ Sums of_warps[8];
  const i64 row = blockIdx.x;
  const Number* from = logits + row * n;
  const float temperature = temperatures[row];
  Sums mine{kLowest, 0, 0};
  for (int at = threadIdx.x * 8; at < n; at += 256 * 8) {
    float z[8];
    Load(from + at, z);
    Sums next{kLowest, 0, 0};
#pragma unroll
    for (int i = 0; i < 8; ++i) z[i] /= temperature, next.greatest = fmaxf(next.greatest, z[i]);
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const float share = expf(z[i] - next.greatest);
      next.weight += share, next.weighted += z[i] * share;
    }
    mine = Merged(mine, next);
  }
#pragma unroll
  for (int lane = 16; lane > 0; lane >>= 1)
    mine = Merged(mine, {__shfl_xor_sync(~0u, mine.greatest, lane), __shfl_xor_sync(~0u, mine.weight, lane),
                         __shfl_xor_sync(~0u, mine.weighted, lane)});
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = mine;
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < 8; ++w) mine = Merged(mine, of_warps[w]);
  const float normaliser = mine.greatest + logf(mine.weight);
  normalisers[row] = normaliser;
  logprobs[row] = Wide(from[targets[row]]) / temperature - normaliser;
  if (entropies) entropies[row] = normaliser - mine.weighted / mine.weight;
}

// d loss / d logits in their place: with p the shares, g the gradient of the log-probability and h that of the
// entropy H, ([target] - p) g - p (log p + H) h, over the temperature.
extern "C" __global__ void __launch_bounds__(256)
    kevin_logprob_backward(Number* logits, const i64* targets, const float* temperatures,
                           const float* normalisers, const float* of_logprobs, const float* entropies,
                           const float* of_entropies, int n) {
  const i64 row = blockIdx.x;
  const int at = (blockIdx.y * 256 + threadIdx.x) * 8;
  if (at >= n) return;
  const float temperature = temperatures[row], normaliser = normalisers[row], g = of_logprobs[row];
  const float entropy = entropies ? entropies[row] : 0, h = entropies ? of_entropies[row] : 0;
  const int target = (int)targets[row] - at;
  float z[8];
  Load(logits + row * n + at, z);
#pragma unroll
  for (int i = 0; i < 8; ++i) {
    const float log_p = z[i] / temperature - normaliser, p = expf(log_p);
    z[i] = ((i == target ? g : 0) - p * g - (h != 0 ? p * (log_p + entropy) * h : 0)) / temperature;
  }
  Store(logits + row * n + at, z);
}
