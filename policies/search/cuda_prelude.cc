// Functions that CUDA texts use; a text gets those that occur in it.

#include <fmt/format.h>

#include <algorithm>
#include <sstream>
#include <string_view>

#include "policies/search/cuda_text.h"

namespace kevin::search {
namespace {

constexpr const char* kCudaNumbers = R"(
INLINE float Infinity() { return __int_as_float(0x7f800000); }
INLINE float NotANumber() { return __int_as_float(0x7fffffff); }
)";
constexpr const char* kCudaNan = R"(
// A NaN in either wins.
INLINE float MaxOrNan(float x, float y) {
  float z;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
}
INLINE float MinOrNan(float x, float y) {
  float z;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
}
INLINE float NanMax(float x, float y) { return MaxOrNan(x, y); }
INLINE float NanMin(float x, float y) { return MinOrNan(x, y); }
INLINE long NanMax(long x, long y) { return x > y ? x : y; }
INLINE long NanMin(long x, long y) { return x < y ? x : y; }
)";
constexpr const char* kCudaSigmoid = R"(
INLINE float Sigmoid(float x) { return __fdividef(1.0f, 1.0f + expf(-x)); }
)";
constexpr const char* kCudaSign = R"(
INLINE float Sign(float x) { return float((x > 0.0f) - (x < 0.0f)); }
)";
constexpr const char* kCudaLogAddExp = R"(
INLINE float LogAddExp(float x, float y) {
  const float high = x > y || x != x ? x : y, low = x > y || x != x ? y : x;
  return high == -Infinity() || high == Infinity() ? high : high + log1pf(expf(low - high));
}
)";
constexpr const char* kCudaFloor = R"(
// Rounded down; the remainder, never negative. b > 0.
template <class T, class U> INLINE T FloorDiv(T a, U b) { return a >= 0 ? a / T(b) : -((T(b) - 1 - a) / T(b)); }
template <class T, class U> INLINE T FloorMod(T a, U b) { return a - FloorDiv(a, b) * T(b); }
)";
constexpr const char* kCudaHalf = R"(
INLINE float Widen(__half x) { return __half2float(x); }
template <> struct Made<__half> { static INLINE __half From(float x) { return __float2half(x); } };
)";
constexpr const char* kCudaBrain = R"(
INLINE float Widen(__nv_bfloat16 x) { return __bfloat162float(x); }
template <> struct Made<__nv_bfloat16> { static INLINE __nv_bfloat16 From(float x) { return __float2bfloat16(x); } };
)";
constexpr const char* kCudaElements = R"(
// An element of memory as a value, and the reverse.
INLINE float Widen(float x) { return x; }
INLINE long Widen(long x) { return x; }
INLINE long Widen(int x) { return x; }
INLINE bool Widen(bool x) { return x; }
template <class T> struct Made { template <class V> static INLINE T From(V x) { return T(x); } };
template <class T, class V> INLINE T Narrow(V x) { return Made<T>::From(x); }
)";
constexpr const char* kCudaPack = R"(
template <int kBytes> struct Bits;
template <> struct Bits<1> { typedef unsigned char Type; };
template <> struct Bits<2> { typedef unsigned short Type; };
template <> struct Bits<4> { typedef unsigned Type; };
template <> struct Bits<8> { typedef uint2 Type; };
template <> struct Bits<16> { typedef uint4 Type; };
// Neighbouring values. In memory they are aligned to all of them, up to 16 bytes.
template <int kWidth, class V = float> struct Pack { V at[kWidth]; };
template <int kWidth, class T> struct Raw {
  static constexpr int kBytes = int(sizeof(T)) * kWidth, kPart = kBytes < 16 ? kBytes : 16, kParts = kBytes / kPart;
  typedef typename Bits<kPart>::Type Part;
  Part part[kParts];
};
template <int kWidth, class T> INLINE auto Widened(const Raw<kWidth, T>& raw) {
  Pack<kWidth, decltype(Widen(T()))> pack;
#pragma unroll
  for (int w = 0; w < kWidth; ++w) pack.at[w] = Widen(((const T*)raw.part)[w]);
  return pack;
}
template <int kWidth, class T> INLINE auto Load(const T* from) {
  Raw<kWidth, T> raw;
#pragma unroll
  for (int p = 0; p < raw.kParts; ++p) raw.part[p] = ((const typename Raw<kWidth, T>::Part*)from)[p];
  return Widened<kWidth, T>(raw);
}
template <int kWidth, class T> INLINE auto LoadOnce(const T* from) {   // not needed again: leaves the caches first
  Raw<kWidth, T> raw;
#pragma unroll
  for (int p = 0; p < raw.kParts; ++p) raw.part[p] = __ldcs((const typename Raw<kWidth, T>::Part*)from + p);
  return Widened<kWidth, T>(raw);
}
template <int kWidth, class T, class V> INLINE Raw<kWidth, T> Narrowed(const Pack<kWidth, V>& pack) {
  Raw<kWidth, T> raw;
#pragma unroll
  for (int w = 0; w < kWidth; ++w) ((T*)raw.part)[w] = Narrow<T>(pack.at[w]);
  return raw;
}
template <int kWidth, class T, class V> INLINE void Store(T* to, const Pack<kWidth, V>& pack) {
  const Raw<kWidth, T> raw = Narrowed<kWidth, T>(pack);
#pragma unroll
  for (int p = 0; p < raw.kParts; ++p) ((typename Raw<kWidth, T>::Part*)to)[p] = raw.part[p];
}
template <int kWidth, class T, class V> INLINE void StoreOnce(T* to, const Pack<kWidth, V>& pack) {
  const Raw<kWidth, T> raw = Narrowed<kWidth, T>(pack);
#pragma unroll
  for (int p = 0; p < raw.kParts; ++p) __stcs((typename Raw<kWidth, T>::Part*)to + p, raw.part[p]);
}
)";
constexpr const char* kCudaExtreme = R"(
// The extreme value so far and its place: a NaN before all, of equal ones the first.
template <class Place> struct ExtremeOf {
  float value;
  Place place;
};
using Extreme = ExtremeOf<int>;
template <class Place> INLINE ExtremeOf<Place> Higher(ExtremeOf<Place> a, ExtremeOf<Place> b) {
  const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
  const bool same = (a_nan && b_nan) || a.value == b.value;
  return same ? (b.place < a.place ? b : a) : b_nan || (!a_nan && b.value > a.value) ? b : a;
}
template <class Place> INLINE ExtremeOf<Place> Lower(ExtremeOf<Place> a, ExtremeOf<Place> b) {
  const bool a_nan = a.value != a.value, b_nan = b.value != b.value;
  const bool same = (a_nan && b_nan) || a.value == b.value;
  return same ? (b.place < a.place ? b : a) : b_nan || (!a_nan && b.value < a.value) ? b : a;
}
template <class Place> INLINE ExtremeOf<Place> FromLane(ExtremeOf<Place> e, int step) {
  return {__shfl_xor_sync(0xffffffffu, e.value, step), __shfl_xor_sync(0xffffffffu, e.place, step)};
}
)";
constexpr const char* kCudaAcrossWarp = R"(
template <class T> INLINE T FromLane(T v, int step) { return __shfl_xor_sync(0xffffffffu, v, step); }
// Folds one value per lane among kLanes neighbours; every lane gets the result.
template <int kLanes = 32, class T, class Combine> INLINE T AcrossWarp(T v, Combine combine) {
#pragma unroll
  for (int step = kLanes / 2; step > 0; step /= 2) v = combine(v, FromLane(v, step));
  return v;
}
)";
constexpr const char* kCudaAcrossBlock = R"(
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
constexpr const char* kCudaAcrossGroup = R"(
// Folds one value per thread among kGroup neighbours: part of a warp, or the block.
template <int kGroup, int kThreads, class T, class Combine> INLINE T AcrossGroup(T v, Combine combine) {
  if constexpr (kGroup <= 32) {
    return AcrossWarp<kGroup>(v, combine);
  } else {
    return AcrossBlock<kThreads>(v, combine);
  }
}
)";
constexpr const char* kCudaAcrossDown = R"(
// Folds among the threads with equal threadIdx.x % kAcross; each gets the results.
template <int kAcross, int kThreads, int kCount, class T, class Combine>
INLINE void AcrossDown(T (&v)[kCount], Combine combine) {
  if constexpr (kThreads > kAcross) {
    __shared__ T all[kCount * kThreads];
    __syncthreads();   // the last use is over
#pragma unroll
    for (int t = 0; t < kCount; ++t) all[t * kThreads + threadIdx.x] = v[t];
    __syncthreads();
#pragma unroll
    for (int t = 0; t < kCount; ++t) {
      v[t] = all[t * kThreads + threadIdx.x % kAcross];
#pragma unroll
      for (int d = 1; d < kThreads / kAcross; ++d) {
        v[t] = combine(v[t], all[t * kThreads + d * kAcross + threadIdx.x % kAcross]);
      }
    }
  }
}
)";
constexpr const char* kCudaAcrossCluster = R"(
INLINE void ClusterBarrier() {
  __cluster_barrier_arrive();
  __cluster_barrier_wait();
}
// Folds one value per block of the cluster. `slot` lies at the same place of each block's shared memory and is used once.
template <int kBlocks, class T, class Combine> INLINE T AcrossCluster(T v, T* slot, Combine combine) {
  if (threadIdx.x == 0) *slot = v;
  ClusterBarrier();
  v = *(const T*)__cluster_map_shared_rank(slot, 0);
#pragma unroll
  for (int b = 1; b < kBlocks; ++b) v = combine(v, *(const T*)__cluster_map_shared_rank(slot, b));
  return v;
}
)";
constexpr const char* kCudaCopyAsync = R"(
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

struct CudaPart {
  std::vector<const char*> tokens;  // any of them asks for the part
  const char* text;
};

// In an order in which each may use those before it.
const std::vector<CudaPart>& CudaParts() {
  static const std::vector<CudaPart> kParts = {
      {{"Infinity()", "NotANumber()"}, kCudaNumbers},
      {{"NanMax(", "NanMin("}, kCudaNan},
      {{"Sigmoid("}, kCudaSigmoid},
      {{"Sign("}, kCudaSign},
      {{"LogAddExp("}, kCudaLogAddExp},
      {{"FloorDiv(", "FloorMod("}, kCudaFloor},
      {{"Widen(", "Narrow<", "Pack<"}, kCudaElements},
      {{"__half"}, kCudaHalf},
      {{"__nv_bfloat16"}, kCudaBrain},
      {{"Pack<", "Load<", "Store<"}, kCudaPack},
      {{"Extreme"}, kCudaExtreme},
      {{"AcrossWarp", "AcrossBlock", "AcrossGroup", "FromLane"}, kCudaAcrossWarp},
      {{"AcrossBlock", "AcrossGroup"}, kCudaAcrossBlock},
      {{"AcrossGroup"}, kCudaAcrossGroup},
      {{"AcrossDown"}, kCudaAcrossDown},
      {{"AcrossCluster", "ClusterBarrier"}, kCudaAcrossCluster},
      {{"CopyAsync"}, kCudaCopyAsync}};
  return kParts;
}

bool AsksFor(const std::string& text, const CudaPart& part) {
  return std::any_of(part.tokens.begin(), part.tokens.end(),
                     [&](const char* token) { return text.find(token) != std::string::npos; });
}

// Indents by depth of braces and brackets, so that writers need not count spaces.
std::string CudaIndented(const std::string& text) {
  std::string all;
  all.reserve(text.size() * 5 / 4);
  int depth = 0;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    std::string_view line(text.data() + at, end - at);
    at = end + 1;
    const size_t start = line.find_first_not_of(' ');
    line = start == std::string_view::npos ? "" : line.substr(start);
    int change = 0;
    for (const char c : line.substr(0, line.find("//")))
      change += (c == '{' || c == '(') - (c == '}' || c == ')');
    const int here = !line.empty() && line[0] == '}' ? depth - 1 : depth;
    const bool is_flush = line.empty() || line[0] == '#';
    if (!is_flush) all.append(static_cast<size_t>(2 * std::max(here, 0)), ' ');
    all.append(line).append("\n");
    depth += change;
  }
  return all;
}

}  // namespace

std::string WithCudaPrelude(const std::string& text) {
  const std::vector<CudaPart>& parts = CudaParts();
  std::string prelude;
  std::vector<char> chosen(parts.size());
  for (size_t i = parts.size(); i-- > 0;) {
    chosen[i] = AsksFor(text, parts[i]) || AsksFor(prelude, parts[i]);
    if (chosen[i]) prelude = parts[i].text + prelude;
  }
  std::string head;
  if (text.find("__half") != std::string::npos) head += "#include <cuda_fp16.h>\n";
  if (text.find("__nv_bfloat16") != std::string::npos) head += "#include <cuda_bf16.h>\n";
  return CudaIndented(head + "#define INLINE __device__ __forceinline__\n" + prelude + "\n" + text);
}

}  // namespace kevin::search
