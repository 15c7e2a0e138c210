#include "env/gpu/runner/device_memory.h"

namespace kevin {

extern const char* const kTrustedChecks;  // trusted_checks.cc
extern const char* const kTrustedPoison;  // trusted_poison.cc
extern const char* const kTrustedPython;  // trusted_python.cc

namespace {

// Input values: those of env/process/generator.cc, bit for bit, drawn on the device.
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

// ChaCha with 8 rounds, as in env/process/random.h. A thread makes one block. The blocks of a warp are a group:
// word w of the warp's block b is number 32 w + b of the group.
struct Keystream { u32 key[8]; u64 nonce; };

__device__ u32 rotate(u32 x, int bits) { return __funnelshift_l(x, x, bits); }
__device__ void quarter_round(u32& a, u32& b, u32& c, u32& d) {
  a += b; d = rotate(d ^ a, 16);
  c += d; b = rotate(b ^ c, 12);
  a += b; d = rotate(d ^ a, 8);
  c += d; b = rotate(b ^ c, 7);
}
__device__ void make_block(const Keystream& from, u64 block, u32* x) {
  const u32 start[16] = {0x61707865, 0x3320646e, 0x79622d32, 0x6b206574, from.key[0], from.key[1], from.key[2], from.key[3],
                         from.key[4], from.key[5], from.key[6], from.key[7], (u32)block, (u32)(block >> 32),
                         (u32)from.nonce, (u32)(from.nonce >> 32)};
#pragma unroll
  for (int i = 0; i < 16; ++i) x[i] = start[i];
#pragma unroll
  for (int i = 0; i < 8; i += 2) {
    quarter_round(x[0], x[4], x[8], x[12]);
    quarter_round(x[1], x[5], x[9], x[13]);
    quarter_round(x[2], x[6], x[10], x[14]);
    quarter_round(x[3], x[7], x[11], x[15]);
    quarter_round(x[0], x[5], x[10], x[15]);
    quarter_round(x[1], x[6], x[11], x[12]);
    quarter_round(x[2], x[7], x[8], x[13]);
    quarter_round(x[3], x[4], x[9], x[14]);
  }
#pragma unroll
  for (int i = 0; i < 16; ++i) x[i] += start[i];
}
__device__ float signed_unit(u32 bits) { return (float)(int)bits * 0x1p-31F; }
__device__ float unit(u32 bits) { return (float)(bits >> 8) * 0x1p-24F; }

enum { kNormal, kUniform, kUniform01, kHeavyTailed, kPositive, kSigns };

template <int kDistribution>
__device__ float draw(u32 bits) {
  switch (kDistribution) {
    case kNormal: return signed_unit(bits) + signed_unit(bits * 0x2c1b3c6dU) + signed_unit(bits * 0x297a2d39U);
    case kUniform: return signed_unit(bits);
    case kUniform01: return unit(bits);
    case kHeavyTailed: return __fdiv_rn(signed_unit(bits), 0.03F + unit(bits * 0x2c1b3c6dU));
    case kSigns: return bits >> 31 ? 1.0F : -1.0F;
    default: return 0.01F + unit(bits);
  }
}

// Elements of the types of env/problem/precision.h, of 1 byte (bools) or of 8 (integers).
template <typename T>
__device__ void keep(float value, float, T* place) { narrow(value, place); }
__device__ void keep(float value, float, bool* place) { *place = value > 0; }
__device__ void keep(float value, float limit, long long* place) {
  *place = (long long)floorf(value) - (value == limit ? 1 : 0);
}

template <int kDistribution, typename T>
__device__ void fill_as(T* out, long long n, const Keystream& from, float scale, float offset) {
  const long long stride = (long long)gridDim.x * blockDim.x;
  for (long long block = (long long)blockIdx.x * blockDim.x + threadIdx.x; (block >> 5) * 512 < n; block += stride) {
    u32 words[16];
    make_block(from, block, words);
    const long long first = (block >> 5) * 512 + (block & 31);
#pragma unroll
    for (int w = 0; w < 16; ++w) {
      if (first + 32 * w < n) keep(fmaf(draw<kDistribution>(words[w]), scale, offset), scale + offset, out + first + 32 * w);
    }
  }
}

// Rows of so many elements, each shifted by -shift, 0 or shift: word number r of a keystream of its own decides on row r.
struct Rows { long long elements; float shift; };
__device__ float shift_of_row(Keystream from, long long row, float shift) {
  from.nonce |= 1ULL << 63;
  u32 words[16], bits = 0;
  make_block(from, (row >> 9) * 32 + (row & 31), words);
#pragma unroll
  for (int w = 0; w < 16; ++w) {
    if ((row >> 5 & 15) == w) bits = words[w];
  }
  return (float)((int)__umulhi(bits, 3) - 1) * shift;
}
template <typename T>
__device__ void fill_rows(T* out, long long n, const Keystream& from, float scale, float offset, Rows rows) {
  const long long stride = (long long)gridDim.x * blockDim.x;
  for (long long block = (long long)blockIdx.x * blockDim.x + threadIdx.x; (block >> 5) * 512 < n; block += stride) {
    u32 words[16];
    make_block(from, block, words);
    const long long first = (block >> 5) * 512 + (block & 31);
    const long long end = min(n, first + 512);
    for (long long row = first / rows.elements; row * rows.elements < end; ++row) {
      const float moved = offset + shift_of_row(from, row, rows.shift);
#pragma unroll
      for (int w = 0; w < 16; ++w) {
        const long long at = first + 32 * w;
        const bool is_in_row = at >= row * rows.elements && at < (row + 1) * rows.elements;
        if (is_in_row && at < n) keep(fmaf(draw<kNormal>(words[w]), scale, moved), scale + moved, out + at);
      }
    }
  }
}

template <typename T>
__device__ void fill(T* out, long long n, int distribution, const Keystream& from, float scale, float offset) {
  switch (distribution) {
    case kNormal: return fill_as<kNormal>(out, n, from, scale, offset);
    case kUniform: return fill_as<kUniform>(out, n, from, scale, offset);
    case kUniform01: return fill_as<kUniform01>(out, n, from, scale, offset);
    case kHeavyTailed: return fill_as<kHeavyTailed>(out, n, from, scale, offset);
    case kSigns: return fill_as<kSigns>(out, n, from, scale, offset);
    default: return fill_as<kPositive>(out, n, from, scale, offset);
  }
}
template <typename T>
__device__ void fill_floats(T* out, long long n, int distribution, const Keystream& from, float scale, float offset, Rows rows) {
  if (rows.shift != 0) return fill_rows(out, n, from, scale, offset, rows);
  fill(out, n, distribution, from, scale, offset);
}
extern "C" __global__ void kevin_fill(float* out, long long n, int distribution, Keystream from, float scale, float offset,
                                      Rows rows) {
  fill_floats(out, n, distribution, from, scale, offset, rows);
}
extern "C" __global__ void kevin_fill_f16(f16* out, long long n, int distribution, Keystream from, float scale, float offset,
                                          Rows rows) {
  fill_floats(out, n, distribution, from, scale, offset, rows);
}
extern "C" __global__ void kevin_fill_bf16(bf16* out, long long n, int distribution, Keystream from, float scale, float offset,
                                           Rows rows) {
  fill_floats(out, n, distribution, from, scale, offset, rows);
}
// Types of 1 byte are bools, of 8 integers.
extern "C" __global__ void kevin_fill_whole(void* out, long long n, int distribution, Keystream from, float scale, float offset,
                                            int bytes) {
  if (bytes == 1) fill((bool*)out, n, distribution, from, scale, offset);
  if (bytes == 8) fill((long long*)out, n, distribution, from, scale, offset);
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

// Not secret: the canary finds a device that computes incorrect results.
__device__ u32 mix(u32 x) {
  x = (x ^ x >> 16) * 0x7feb352dU;
  x = (x ^ x >> 15) * 0x846ca68bU;
  return x ^ x >> 16;
}
extern "C" __global__ void kevin_canary(u32* out, int n, u32 seed) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) out[i] = mix(i ^ seed);
}
extern "C" __global__ void kevin_canary_check(const u32* out, int n, u32 seed, u64* count) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) {
    if (out[i] != mix(i ^ seed)) atomicAdd(count, 1ULL);
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
  static const std::string kText =
      std::string(kDrawing) + kTrustedPoison + kTrustedChecks + kTrustedPython + kPeaks;
  return kText;
}

const std::vector<std::string>& TrustedKernelNames() {
  static const std::vector<std::string> kNames = [] {
    std::vector<std::string> names = {
        "kevin_fill_whole",   "kevin_impose",     "kevin_impose_16",     "kevin_canary",
        "kevin_canary_check", "kevin_poison",     "kevin_count_written", "kevin_scrub",
        "kevin_nothing",      "kevin_check_rows", "kevin_copy",          "kevin_read",
        "kevin_write",        "kevin_clock",      "kevin_fma",           "kevin_mma",
        "kevin_copy_parts",   "kevin_take",       "kevin_sample",        "kevin_count_different",
        "kevin_watch",        "kevin_rearrange"};
    for (const char* name : {"kevin_fill", "kevin_round", "kevin_surely_fine", "kevin_row_squares",
                             "kevin_check", "kevin_check_index"}) {
      for (const char* type : {"", "_f16", "_bf16"}) names.push_back(std::string(name) + type);
    }
    return names;
  }();
  return kNames;
}

}  // namespace kevin
