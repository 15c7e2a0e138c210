// The part of the trusted kernels that leaves nothing of use in the memory that a call may read before it
// writes: outputs with their guard bands, workspaces and shared memory.

namespace kevin {

extern const char* const kTrustedPoison;
const char* const kTrustedPoison = R"cuda(
// Poison (device_memory.h): word i of a region is a function of a secret seed and i alone, so that no word can be
// computed from another one. Philox 4x32 with 7 rounds.
struct PoisonWords { u32 at[4]; };
__device__ PoisonWords poison_bits(u64 counter, u64 seed) {
  u32 a = (u32)counter, b = (u32)(counter >> 32), c = 0, d = 0, key_a = (u32)seed, key_b = (u32)(seed >> 32);
#pragma unroll
  for (int round = 0; round < 7; ++round) {
    const u32 high_a = __umulhi(0xd2511f53U, a), low_a = 0xd2511f53U * a;
    const u32 high_c = __umulhi(0xcd9e8d57U, c), low_c = 0xcd9e8d57U * c;
    a = high_c ^ b ^ key_a;
    b = low_c;
    c = high_a ^ d ^ key_b;
    d = low_a;
    key_a += 0x9e3779b9U;
    key_b += 0xbb67ae85U;
  }
  return {{a, b, c, d}};
}

enum { kPoisonNan, kPoisonFloat, kPoisonHalf, kPoisonBrain, kPoisonWhole, kPoisonBits };

// Both halves of a word as 16-bit floats between 1/8 and 32; `mantissa` is 10 bits in fp16, 7 in bf16.
__device__ u32 ordinary_halves(u32 bits, int mantissa, u32 least_exponent) {
  u32 word = 0;
  for (int at = 0; at < 32; at += 16) {
    const u32 half = bits >> at & 0xffffU, exponent = least_exponent + (half >> mantissa & 7U);
    word |= ((half & (0x8000U | ((1U << mantissa) - 1))) | exponent << mantissa) << at;
  }
  return word;
}

__device__ u32 poison_word(u32 bits, long long index, int kind) {
  switch (kind) {
    case kPoisonFloat: return (bits & 0x807fffffU) | (124U + (bits >> 23 & 7U)) << 23;
    case kPoisonHalf: return ordinary_halves(bits, 10, 12);
    case kPoisonBrain: return ordinary_halves(bits, 7, 124);
    case kPoisonWhole: return index & 1 ? 0 : bits & 1023U;  // of 64 bits
    case kPoisonBits: return bits;
    default: {  // a NaN of 32 bits, and two of either 16-bit type
      u32 word = (bits & 0x807f807fU) | 0x7f807f80U;
      if (!(word & 0x007f0000U)) word |= 0x00400000U;
      if (!(word & 0x0000007fU)) word |= 0x00000040U;
      return word;
    }
  }
}

// The words of a region from `first` on, a multiple of 4.
extern "C" __global__ void kevin_poison(u32* words, long long first, long long n, u64 seed, int kind) {
  const long long stride = (long long)gridDim.x * blockDim.x;
  for (long long i = (long long)blockIdx.x * blockDim.x + threadIdx.x; i * 4 < n; i += stride) {
    PoisonWords drawn = poison_bits((u64)(first / 4 + i), seed);
#pragma unroll
    for (int j = 0; j < 4; ++j) drawn.at[j] = poison_word(drawn.at[j], i * 4 + j, kind);
    if (i * 4 + 3 < n) {
      reinterpret_cast<uint4*>(words)[i] = make_uint4(drawn.at[0], drawn.at[1], drawn.at[2], drawn.at[3]);
    } else {
      for (int j = 0; i * 4 + j < n; ++j) words[i * 4 + j] = drawn.at[j];
    }
  }
}

// How many words of the region `words`, n of them from `first` on, are not as kevin_poison left them.
extern "C" __global__ void kevin_count_written(const u32* words, long long first, long long n, u64 seed, int kind,
                                               u64* count) {
  const long long stride = (long long)gridDim.x * blockDim.x;
  for (long long i = first + (long long)blockIdx.x * blockDim.x + threadIdx.x; i < first + n; i += stride) {
    const u32 bits = poison_bits((u64)(i / 4), seed).at[i % 4];
    if (words[i] != poison_word(bits, i, kind)) atomicAdd(count, 1ULL);
  }
}

// A block a time on each multiprocessor, with all of its shared memory.
extern "C" __global__ void kevin_scrub(int words, u64 seed) {
  extern __shared__ u32 everything[];
  const int kind = (seed >> 32 & 1) ? kPoisonFloat : kPoisonNan;
  for (int i = threadIdx.x; i * 4 < words; i += blockDim.x) {
    const PoisonWords drawn = poison_bits((u64)blockIdx.x << 32 | (u64)i, seed);
    for (int j = 0; j < 4 && i * 4 + j < words; ++j) everything[i * 4 + j] = poison_word(drawn.at[j], j, kind);
  }
  __syncthreads();
  if (everything[(threadIdx.x * 7) % words] == (u32)seed) __nanosleep(1);  // keeps the stores
}

// What an empty call launches.
extern "C" __global__ void kevin_nothing() {}
)cuda";

}  // namespace kevin
