#include <algorithm>
#include <sstream>

#include "policies/search/prelude.h"

namespace kevin::search {
namespace {

constexpr const char* kInfinity = R"(
INLINE float Infinity() { return __int_as_float(0x7f800000); }
)";
constexpr const char* kCudaMax = R"(
// The larger; a NaN in x stays, one in y does not count.
INLINE float Max(float x, float y) { return y > x ? y : x; }
)";
constexpr const char* kCudaMin = R"(
INLINE float Min(float x, float y) { return y < x ? y : x; }
)";
constexpr const char* kCudaNanMax = R"(
INLINE float NanMax(float x, float y) { return x > y || x != x ? x : y; }   // a NaN in either stays
)";
constexpr const char* kCudaNanMin = R"(
INLINE float NanMin(float x, float y) { return x < y || x != x ? x : y; }
)";
constexpr const char* kFastTanh = R"(
INLINE float FastTanh(float x) { return 1.0f - __fdividef(2.0f, __expf(2.0f * x) + 1.0f); }
)";

constexpr const char* kPack = R"(
template <int kWidth> struct Wide;
template <> struct Wide<1> { typedef float Type; };
template <> struct Wide<2> { typedef float2 Type; };
template <> struct Wide<4> { typedef float4 Type; };
// Neighbouring numbers that move together; `from` and `to` are aligned to all of them.
template <int kWidth> union Pack {
  typename Wide<kWidth>::Type all;
  float at[kWidth];
};
template <int kWidth> INLINE Pack<kWidth> Load(const float* from) {
  Pack<kWidth> pack;
  pack.all = __ldg((const typename Wide<kWidth>::Type*)from);
  return pack;
}
template <int kWidth> INLINE Pack<kWidth> LoadOnce(const float* from) {   // not needed again: leaves the caches first
  Pack<kWidth> pack;
  pack.all = __ldcs((const typename Wide<kWidth>::Type*)from);
  return pack;
}
template <int kWidth> INLINE void Store(float* to, const Pack<kWidth>& pack) {
  *(typename Wide<kWidth>::Type*)to = pack.all;
}
template <int kWidth> INLINE void StoreOnce(float* to, const Pack<kWidth>& pack) {
  __stcs((typename Wide<kWidth>::Type*)to, pack.all);
}
)";

constexpr const char* kNarrowPack = R"(
#include <{header}>
typedef {element} Element;
template <int kBytes> struct Bits;
template <> struct Bits<2> { typedef unsigned short Type; };
template <> struct Bits<4> { typedef unsigned Type; };
template <> struct Bits<8> { typedef uint2 Type; };
template <> struct Bits<16> { typedef uint4 Type; };
template <int kWidth> using BitsOf = typename Bits<2 * kWidth>::Type;
// Neighbouring numbers that move together, 16 bits each in memory; `from` and `to` are aligned to all of them.
template <int kWidth> struct Pack { float at[kWidth]; };
template <int kWidth> INLINE Pack<kWidth> Widened(const BitsOf<kWidth>& bits) {
  Pack<kWidth> pack;
#pragma unroll
  for (int w = 0; w < kWidth; ++w) pack.at[w] = {widen}(((const Element*)&bits)[w]);
  return pack;
}
template <int kWidth> INLINE BitsOf<kWidth> Rounded(const Pack<kWidth>& pack) {
  BitsOf<kWidth> bits;
#pragma unroll
  for (int w = 0; w < kWidth; ++w) ((Element*)&bits)[w] = {round}(pack.at[w]);
  return bits;
}
template <int kWidth> INLINE Pack<kWidth> Load(const Element* from) {
  return Widened<kWidth>(__ldg((const BitsOf<kWidth>*)from));
}
template <int kWidth> INLINE Pack<kWidth> LoadOnce(const Element* from) {   // not needed again: leaves the caches first
  return Widened<kWidth>(__ldcs((const BitsOf<kWidth>*)from));
}
template <int kWidth> INLINE void Store(Element* to, const Pack<kWidth>& pack) {
  *(BitsOf<kWidth>*)to = Rounded<kWidth>(pack);
}
template <int kWidth> INLINE void StoreOnce(Element* to, const Pack<kWidth>& pack) {
  __stcs((BitsOf<kWidth>*)to, Rounded<kWidth>(pack));
}
)";

constexpr const char* kExtreme = R"(
// The extreme so far and its index; the first of equal ones, and of NaNs if there are any.
struct Extreme {
  float value;
  int index;
  // Terms come in order.
  INLINE void Take(float v, int i) {
    if (v {better} value || (v != v && value == value)) {
      value = v;
      index = i;
    }
  }
  // Of two keys the larger belongs to the better value, of equal values to the smaller index.
  INLINE long Key() const {
    const unsigned bits = __float_as_uint(value), order = bits >> 31 ? ~bits : bits | 0x80000000u;
    const unsigned rank = value != value ? 0xffffffffu : value == 0.0f ? 0x80000000u : {rank};
    return (long)((unsigned long)(rank ^ 0x80000000u) << 32 | (0xffffffffu - (unsigned)index));
  }
};
INLINE long Larger(long a, long b) { return a > b ? a : b; }
INLINE long IndexOf(long key) { return 0xffffffffu - (unsigned)key; }
)";

constexpr const char* kAcrossWarp = R"(
// Folds one value per lane; every lane gets the result. `kLanes` lanes at a time.
template <int kLanes = 32, class T, class Combine> INLINE T AcrossWarp(T v, Combine combine) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) v = combine(v, __shfl_xor_sync(0xffffffffu, v, step));
  return v;
}
)";
constexpr const char* kAcrossBlock = R"(
// Folds one value per thread; every thread gets the result.
template <int kThreads, class T, class Combine> INLINE T AcrossBlock(T v, Combine combine) {
  v = AcrossWarp(v, combine);
  if constexpr (kThreads > 32) {
    __shared__ T warps[kThreads / 32];
    __syncthreads();   // the last use is over
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = v;
    __syncthreads();
    v = AcrossWarp<kThreads / 32>(warps[threadIdx.x % (kThreads / 32)], combine);
  }
  return v;
}
)";
constexpr const char* kAcrossCluster = R"(
INLINE void ClusterBarrier() {
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
}
// Folds one value per block of the cluster. `slot` lies at the same place of each block's shared memory and is
// used once.
template <int kBlocks, class Combine> INLINE float AcrossCluster(float v, float* slot, Combine combine) {
  if (threadIdx.x == 0) *slot = v;
  ClusterBarrier();
  v = *(const float*)__cluster_map_shared_rank(slot, 0);
#pragma unroll
  for (int b = 1; b < kBlocks; ++b) v = combine(v, *(const float*)__cluster_map_shared_rank(slot, b));
  return v;
}
)";
constexpr const char* kCopyAsync = R"(
// Copies kBytes from global to shared memory, or zeros; done once WaitForCopies says so.
template <int kBytes> INLINE void CopyAsync(void* to, const void* from, bool is_there) {
  const unsigned at = (unsigned)__cvta_generic_to_shared(to);
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from), "r"(is_there ? 16 : 0));
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"(at), "l"(from), "r"(is_there ? 4 : 0));
  }
}
INLINE void CommitCopies() { asm volatile("cp.async.commit_group;"); }
// All groups but the newest `kNewer` are done.
template <int kNewer> INLINE void WaitForCopies() { asm volatile("cp.async.wait_group %0;" ::"n"(kNewer) : "memory"); }
)";

// Indents by depth of braces and brackets, so that writers need not count spaces.
std::string Indented(const std::string& text) {
  std::istringstream lines(text);
  std::string all;
  int depth = 0;
  for (std::string line; std::getline(lines, line);) {
    const size_t start = line.find_first_not_of(' ');
    line = start == std::string::npos ? "" : line.substr(start);
    int change = 0;
    const size_t comment = line.find("//");
    for (const char c : line.substr(0, comment)) change += (c == '{' || c == '(') - (c == '}' || c == ')');
    const int here = line[0] == '}' ? depth - 1 : depth;
    const bool is_flush = line.empty() || line[0] == '#';
    all += (is_flush ? "" : std::string(static_cast<size_t>(2 * std::max(here, 0)), ' ')) + line + "\n";
    depth += change;
  }
  return all;
}

}  // namespace

std::string WithCudaPrelude(const std::string& body, const std::string& element) {
  const std::string compilers = "__builtin_inff()";  // what FloatText and FormOf write; NVRTC lacks it
  std::string text = body;
  for (size_t at = text.find(compilers); at != std::string::npos; at = text.find(compilers, at)) {
    text.replace(at, compilers.size(), "Infinity()");
  }
  const bool is_brain = element == "__nv_bfloat16";
  const std::string narrow = Fill(kNarrowPack, {{"element", element},
                                                {"header", is_brain ? "cuda_bf16.h" : "cuda_fp16.h"},
                                                {"widen", is_brain ? "__bfloat162float" : "__half2float"},
                                                {"round", is_brain ? "__float2bfloat16" : "__float2half"}});
  const std::vector<PreludePart> parts = {{"Infinity()", kInfinity},
                                          {"Max(", kCudaMax},
                                          {"Min(", kCudaMin},
                                          {"NanMax(", kCudaNanMax},
                                          {"NanMin(", kCudaNanMin},
                                          {"FastTanh(", kFastTanh},
                                          {"Pack<", element == "float" ? kPack : narrow.c_str()},
                                          {"AcrossWarp", kAcrossWarp},
                                          {"AcrossBlock", kAcrossBlock},
                                          {"AcrossCluster", kAcrossCluster},
                                          {"CopyAsync", kCopyAsync}};
  return Indented("#define INLINE __device__ __forceinline__\n" + WithParts(text, parts));
}

std::string ExtremePrelude(bool is_max) {
  return Fill(kExtreme, {{"better", is_max ? ">" : "<"}, {"rank", is_max ? "order" : "~order"}});
}

int PackWidth(int64_t count) { return count % 4 == 0 ? 4 : count % 2 == 0 ? 2 : 1; }

Knob MathKnob(const TermPtr& term) {
  const bool has_fast = Contains(term, [](const Term& t) {
    for (const char* op : {"div", "exp", "expm1", "tanh", "log1p_unit"}) {
      if (t.op == op) return true;
    }
    return false;
  });
  return {"math",
          has_fast ? std::vector<std::string>{"precise", "fast"} : std::vector<std::string>{"precise"}};
}

}  // namespace kevin::search
