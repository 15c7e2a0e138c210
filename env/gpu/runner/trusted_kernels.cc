#include "env/gpu/runner/device_memory.h"

namespace kevin {
namespace {

// Input values: the same distributions as env/process/generator.cc, drawn on the device.
constexpr const char* kDrawing = R"cuda(
using u16 = unsigned short;
using u32 = unsigned int;
using u64 = unsigned long long;

// The element types of env/problem/precision.h. A vector is four elements.
struct f16 { u16 bits; };
struct bf16 { u16 bits; };
template <typename T> struct alignas(4 * sizeof(T)) Four { T at[4]; };

__device__ float wide(float value) { return value; }
__device__ float wide(bf16 value) { return __uint_as_float((u32)value.bits << 16); }
__device__ float wide(f16 value) {
  float result;
  asm("cvt.f32.f16 %0, %1;" : "=f"(result) : "h"(value.bits));
  return result;
}
__device__ void narrow(float value, float* to) { *to = value; }
__device__ void narrow(float value, bf16* to) { asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(to->bits) : "f"(value)); }
__device__ void narrow(float value, f16* to) {
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(to->bits) : "f"(fminf(fmaxf(value, -65504.0F), 65504.0F)));
}

__device__ u64 split_mix(u64 x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}
__device__ u32 mix(u32 counter, u64 key) {
  u32 x = counter ^ (u32)key;
  x ^= x >> 16; x *= 0x7feb352dU;
  x ^= x >> 15; x += (u32)(key >> 32); x *= 0x846ca68bU;
  x ^= x >> 16; x *= 0x9e3779b1U;
  return x ^ (x >> 15);
}
__device__ float signed_unit(u32 bits) { return (float)(int)bits * 0x1p-31F; }
__device__ float unit(u32 bits) { return (float)(bits >> 8) * 0x1p-24F; }

enum { kNormal, kUniform, kUniform01, kHeavyTailed, kPositive, kSigns };

__device__ float draw(int distribution, u32 bits) {
  switch (distribution) {
    case kNormal: return signed_unit(bits) + signed_unit(bits * 0x2c1b3c6dU) + signed_unit(bits * 0x297a2d39U);
    case kUniform: return signed_unit(bits);
    case kUniform01: return unit(bits);
    case kHeavyTailed: return signed_unit(bits) / (0.03F + unit(bits * 0x2c1b3c6dU));
    case kSigns: return bits >> 31 ? 1.0F : -1.0F;
    default: return 0.01F + unit(bits);
  }
}

template <typename T>
__device__ void fill(T* out, long long n, int distribution, u64 seed, float scale, float offset) {
  const long long stride = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i * 4 < n; i += stride) {
    const u64 key = split_mix(seed ^ split_mix((u64)((i * 4) >> 32)));
    Four<T> value;
#pragma unroll
    for (int j = 0; j < 4; ++j) narrow(draw(distribution, mix((u32)(i * 4 + j), key)) * scale + offset, value.at + j);
    if (i * 4 + 3 < n) {
      reinterpret_cast<Four<T>*>(out)[i] = value;
    } else {
      for (int j = 0; i * 4 + j < n; ++j) out[i * 4 + j] = value.at[j];
    }
  }
}
extern "C" __global__ void kevin_fill(float* out, long long n, int distribution, u64 seed, float scale, float offset) {
  fill(out, n, distribution, seed, scale, offset);
}
extern "C" __global__ void kevin_fill_f16(f16* out, long long n, int distribution, u64 seed, float scale, float offset) {
  fill(out, n, distribution, seed, scale, offset);
}
extern "C" __global__ void kevin_fill_bf16(bf16* out, long long n, int distribution, u64 seed, float scale, float offset) {
  fill(out, n, distribution, seed, scale, offset);
}

// Types of 1 byte are bools, of 8 integers.
extern "C" __global__ void kevin_fill_whole(void* out, long long n, int distribution, u64 seed, float scale, float offset,
                                            int bytes) {
  const long long stride = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
    const float value = draw(distribution, mix((u32)i, split_mix(seed ^ split_mix((u64)(i >> 32))))) * scale + offset;
    if (bytes == 1) ((bool*)out)[i] = value > 0;
    if (bytes == 8) ((long long*)out)[i] = (long long)floorf(value) - (value == scale + offset);
  }
}

enum { kUpper = 1, kLower, kSymmetric };

template <typename T>
__device__ void impose(T* matrix, long long rows, int structure) {
  const long long stride = (long long)gridDim.x * blockDim.x;
  for (long long at = (long long)blockIdx.x * blockDim.x + threadIdx.x; at < rows * rows; at += stride) {
    const long long row = at / rows, column = at % rows;
    if (structure == kUpper && column < row) matrix[at] = T{};
    if (structure == kLower && column > row) matrix[at] = T{};
    if (structure == kSymmetric && column < row) matrix[at] = matrix[column * rows + row];
  }
}
extern "C" __global__ void kevin_impose(float* matrix, long long rows, int structure) { impose(matrix, rows, structure); }
// Of types of two bytes.
extern "C" __global__ void kevin_impose_16(u16* matrix, long long rows, int structure) { impose(matrix, rows, structure); }

extern "C" __global__ void kevin_count_other(const u32* words, long long n, u32 expected, u64* count) {
  const long long stride = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
    if (words[i] != expected) atomicAdd(count, 1ULL);
  }
}

extern "C" __global__ void kevin_canary(u32* out, int n, u32 seed) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = mix(i, seed);
}
extern "C" __global__ void kevin_canary_check(const u32* out, int n, u32 seed, u64* count) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    if (out[i] != mix(i, seed)) atomicAdd(count, 1ULL);
  }
}

// To nearest even with `dropped` fewer bits of mantissa, and no further from 0 than `largest`.
template <typename T>
__device__ void round_to(T* data, long long n, u32 dropped, float largest) {
  const long long stride = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
    u32 bits = __float_as_uint(wide(data[i]));
    if ((bits >> 23 & 255) == 255) continue;
    bits = (bits + (1U << (dropped - 1)) - 1 + (bits >> dropped & 1)) & ~((1U << dropped) - 1);
    narrow(fminf(fmaxf(__uint_as_float(bits), -largest), largest), data + i);
  }
}
extern "C" __global__ void kevin_round(float* data, long long n, u32 dropped, float largest) {
  round_to(data, n, dropped, largest);
}
extern "C" __global__ void kevin_round_f16(f16* data, long long n, u32 dropped, float largest) {
  round_to(data, n, dropped, largest);
}
extern "C" __global__ void kevin_round_bf16(bf16* data, long long n, u32 dropped, float largest) {
  round_to(data, n, dropped, largest);
}

extern "C" __global__ void kevin_scrub(int words) {
  extern __shared__ u32 everything[];
  for (int i = threadIdx.x; i < words; i += blockDim.x) everything[i] = 0x7fd57fd5U;
  __syncthreads();
  if (everything[(threadIdx.x * 7) % words] != 0x7fd57fd5U) __nanosleep(1);  // keeps the stores
}
)cuda";

// The per-element check of env/verdict/verify.h.
constexpr const char* kChecking = R"cuda(
struct Verdict {
  u64 wrong, first_wrong, worst;  // worst: bits of error / bound, then the index
  u64 bad_row;
  u32 reference_error;  // bits of the largest |reference - truth| / scale
};

template <typename T>
struct Tensors {
  const T *answer, *reference;
  const double *truth, *scale;  // both may be null
  double of_scale, of_value, absolute;  // ErrorFloor
  double largest;               // of T
  long long rows, row;          // number of rows, elements of each
};
template <typename T> constexpr bool kIsNarrow = sizeof(T) == 2;

__device__ bool finite(double x) { return fabs(x) < __longlong_as_double(0x7ff0000000000000LL); }
template <typename T>
__device__ double target(const Tensors<T>& t, long long i) {
  return t.truth ? t.truth[i] : (double)wide(t.reference[i]);
}

template <typename T>
__device__ double floor_at(const Tensors<T>& t, double x, double scale) {
  return kIsNarrow<T> ? t.of_scale * scale + t.of_value * fabs(x) + t.absolute : t.of_scale * scale;
}

// Of 16-bit types, whose range correct arithmetic may leave: the rule of env/verdict/verify.cc.
template <typename T>
__device__ bool right_beyond_range(const Tensors<T>& t, float y, double x, double floor) {
  if (!kIsNarrow<T>) return false;
  if (!finite(x)) return !t.truth;
  if (finite(y)) return fabs(y - x) <= floor;
  return !isnan(y) && (y > 0) == (x > 0) && fabs(x) + floor > t.largest;
}

template <int N>
__device__ void add_up(double (&sums)[N], double* out, int lanes) {
#pragma unroll
  for (int k = 0; k < N; ++k) {
    for (int lane = 16; lane > 0; lane >>= 1) sums[k] += __shfl_down_sync(~0U, sums[k], lane);
  }
  if (lanes == 32) {
    if (threadIdx.x % 32 == 0) for (int k = 0; k < N; ++k) out[k] = sums[k];
    return;
  }
  __shared__ double parts[32][N];
  if (threadIdx.x % 32 == 0) for (int k = 0; k < N; ++k) parts[threadIdx.x / 32][k] = sums[k];
  __syncthreads();
  if (threadIdx.x == 0) {
    for (int k = 0; k < N; ++k) {
      double sum = 0;
      for (int w = 0; w < (int)blockDim.x / 32; ++w) sum += parts[w][k];
      atomicAdd(out + k, sum);
    }
  }
  __syncthreads();
}

// Calls row_part(row, begin, end, first, step, lanes): a warp a row when rows are short, else blocks share one.
template <typename Part>
__device__ void for_each_part(long long rows, long long row, const Part& part) {
  constexpr long long kChunk = 65536;
  if (row <= 2048) {
    const long long warps = (long long)gridDim.x * blockDim.x / 32;
    for (long long r = ((long long)blockIdx.x * blockDim.x + threadIdx.x) / 32; r < rows; r += warps) {
      part(r, r * row, (r + 1) * row, (long long)(threadIdx.x % 32), 32LL, 32);
    }
    return;
  }
  const long long chunks = (row + kChunk - 1) / kChunk;
  for (long long c = blockIdx.x; c < rows * chunks; c += gridDim.x) {
    const long long r = c / chunks, begin = r * row + c % chunks * kChunk;
    const long long end = begin + kChunk < (r + 1) * row ? begin + kChunk : (r + 1) * row;
    part(r, begin, end, (long long)threadIdx.x, (long long)blockDim.x, (int)blockDim.x);
  }
}

// sums: [rows][2], zeroed: squares of finite targets, how many there are.
template <typename T>
__device__ void row_squares(const Tensors<T>& t, double* sums) {
  for_each_part(t.rows, t.row, [&](long long r, long long begin, long long end, long long first, long long step,
                                   int lanes) {
    double part[2] = {};
    constexpr int kBatch = 8;
    long long i = begin + first;
    for (; i + (kBatch - 1) * step < end; i += kBatch * step) {
      double x[kBatch];
#pragma unroll
      for (int k = 0; k < kBatch; ++k) x[k] = target(t, i + k * step);
#pragma unroll
      for (int k = 0; k < kBatch; ++k) if (finite(x[k])) { part[0] += x[k] * x[k]; part[1] += 1; }
    }
    for (; i < end; i += step) {
      const double x = target(t, i);
      if (finite(x)) { part[0] += x * x; part[1] += 1; }
    }
    add_up(part, sums + r * 2, lanes);
  });
}

extern "C" __global__ void kevin_row_squares(Tensors<float> t, double* sums) { row_squares(t, sums); }
extern "C" __global__ void kevin_row_squares_f16(Tensors<f16> t, double* sums) { row_squares(t, sums); }
extern "C" __global__ void kevin_row_squares_bf16(Tensors<bf16> t, double* sums) { row_squares(t, sums); }

template <int kBytes> struct RawFour { using type = uint2; };
template <> struct RawFour<4> { using type = uint4; };

// What most timed answers pass: every element within the floor of its own magnitude alone, which is stricter than
// the rule. Counts the others; only then is the careful check needed.
template <typename T>
__device__ void surely_fine(const T* answer, const T* reference, long long n, float floor, u64* others) {
  const long long stride = (long long)gridDim.x * blockDim.x;
  u64 outside = 0;
  const auto see = [&](float y, float r) { outside += !(fabsf(y - r) <= floor * fabsf(r)); };
  using Raw = typename RawFour<sizeof(T)>::type;
  const long long vectors = n / 4;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < vectors; i += stride) {
    const Raw y_bits = __ldcs(reinterpret_cast<const Raw*>(answer) + i);
    const Raw r_bits = __ldcs(reinterpret_cast<const Raw*>(reference) + i);
    const auto &y = reinterpret_cast<const Four<T>&>(y_bits), &r = reinterpret_cast<const Four<T>&>(r_bits);
#pragma unroll
    for (int j = 0; j < 4; ++j) see(wide(y.at[j]), wide(r.at[j]));
  }
  for (long long i = vectors * 4 + (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
    see(wide(answer[i]), wide(reference[i]));
  }
  if (outside) atomicAdd(others, outside);
}
extern "C" __global__ void kevin_surely_fine(const float* answer, const float* reference, long long n, float floor,
                                             u64* others) {
  surely_fine(answer, reference, n, floor, others);
}
extern "C" __global__ void kevin_surely_fine_f16(const f16* answer, const f16* reference, long long n, float floor,
                                                 u64* others) {
  surely_fine(answer, reference, n, floor, others);
}
extern "C" __global__ void kevin_surely_fine_bf16(const bf16* answer, const bf16* reference, long long n, float floor,
                                                  u64* others) {
  surely_fine(answer, reference, n, floor, others);
}

struct Worst {
  u64 wrong = 0, first_wrong = ~0ULL, index = 0;
  double ratio = -1, reference = 0;

  // Divisions only where a new worst is found: they cost more than everything else here.
  template <typename T>
  __device__ void see(const Tensors<T>& t, long long i, double x, float reference_value, float y, double rms,
                      double (&part)[3]) {
    const double infinite = __longlong_as_double(0x7ff0000000000000LL);
    double error, bound;
    if (!finite(x) || !finite(reference_value) || (kIsNarrow<T> && !finite(y))) {
      const double floor = floor_at(t, x, t.scale ? t.scale[i] : fmax(fabs(x), rms));
      const bool same = isnan(y) ? isnan(reference_value) : y == reference_value;
      error = same || right_beyond_range(t, y, x, floor) ? 0 : infinite;
      bound = 0;
    } else {
      const double scale = t.scale ? t.scale[i] : fmax(fabs(x), rms);
      const double reference_error = fabs(reference_value - x), floor = floor_at(t, x, scale);
      error = fabs(y - x);
      if (isnan(error)) error = infinite;
      bound = fmax(4 * reference_error, floor);
      if (reference_error > reference * scale) reference = reference_error / scale;
      part[0] += error * error;
      part[1] += reference_error * reference_error;
      part[2] += floor * floor;
    }
    if (!(error <= bound)) {
      ++wrong;
      if ((u64)i < first_wrong) first_wrong = i;
      bound = fmax(bound, 1e-300);
    }
    if (error > ratio * bound) {
      ratio = bound > 0 ? error / bound : 0;
      index = i;
    }
  }
};

// errors: [rows][3], zeroed: squares of the error, of the reference's error, of the floor.
template <typename T>
__device__ void check(const Tensors<T>& t, const double* sums, double* errors, Verdict* verdict) {
  constexpr int kBatch = 4;
  Worst found;
  for_each_part(t.rows, t.row, [&](long long r, long long begin, long long end, long long first, long long step,
                                   int lanes) {
    const double rms = sums[r * 2 + 1] > 0 ? sqrt(sums[r * 2] / sums[r * 2 + 1]) : 0;
    double part[3] = {};
    long long i = begin + first;
    for (; i + (kBatch - 1) * step < end; i += kBatch * step) {
      double x[kBatch];
      float reference[kBatch], y[kBatch];
#pragma unroll
      for (int k = 0; k < kBatch; ++k) {
        reference[k] = wide(t.reference[i + k * step]);
        y[k] = wide(t.answer[i + k * step]);
        x[k] = target(t, i + k * step);
      }
#pragma unroll
      for (int k = 0; k < kBatch; ++k) found.see(t, i + k * step, x[k], reference[k], y[k], rms, part);
    }
    for (; i < end; i += step) found.see(t, i, target(t, i), wide(t.reference[i]), wide(t.answer[i]), rms, part);
    add_up(part, errors + r * 3, lanes);
  });
  if (found.wrong) {
    atomicAdd(&verdict->wrong, found.wrong);
    atomicMin(&verdict->first_wrong, found.first_wrong);
  }
  u64 worst = found.ratio < 0 ? 0 : (u64)__float_as_uint((float)found.ratio) << 32 | (u32)found.index;
  float reference_worst = (float)found.reference;
  for (int lane = 16; lane > 0; lane >>= 1) {
    const u64 other = __shfl_down_sync(~0U, worst, lane);
    if (other > worst) worst = other;
    reference_worst = fmaxf(reference_worst, __shfl_down_sync(~0U, reference_worst, lane));
  }
  if (threadIdx.x % 32 == 0) {
    atomicMax(&verdict->worst, worst);
    atomicMax(&verdict->reference_error, __float_as_uint(reference_worst));
  }
}

extern "C" __global__ void kevin_check(Tensors<float> t, const double* sums, double* errors, Verdict* verdict) {
  check(t, sums, errors, verdict);
}
extern "C" __global__ void kevin_check_f16(Tensors<f16> t, const double* sums, double* errors, Verdict* verdict) {
  check(t, sums, errors, verdict);
}
extern "C" __global__ void kevin_check_bf16(Tensors<bf16> t, const double* sums, double* errors, Verdict* verdict) {
  check(t, sums, errors, verdict);
}

extern "C" __global__ void kevin_check_rows(const double* errors, long long rows, Verdict* verdict) {
  for (long long r = (long long)blockIdx.x * blockDim.x + threadIdx.x; r < rows; r += (long long)gridDim.x * blockDim.x) {
    if (!(errors[r * 3] <= fmax(16 * errors[r * 3 + 1], errors[r * 3 + 2]))) atomicMin(&verdict->bad_row, (u64)r);
  }
}

// Indices along one dimension: correct if their value equals the value at eager's index.
template <typename T>
__device__ void check_index(const long long* answer, const long long* reference, const T* values, long long outer,
                            long long length, long long inner, Verdict* verdict) {
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < outer * inner;
       i += (long long)gridDim.x * blockDim.x) {
    const T* line = values + i / inner * length * inner + i % inner;
    const long long y = answer[i];
    if (y >= 0 && y < length && wide(line[y * inner]) == wide(line[reference[i] * inner])) continue;
    atomicAdd(&verdict->wrong, 1ULL);
    atomicMin(&verdict->first_wrong, (u64)i);
  }
}
extern "C" __global__ void kevin_check_index(const long long* answer, const long long* reference, const float* values,
                                             long long outer, long long length, long long inner, Verdict* verdict) {
  check_index(answer, reference, values, outer, length, inner, verdict);
}
extern "C" __global__ void kevin_check_index_f16(const long long* answer, const long long* reference, const f16* values,
                                                 long long outer, long long length, long long inner, Verdict* verdict) {
  check_index(answer, reference, values, outer, length, inner, verdict);
}
extern "C" __global__ void kevin_check_index_bf16(const long long* answer, const long long* reference, const bf16* values,
                                                  long long outer, long long length, long long inner, Verdict* verdict) {
  check_index(answer, reference, values, outer, length, inner, verdict);
}
)cuda";

// What this device can do at best.
constexpr const char* kPeaks = R"cuda(
extern "C" __global__ void kevin_copy(float4* out, const float4* in, long long n) {
  const long long stride = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) __stcs(out + i, __ldcs(in + i));
}
extern "C" __global__ void kevin_read(const float4* in, long long n, float* sink) {
  const long long stride = (long long)gridDim.x * blockDim.x;
  float sum = 0;
#pragma unroll 8
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
    const float4 v = __ldcs(in + i);
    sum += v.x + v.y + v.z + v.w;
  }
  if (sum == 1.2345F) *sink = sum;
}
extern "C" __global__ void kevin_write(float4* out, long long n) {
  const long long stride = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) {
    __stcs(out + i, make_float4(1, 2, 3, 4));
  }
}
// Cycles and nanoseconds of about 20 us on one multiprocessor.
extern "C" __global__ void kevin_clock(u64* out) {
  u64 start_ns, ns;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(start_ns));
  const long long start = clock64();
  do {
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
  } while (ns - start_ns < 20000);
  out[0] = clock64() - start;
  out[1] = ns - start_ns;
}
extern "C" __global__ void kevin_fma(float* sink, int rounds) {
  float lanes[16];
  for (int j = 0; j < 16; ++j) lanes[j] = threadIdx.x + j;
  for (int i = 0; i < rounds; ++i) {
#pragma unroll
    for (int j = 0; j < 16; ++j) lanes[j] = fmaf(lanes[j], 0.999F, 0.001F);
  }
  float sum = 0;
  for (int j = 0; j < 16; ++j) sum += lanes[j];
  if (sum == 1.2345F) *sink = sum;
}
extern "C" __global__ void kevin_mma(float* sink, int rounds) {
  float c[4][4] = {};
  const u32 a = 0x3c003c00U + threadIdx.x, b = 0x3c003c00U;
  for (int i = 0; i < rounds; ++i) {
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%4,%4,%4}, {%5,%5}, {%0,%1,%2,%3};"
                   : "+f"(c[j][0]), "+f"(c[j][1]), "+f"(c[j][2]), "+f"(c[j][3]) : "r"(a), "r"(b));
    }
  }
  float sum = 0;
  for (int j = 0; j < 4; ++j) sum += c[j][0] + c[j][3];
  if (sum == 1.2345F) *sink = sum;
}
)cuda";

}  // namespace

const std::string& TrustedKernelText() {
  static const std::string kText = std::string(kDrawing) + kChecking + kPeaks;
  return kText;
}

const std::vector<std::string>& TrustedKernelNames() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names = {
        "kevin_fill_whole",   "kevin_impose", "kevin_impose_16",  "kevin_count_other", "kevin_canary",
        "kevin_canary_check", "kevin_scrub",  "kevin_check_rows", "kevin_copy",        "kevin_read",
        "kevin_write",        "kevin_clock",  "kevin_fma",        "kevin_mma"};
    for (const char* name : {"kevin_fill", "kevin_round", "kevin_surely_fine", "kevin_row_squares",
                             "kevin_check", "kevin_check_index"}) {
      for (const char* type : {"", "_f16", "_bf16"}) names.push_back(std::string(name) + type);
    }
    return names;
  }();
  return kNames;
}

}  // namespace kevin
