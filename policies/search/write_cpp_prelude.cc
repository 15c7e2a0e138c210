// The definitions that a text may use: vectors, loads of lanes, functions on elements, folds, buffers.

#include <string_view>

#include "policies/search/cpp_prelude.h"
#include "policies/search/cpp_text.h"

namespace kevin::search {
namespace {

constexpr const char* kCppTypes = R"(#pragma GCC diagnostic ignored "-Wpsabi"
#define INLINE static inline __attribute__((always_inline))
#define HAS_512 (LANES == 16 && defined(__AVX512F__) && !defined(__clang__))   // GCC's names of the instructions
#define HAS_256 (LANES == 8 && defined(__AVX__) && !defined(__clang__))
typedef float Vec __attribute__((vector_size(4 * LANES)));
typedef int IntVec __attribute__((vector_size(4 * LANES)));
typedef float VecAnywhere __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

INLINE Vec Splat(float x) { return Vec{} + x; }
INLINE IntVec SplatInt(int x) { return IntVec{} + x; }
INLINE IntVec Iota() {
  IntVec lane;
  for (int i = 0; i < kLanes; ++i) lane[i] = i;
  return lane;
}
INLINE Vec ToFloat(IntVec x) { return __builtin_convertvector(x, Vec); }
INLINE Vec Select(IntVec m, Vec yes, Vec no) { return m ? yes : no; }
INLINE IntVec Select(IntVec m, IntVec yes, IntVec no) { return m ? yes : no; }
)";

constexpr const char* kCppFloatAccess =
    R"(INLINE Vec LoadVec(const float* from) { return *(const VecAnywhere*)from; }
INLINE void StoreVec(float* to, Vec v) { *(VecAnywhere*)to = v; }
typedef unsigned char Bytes __attribute__((vector_size(LANES)));
typedef unsigned char BytesAnywhere __attribute__((vector_size(LANES), aligned(1), may_alias));
// Truth values: 0 and -1.
INLINE IntVec LoadVec(const bool* from) {
  return -__builtin_convertvector(*(const BytesAnywhere*)from, IntVec);
}
)";

constexpr const char* kCppBf16Access = R"(
typedef unsigned UnsignedVec __attribute__((vector_size(4 * LANES)));
typedef unsigned short Shorts __attribute__((vector_size(2 * LANES)));
typedef unsigned short ShortsAnywhere __attribute__((vector_size(2 * LANES), aligned(2), may_alias));
INLINE Vec LoadVec(const bf16* from) {
  return (Vec)(__builtin_convertvector(*(const ShortsAnywhere*)from, UnsignedVec) << 16);
}
INLINE void StoreVec(bf16* to, Vec v) {
  const UnsignedVec bits = (UnsignedVec)v, rounded = (bits + 0x7fff + ((bits >> 16) & 1)) >> 16;
  const UnsignedVec kept = v == v ? rounded : (bits >> 16) | 0x40;   // a NaN stays one
  *(ShortsAnywhere*)to = __builtin_convertvector(kept, Shorts);
}
)";

constexpr const char* kCppFp16Access = R"(
INLINE Vec LoadVec(const _Float16* from) {
#if defined(__F16C__) && LANES == 16
  return (Vec)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i*)from));
#elif defined(__F16C__) && LANES == 8
  return (Vec)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i*)from));
#elif defined(__F16C__) && LANES == 4
  return (Vec)_mm_cvtph_ps(_mm_loadl_epi64((const __m128i*)from));
#else
  Vec v{};
  for (int i = 0; i < kLanes; ++i) v[i] = from[i];
  return v;
#endif
}
INLINE void StoreVec(_Float16* to, Vec v) {
#if defined(__F16C__) && LANES == 16
  _mm256_storeu_si256((__m256i*)to, _mm512_cvtps_ph((__m512)v, 0));
#elif defined(__F16C__) && LANES == 8
  _mm_storeu_si128((__m128i*)to, _mm256_cvtps_ph((__m256)v, 0));
#elif defined(__F16C__) && LANES == 4
  _mm_storel_epi64((__m128i*)to, _mm_cvtps_ph((__m128)v, 0));
#else
  for (int i = 0; i < kLanes; ++i) to[i] = v[i];
#endif
}
)";

constexpr const char* kCppMasks = R"(
#if HAS_512
INLINE unsigned short ToMask(IntVec m) { return __builtin_ia32_ptestmd512(m, m, (unsigned short)-1); }
#endif
INLINE bool AnyLane(IntVec m) {
#if HAS_512
  return ToMask(m) != 0;
#else
  int any = 0;
  for (int i = 0; i < kLanes; ++i) any |= m[i];
  return any != 0;
#endif
}
// Lanes without the mask are 0 and are not read.
template <class T>
INLINE Vec LoadMasked(const T* from, IntVec m) {
  Vec v{};
  for (int i = 0; i < kLanes; ++i) {
    if (m[i]) v[i] = from[i];
  }
  return v;
}
INLINE IntVec LoadMasked(const bool* from, IntVec m) {
  IntVec v{};
  for (int i = 0; i < kLanes; ++i) {
    if (m[i]) v[i] = -int(from[i]);
  }
  return v;
}
#if HAS_512
INLINE Vec LoadMasked(const float* from, IntVec m) {
  return __builtin_ia32_loadups512_mask(from, Vec{}, ToMask(m));
}
#elif HAS_256 && defined(__AVX2__)
INLINE Vec LoadMasked(const float* from, IntVec m) { return __builtin_ia32_maskloadps256((const Vec*)from, m); }
#endif
template <class T, class V>
INLINE void StoreMasked(T* to, V v, IntVec m) {
  for (int i = 0; i < kLanes; ++i) {
    if (m[i]) to[i] = v[i];
  }
}
#if HAS_512
INLINE void StoreMasked(float* to, Vec v, IntVec m) { __builtin_ia32_storeups512_mask(to, v, ToMask(m)); }
#elif HAS_256 && defined(__AVX2__)
INLINE void StoreMasked(float* to, Vec v, IntVec m) { __builtin_ia32_maskstoreps256((Vec*)to, m, v); }
#endif
)";

constexpr const char* kCppGather = R"(
template <class T>
INLINE Vec Gathered(const T* from, IntVec index, IntVec m) {
  Vec v{};
  for (int i = 0; i < kLanes; ++i) {
    if (m[i]) v[i] = from[index[i]];
  }
  return v;
}
#if HAS_512
INLINE Vec Gathered(const float* from, IntVec index, IntVec m) {
  return __builtin_ia32_gathersiv16sf(Vec{}, from, index, ToMask(m), 4);
}
#endif
template <class T>
INLINE Vec Strided(const T* from, long stride, IntVec m) {
  if (stride > -(1 << 26) && stride < (1 << 26)) return Gathered(from, Iota() * int(stride), m);
  Vec v{};
  for (int i = 0; i < kLanes; ++i) {
    if (m[i]) v[i] = from[i * stride];
  }
  return v;
}
#if HAS_512
INLINE Vec EverySecond(const float* from) {   // reads nothing beyond the last
  const Vec a = LoadVec(from), b = __builtin_ia32_loadups512_mask(from + 16, Vec{}, 0x7fff);
  return __builtin_shufflevector(a, b, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
}
#endif
)";

constexpr const char* kCppStream = R"(
// A store that goes around the caches; `to` must be aligned to the vector.
INLINE void StreamStore(float* to, Vec v) {
#if defined(__clang__)
  __builtin_nontemporal_store(v, (Vec*)to);
#elif LANES == 16
  __builtin_ia32_movntps512(to, v);
#elif LANES == 8 && defined(__AVX__)
  __builtin_ia32_movntps256(to, v);
#elif LANES == 4 && defined(__SSE__)
  __builtin_ia32_movntps(to, v);
#else
  *(Vec*)to = v;
#endif
}
)";

constexpr const char* kCppFence = R"(
INLINE void StreamFence() {
#if defined(__SSE__)
  __builtin_ia32_sfence();
#endif
}
)";

// What a step of Walk sees: a whole vector, or the first `count` lanes of the last one.
constexpr const char* kCppWhole = R"(
struct Whole {
  INLINE int Count() { return kLanes; }
  INLINE IntVec Mask() { return SplatInt(-1); }
  INLINE Vec Keep(Vec v, float) { return v; }
  template <class T>
  INLINE auto Load(const T* from) { return LoadVec(from); }
  template <class T>
  INLINE auto LoadIf(const T* from, IntVec m) { return LoadMasked(from, m); }
  template <class T>
  INLINE Vec StridedLoad(const T* from, long stride) {
#if HAS_512
    if constexpr (sizeof(T) == 4) {
      if (__builtin_constant_p(stride) && stride == 2) return EverySecond(from);
    }
#endif
    return Strided(from, stride, Mask());
  }
  template <class T>
  INLINE Vec StridedLoadIf(const T* from, long stride, IntVec m) { return Strided(from, stride, m); }
  template <class T>
  INLINE Vec GatherLoad(const T* from, IntVec index) { return Gathered(from, index, Mask()); }
  template <class T>
  INLINE Vec GatherLoadIf(const T* from, IntVec index, IntVec m) { return Gathered(from, index, m); }
  template <class T>
  INLINE void Store(T* to, Vec v) { StoreVec(to, v); }
  template <class T>
  INLINE void Store(T* to, IntVec v) {
    for (int i = 0; i < kLanes; ++i) to[i] = v[i];
  }
  INLINE void Stream(float* to, Vec v) { StreamStore(to, v); }
  template <class T, class V>
  INLINE void StoreIf(T* to, V v, IntVec m) { StoreMasked(to, v, m); }
  template <class T, class V>
  INLINE void StridedStore(T* to, long stride, V v) {
    for (int i = 0; i < kLanes; ++i) to[i * stride] = v[i];
  }
};
struct Part {
  int count;
  int Count() const { return count; }
  IntVec Mask() const { return Iota() < count; }
  Vec Keep(Vec v, float other) const { return Mask() ? v : Splat(other); }
  template <class T>
  auto Load(const T* from) const { return LoadMasked(from, Mask()); }
  template <class T>
  auto LoadIf(const T* from, IntVec m) const { return LoadMasked(from, m & Mask()); }
  template <class T>
  Vec StridedLoad(const T* from, long stride) const { return Strided(from, stride, Mask()); }
  template <class T>
  Vec StridedLoadIf(const T* from, long stride, IntVec m) const { return Strided(from, stride, m & Mask()); }
  template <class T>
  Vec GatherLoad(const T* from, IntVec index) const { return Gathered(from, index, Mask()); }
  template <class T>
  Vec GatherLoadIf(const T* from, IntVec index, IntVec m) const { return Gathered(from, index, m & Mask()); }
  template <class T, class V>
  void Store(T* to, V v) const { StoreMasked(to, v, Mask()); }
  void Stream(float* to, Vec v) const { Store(to, v); }
  template <class T, class V>
  void StoreIf(T* to, V v, IntVec m) const { StoreMasked(to, v, m & Mask()); }
  template <class T, class V>
  void StridedStore(T* to, long stride, V v) const {
    for (int i = 0; i < count; ++i) to[i * stride] = v[i];
  }
};
)";

constexpr const char* kCppWalk = R"(
template <int kUnroll, class Step>
INLINE void Walk(long begin, long end, Step step) {
  long i = begin;
  for (; i + kUnroll * kLanes <= end; i += kUnroll * kLanes) {
#pragma GCC unroll 16
    for (int u = 0; u < kUnroll; ++u) step(Whole{}, i + u * kLanes, u);
  }
  for (; i + kLanes <= end; i += kLanes) step(Whole{}, i, 0);
  if (i < end) step(Part{int(end - i)}, i, 0);
}
)";

constexpr const char* kCppIntegers = R"(
INLINE long FloorDiv(long a, long b) { return a / b - (a % b < 0); }
INLINE long FloorMod(long a, long b) { return a % b + (a % b < 0 ? b : 0); }
INLINE IntVec FloorDiv(IntVec a, int b) { return a / b + (a % b < 0); }
INLINE IntVec FloorMod(IntVec a, int b) { return a % b + (a % b < 0 ? SplatInt(b) : SplatInt(0)); }
)";

constexpr const char* kCppScratch = R"(
// A buffer that stays between calls, and whose pages exist.
struct KeptBuffer {
  char* data = nullptr;
  long size = 0;
  ~KeptBuffer() { std::free(data); }
  char* AtLeast(long bytes) {
    if (bytes <= size) return data;
    std::free(data);
    size = (bytes + (1 << 21) - 1) >> 21 << 21;
    data = (char*)std::aligned_alloc(1 << 21, size);
#pragma omp parallel for schedule(static)
    for (long i = 0; i < size; i += 4096) data[i] = 0;
    return data;
  }
};
template <int kWhich>
static inline char* Scratch(long bytes) {
  static KeptBuffer buffer;
  return buffer.AtLeast(bytes);
}
)";

bool CppMentions(std::string_view text, std::string_view trigger) {
  for (size_t at = text.find(trigger); at != std::string_view::npos; at = text.find(trigger, at + 1)) {
    const char before = at == 0 ? ' ' : text[at - 1];
    const bool in_word =
        (before >= 'a' && before <= 'z') || (before >= 'A' && before <= 'Z') || before == '_';
    if (!in_word) return true;
  }
  return false;
}

void CppPrepend(std::string& text, const std::vector<CppPart>& parts) {
  for (size_t i = parts.size(); i-- > 0;) {
    if (CppMentions(text, parts[i].trigger)) text = parts[i].text + text;
  }
}

}  // namespace

std::string CppWithPrelude(const std::string& body, bool half_lanes) {
  std::string text = body;
  CppPrepend(text, CppLaneParts());
  CppPrepend(text, CppFunctionParts());
  const bool walks = CppMentions(text, "Walk<"),
             parts = walks || CppMentions(text, "Whole{") || CppMentions(text, "Part{");
  std::string head;
  if (parts) head += std::string(kCppStream) + kCppMasks + kCppGather + kCppWhole;
  if (walks) head += kCppWalk;
  if (CppMentions(text, "StreamFence")) head += kCppFence;
  if (CppMentions(text, "FloorDiv(") || CppMentions(text, "FloorMod(")) head += kCppIntegers;
  if (CppMentions(text, "bf16")) head = kCppBf16Access + head;
  if (CppMentions(text, "_Float16")) head = kCppFp16Access + head;
  std::string start = "#include <utility>\n";
  if (CppMentions(text, "_Float16")) start += "#if defined(__F16C__)\n#include <immintrin.h>\n#endif\n";
  if (CppMentions(text, "Worker")) head = CppTeamText() + head;
  std::string scratch;
  if (CppMentions(text, "Scratch<")) {
    start += "#include <cstdlib>\n";
    scratch = kCppScratch;
  }
  return start + "#if defined(__AVX512F__)\n#define LANES " + (half_lanes ? "8" : "16") +
         "\n#else\n#define LANES " + (half_lanes ? "4" : "8") + "\n#endif\nconstexpr int kLanes = LANES;\n" +
         kCppTypes + kCppFloatAccess + head + scratch + text;
}

}  // namespace kevin::search
