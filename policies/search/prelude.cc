#include "policies/search/prelude.h"

#include <string_view>
#include <vector>

#include "policies/search/family.h"

namespace kevin::search {
namespace {

constexpr const char* kTypes = R"(#pragma GCC diagnostic ignored "-Wpsabi"
#define INLINE static inline __attribute__((always_inline))
#define HAS_512 (LANES == 16 && defined(__AVX512F__) && !defined(__clang__))   // GCC's names of the instructions
#define HAS_256 (LANES == 8 && defined(__AVX__) && !defined(__clang__))
typedef float Vec __attribute__((vector_size(4 * LANES)));
typedef int IntVec __attribute__((vector_size(4 * LANES)));
typedef float VecAnywhere __attribute__((vector_size(4 * LANES), aligned(4), may_alias));

INLINE Vec Splat(float x) { return Vec{} + x; }
)";

constexpr const char* kFloatAccess =
    R"(INLINE Vec LoadVec(const float* from) { return *(const VecAnywhere*)from; }
INLINE void StoreVec(float* to, Vec v) { *(VecAnywhere*)to = v; }
)";

constexpr const char* kBf16Access = R"(
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

constexpr const char* kFp16Access = R"(
#if defined(__F16C__)
#include <immintrin.h>
#endif
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

// What a step of Walk sees in 16 bits: a whole vector, or the first `count` lanes of the last one.
constexpr const char* kNarrowWalk = R"(
struct Whole {
  INLINE Vec Load(const {element}* from) { return LoadVec(from); }
  INLINE void Store({element}* to, Vec v) { StoreVec(to, v); }
};
struct Part {
  int count;
  Vec Load(const {element}* from) const {
    Vec v{};
    for (int i = 0; i < count; ++i) v[i] = from[i];
    return v;
  }
  void Store({element}* to, Vec v) const {
    for (int i = 0; i < count; ++i) to[i] = v[i];
  }
};
)";

// What a step of Walk sees: a whole vector, or the first `count` lanes of the last one.
constexpr const char* kWalk = R"(
struct Whole {
  INLINE Vec Load(const float* from) { return LoadVec(from); }
  INLINE void Store(float* to, Vec v) { StoreVec(to, v); }
  INLINE void Stream(float* to, Vec v) { StreamStore(to, v); }
  INLINE Vec Keep(Vec v, float) { return v; }
};
struct Part {
  int count;
#if HAS_512
  unsigned short Mask() const { return (unsigned short)((1u << count) - 1); }
  Vec Load(const float* from) const { return __builtin_ia32_loadups512_mask(from, Vec{}, Mask()); }
  void Store(float* to, Vec v) const { __builtin_ia32_storeups512_mask(to, v, Mask()); }
#else
  Vec Load(const float* from) const {
    Vec v{};
    for (int i = 0; i < count; ++i) v[i] = from[i];
    return v;
  }
  void Store(float* to, Vec v) const {
    for (int i = 0; i < count; ++i) to[i] = v[i];
  }
#endif
  void Stream(float* to, Vec v) const { Store(to, v); }
  Vec Keep(Vec v, float other) const {
    IntVec lane{};
    for (int i = 0; i < kLanes; ++i) lane[i] = i;
    return lane < count ? v : Splat(other);
  }
};
)";

constexpr const char* kSteps = R"(template <int kUnroll, class Step>
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

constexpr const char* kStream = R"(
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
INLINE void StreamFence() {
#if defined(__SSE__)
  __builtin_ia32_sfence();
#endif
}
)";

constexpr const char* kMax = R"(
// The larger; a NaN in x stays, one in y does not count.
INLINE Vec Max(Vec x, Vec y) {
#if HAS_512
  return __builtin_ia32_maxps512_mask(y, x, Vec{}, (unsigned short)-1, 4);
#elif HAS_256
  return __builtin_ia32_maxps256(y, x);
#else
  return y > x ? y : x;
#endif
}
)";
constexpr const char* kMin = R"(
INLINE Vec Min(Vec x, Vec y) {
#if HAS_512
  return __builtin_ia32_minps512_mask(y, x, Vec{}, (unsigned short)-1, 4);
#elif HAS_256
  return __builtin_ia32_minps256(y, x);
#else
  return y < x ? y : x;
#endif
}
)";
constexpr const char* kNanMax = R"(
INLINE Vec NanMax(Vec x, Vec y) { return y != y ? y : Max(x, y); }   // a NaN in either stays
)";
constexpr const char* kNanMin = R"(
INLINE Vec NanMin(Vec x, Vec y) { return y != y ? y : Min(x, y); }
)";
constexpr const char* kAbs = R"(
INLINE Vec Abs(Vec x) { return (Vec)((IntVec)x & 0x7fffffff); }
)";
constexpr const char* kSqrt = R"(
INLINE Vec Sqrt(Vec x) {
#if HAS_512
  return __builtin_ia32_sqrtps512_mask(x, Vec{}, (unsigned short)-1, 4);
#elif HAS_256
  return __builtin_ia32_sqrtps256(x);
#else
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_sqrtf(x[i]);
  return x;
#endif
}
)";

constexpr const char* kPower = R"(
// x = n ln 2 + r with |r| <= ln 2 / 2; exp(r) - 1 = r + r^2 ExpTail(r).
INLINE Vec Nearest(Vec x) { return (x + 12582912.0f) - 12582912.0f; }
INLINE Vec Remainder(Vec x, Vec n) { return (x - n * 0.693145752f) - n * 1.42860677e-6f; }
INLINE Vec ExpTail(Vec r) {
  Vec q = r * 1.38823933e-3f + 8.36718082e-3f;
  q = q * r + 4.16672230e-2f;
  q = q * r + 0.166665390f;
  return q * r + 0.499999970f;
}
// x 2^n for whole n. Without the instruction only where 2^n is a normal number.
INLINE Vec Scale(Vec x, Vec n) {
#if HAS_512
  return __builtin_ia32_scalefps512_mask(x, n, Vec{}, (unsigned short)-1, 4);
#else
  return x * (Vec)((__builtin_convertvector(n, IntVec) + 127) << 23);
#endif
}
)";
constexpr const char* kExp = R"(
INLINE Vec Exp(Vec x) {
  x = Min(Max(x, Splat(-104.0f)), Splat(89.0f));
  const Vec n = Nearest(x * 1.44269504f), r = Remainder(x, n);
  const Vec y = (ExpTail(r) * r + 1.0f) * r + 1.0f;
#if HAS_512
  return Scale(y, n);
#else
  const Vec half = Nearest(n * 0.5f);   // 2^n itself may be too small or too large
  return Scale(Scale(y, half), n - half);
#endif
}
)";
constexpr const char* kExpm1 = R"(
INLINE Vec Expm1(Vec x) {
  x = Min(Max(x, Splat(-20.0f)), Splat(89.0f));
  const Vec n = Nearest(x * 1.44269504f), r = Remainder(x, n);
  const Vec half = Scale(Splat(0.5f), n);
  return 2.0f * (half * (r * r * ExpTail(r) + r) + (half - 0.5f));
}
)";
constexpr const char* kTanh = R"(
// (exp(2|x|) - 1) / (exp(2|x|) + 1), from exp - 1 so that small x keep their digits.
INLINE Vec Tanh(Vec x) {
  const Vec z = Min(2.0f * Abs(x), Splat(20.0f));
  const Vec n = Nearest(z * 1.44269504f), r = Remainder(z, n);
  const Vec power = Scale(Splat(1.0f), n);
  const Vec e = power * (r * r * ExpTail(r) + r) + (power - 1.0f);
  return (Vec)((IntVec)(e / (e + 2.0f)) | ((IntVec)x & (int)0x80000000));
}
)";
constexpr const char* kAtanh = R"(
// 2 atanh(s) = 2s + s^3 ..., for |s| <= 1/3.
INLINE Vec TwiceAtanh(Vec s) {
  const Vec z = s * s;
  Vec q = z * 0.121484607f + 0.107144721f;
  q = q * z + 0.143083736f;
  q = q * z + 0.199994415f;
  q = q * z + 0.333333373f;
  return 2.0f * (s * z * q + s);
}
)";
constexpr const char* kLog1pUnit = R"(
INLINE Vec Log1pUnit(Vec t) { return TwiceAtanh(t / (t + 2.0f)); }   // log(1 + t), 0 <= t <= 1
)";
constexpr const char* kLog = R"(
INLINE Vec Log(Vec x) {
  const IntVec tiny = x < 1.17549435e-38f;
  const Vec y = tiny ? x * 8388608.0f : x;
  const IntVec exponent = ((IntVec)y - 0x3f3504f3) >> 23;
  const Vec m = (Vec)((IntVec)y - (exponent << 23));
  const Vec n = __builtin_convertvector(exponent, Vec) - (tiny ? Splat(23.0f) : Splat(0.0f));
  const Vec value = n * 0.693145752f + (TwiceAtanh((m - 1.0f) / (m + 1.0f)) + n * 1.42860677e-6f);
  const Vec outside = x == 0.0f ? Splat(-__builtin_inff()) : Splat(__builtin_nanf(""));
  const Vec upper = x == __builtin_inff() ? x : value;
  return x > 0.0f ? upper : outside;
}
)";
constexpr const char* kLog1p = R"(
INLINE Vec Log1p(Vec t) {
  const Vec u = 1.0f + t;
  const Vec value = Log(u) + (t - (u - 1.0f)) / u;   // the second term is what rounding 1 + t lost
  return (u == __builtin_inff()) | (u == 0.0f) ? Log(u) : value;
}
)";
constexpr const char* kErf = R"(
// x P(x^2) below 1, 1 - exp(-Q(x)) above.
INLINE Vec Erf(Vec x) {
  const Vec a = Abs(x), z = x * x;
  Vec p = z * 7.85385782e-5f - 8.01019254e-4f;
  p = p * z + 5.18832775e-3f;
  p = p * z - 2.68538110e-2f;
  p = p * z + 0.112835854f;
  p = p * z - 0.376126260f;
  p = p * z + 1.12837911f;
  const Vec b = Min(a, Splat(4.1f));
  Vec q = b * -1.91505095e-4f + 2.99954950e-3f;
  q = q * b - 2.20520310e-2f;
  q = q * b + 0.103566960f;
  q = q * b + 0.637599945f;
  q = q * b + 1.12742615f;
  q = q * b + 2.56436062e-4f;
  const Vec n = Nearest(q * -1.44269504f), r = Remainder(-q, n);
  const Vec far = 1.0f - Scale((ExpTail(r) * r + 1.0f) * r + 1.0f, n);
  const Vec signed_far = (Vec)((IntVec)far | ((IntVec)x & (int)0x80000000));
  return a > 1.0f ? signed_far : x * p;
}
)";

constexpr const char* kAcross = R"(
template <int kBy, int... kLane>
INLINE Vec Rotated(Vec v, std::integer_sequence<int, kLane...>) {
  return __builtin_shufflevector(v, v, (kLane + kBy) % kLanes...);
}
template <int kBy, class Combine>
INLINE float Fold(Vec v, Combine combine) {
  if constexpr (kBy == 0) return v[0];
  else return Fold<kBy / 2>(combine(v, Rotated<kBy>(v, std::make_integer_sequence<int, kLanes>{})), combine);
}
// Folds the lanes of all vectors into one number.
template <int kCount, class Combine>
INLINE float Across(const Vec* a, Combine combine) {
  Vec v = a[0];
#pragma GCC unroll 16
  for (int u = 1; u < kCount; ++u) v = combine(v, a[u]);
  return Fold<kLanes / 2>(v, combine);
}
)";

constexpr PreludePart kParts[] = {
    {"Max(", kMax},       {"Min(", kMin},     {"NanMax(", kNanMax},    {"NanMin(", kNanMin},
    {"Abs(", kAbs},       {"Sqrt(", kSqrt},   {"ExpTail(", kPower},    {"Exp(", kExp},
    {"Expm1(", kExpm1},   {"Tanh(", kTanh},   {"TwiceAtanh(", kAtanh}, {"Log1pUnit(", kLog1pUnit},
    {"Log(", kLog},       {"Log1p(", kLog1p}, {"Erf(", kErf},          {"Stream", kStream},
    {"Across<", kAcross}, {"Whole{", kWalk},  {"Walk<", kSteps}};

// Whether `trigger` occurs at the start of a word.
bool Mentions(std::string_view text, std::string_view trigger) {
  for (size_t at = text.find(trigger); at != std::string_view::npos; at = text.find(trigger, at + 1)) {
    const char before = at == 0 ? ' ' : text[at - 1];
    const bool in_word =
        (before >= 'a' && before <= 'z') || (before >= 'A' && before <= 'Z') || before == '_';
    if (!in_word) return true;
  }
  return false;
}

}  // namespace

std::string WithParts(std::string text, const std::vector<PreludePart>& parts) {
  for (size_t i = parts.size(); i-- > 0;) {
    if (Mentions(text, parts[i].trigger)) text = parts[i].text + text;
  }
  return text;
}

std::string WithPrelude(const std::string& body, const std::string& lanes, const std::string& element) {
  std::vector<PreludePart> parts{std::begin(kParts), std::end(kParts)};
  const std::string narrow_walk = Fill(kNarrowWalk, {{"element", element}});
  for (PreludePart& part : parts) {
    if (element != "float" && part.text == kWalk) part.text = narrow_walk.c_str();
  }
  const std::string text = WithParts(body, parts);
  const bool is_half = lanes == "half";
  const std::string lanes_text = std::string("#if defined(__AVX512F__)\n#define LANES ") +
                                 (is_half ? "8" : "16") + "\n#else\n#define LANES " + (is_half ? "4" : "8") +
                                 "\n#endif\nconstexpr int kLanes = LANES;\n";
  const bool needs_sequence = text.find("integer_sequence") != std::string::npos;
  return (needs_sequence ? "#include <utility>\n" : "") + lanes_text + kTypes +
         (element == "float"  ? kFloatAccess
          : element == "bf16" ? kBf16Access
                              : kFp16Access) +
         text;
}

}  // namespace kevin::search
