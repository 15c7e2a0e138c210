// The functions on elements that a text may use, for float and Vec.

#include "policies/search/cpp_prelude.h"

namespace kevin::search {
namespace {

constexpr const char* kCppMax = R"(
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
INLINE float Max(float x, float y) { return y > x ? y : x; }
)";

constexpr const char* kCppMin = R"(
INLINE Vec Min(Vec x, Vec y) {
#if HAS_512
  return __builtin_ia32_minps512_mask(y, x, Vec{}, (unsigned short)-1, 4);
#elif HAS_256
  return __builtin_ia32_minps256(y, x);
#else
  return y < x ? y : x;
#endif
}
INLINE float Min(float x, float y) { return y < x ? y : x; }
)";

constexpr const char* kCppNanMax = R"(
INLINE Vec NanMax(Vec x, Vec y) { return y != y ? y : Max(x, y); }   // a NaN in either stays
INLINE float NanMax(float x, float y) { return y != y ? y : Max(x, y); }
)";

constexpr const char* kCppNanMin = R"(
INLINE Vec NanMin(Vec x, Vec y) { return y != y ? y : Min(x, y); }
INLINE float NanMin(float x, float y) { return y != y ? y : Min(x, y); }
)";

constexpr const char* kCppAbs = R"(
INLINE Vec Abs(Vec x) { return (Vec)((IntVec)x & 0x7fffffff); }
INLINE float Abs(float x) { return __builtin_fabsf(x); }
)";

constexpr const char* kCppSqrt = R"(
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
INLINE float Sqrt(float x) { return __builtin_sqrtf(x); }
)";

constexpr const char* kCppPower = R"(
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

constexpr const char* kCppExp = R"(
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
INLINE float Exp(float x) { return Exp(Splat(x))[0]; }
)";

constexpr const char* kCppExp2 = R"(
INLINE Vec Exp2(Vec x) { return Exp(x * 0.693147181f); }
INLINE float Exp2(float x) { return Exp2(Splat(x))[0]; }
)";

constexpr const char* kCppExpm1 = R"(
INLINE Vec Expm1(Vec x) {
  x = Min(Max(x, Splat(-20.0f)), Splat(89.0f));
  const Vec n = Nearest(x * 1.44269504f), r = Remainder(x, n);
  const Vec half = Scale(Splat(0.5f), n);
  return 2.0f * (half * (r * r * ExpTail(r) + r) + (half - 0.5f));
}
INLINE float Expm1(float x) { return Expm1(Splat(x))[0]; }
)";

constexpr const char* kCppTanh = R"(
// (exp(2|x|) - 1) / (exp(2|x|) + 1), from exp - 1 so that small x keep their digits.
INLINE Vec Tanh(Vec x) {
  const Vec z = Min(2.0f * Abs(x), Splat(20.0f));
  const Vec n = Nearest(z * 1.44269504f), r = Remainder(z, n);
  const Vec power = Scale(Splat(1.0f), n);
  const Vec e = power * (r * r * ExpTail(r) + r) + (power - 1.0f);
  return (Vec)((IntVec)(e / (e + 2.0f)) | ((IntVec)x & (int)0x80000000));
}
INLINE float Tanh(float x) { return Tanh(Splat(x))[0]; }
)";

constexpr const char* kCppSigmoid = R"(
INLINE Vec Sigmoid(Vec x) { return 1.0f / (1.0f + Exp(-x)); }
INLINE float Sigmoid(float x) { return Sigmoid(Splat(x))[0]; }
)";

constexpr const char* kCppAtanh = R"(
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

constexpr const char* kCppLog = R"(
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
INLINE float Log(float x) { return Log(Splat(x))[0]; }
)";

constexpr const char* kCppLog2 = R"(
INLINE Vec Log2(Vec x) { return Log(x) * 1.44269504f; }
INLINE float Log2(float x) { return Log2(Splat(x))[0]; }
)";

constexpr const char* kCppLog10 = R"(
INLINE Vec Log10(Vec x) { return Log(x) * 0.434294482f; }
INLINE float Log10(float x) { return Log10(Splat(x))[0]; }
)";

constexpr const char* kCppLog1p = R"(
INLINE Vec Log1p(Vec t) {
  const Vec u = 1.0f + t;
  const Vec value = Log(u) + (t - (u - 1.0f)) / u;   // the second term is what rounding 1 + t lost
  return (u == __builtin_inff()) | (u == 0.0f) ? Log(u) : value;
}
INLINE float Log1p(float x) { return Log1p(Splat(x))[0]; }
)";

constexpr const char* kCppErf = R"(
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
INLINE float Erf(float x) { return Erf(Splat(x))[0]; }
)";

constexpr const char* kCppSign = R"(
INLINE Vec Sign(Vec x) { return x > 0.0f ? Splat(1.0f) : x < 0.0f ? Splat(-1.0f) : x; }
INLINE float Sign(float x) { return x > 0 ? 1.0f : x < 0 ? -1.0f : x; }
)";

constexpr const char* kCppSin = R"(
INLINE float Sin(float x) { return __builtin_sinf(x); }
INLINE Vec Sin(Vec x) {
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_sinf(x[i]);
  return x;
}
)";

constexpr const char* kCppCos = R"(
INLINE float Cos(float x) { return __builtin_cosf(x); }
INLINE Vec Cos(Vec x) {
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_cosf(x[i]);
  return x;
}
)";

constexpr const char* kCppTan = R"(
INLINE float Tan(float x) { return __builtin_tanf(x); }
INLINE Vec Tan(Vec x) {
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_tanf(x[i]);
  return x;
}
)";

constexpr const char* kCppAsin = R"(
INLINE float Asin(float x) { return __builtin_asinf(x); }
INLINE Vec Asin(Vec x) {
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_asinf(x[i]);
  return x;
}
)";

constexpr const char* kCppAcos = R"(
INLINE float Acos(float x) { return __builtin_acosf(x); }
INLINE Vec Acos(Vec x) {
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_acosf(x[i]);
  return x;
}
)";

constexpr const char* kCppAtan = R"(
INLINE float Atan(float x) { return __builtin_atanf(x); }
INLINE Vec Atan(Vec x) {
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_atanf(x[i]);
  return x;
}
)";

constexpr const char* kCppSinh = R"(
INLINE float Sinh(float x) { return __builtin_sinhf(x); }
INLINE Vec Sinh(Vec x) {
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_sinhf(x[i]);
  return x;
}
)";

constexpr const char* kCppCosh = R"(
INLINE float Cosh(float x) { return __builtin_coshf(x); }
INLINE Vec Cosh(Vec x) {
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_coshf(x[i]);
  return x;
}
)";

constexpr const char* kCppFloor = R"(
INLINE float Floor(float x) { return __builtin_floorf(x); }
INLINE Vec Floor(Vec x) {
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_floorf(x[i]);
  return x;
}
)";

constexpr const char* kCppCeil = R"(
INLINE float Ceil(float x) { return __builtin_ceilf(x); }
INLINE Vec Ceil(Vec x) {
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_ceilf(x[i]);
  return x;
}
)";

constexpr const char* kCppRound = R"(
INLINE float Round(float x) { return __builtin_rintf(x); }
INLINE Vec Round(Vec x) {
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_rintf(x[i]);
  return x;
}
)";

constexpr const char* kCppTrunc = R"(
INLINE float Trunc(float x) { return __builtin_truncf(x); }
INLINE Vec Trunc(Vec x) {
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_truncf(x[i]);
  return x;
}
)";

constexpr const char* kCppPow = R"(
INLINE float Pow(float x, float y) { return __builtin_powf(x, y); }
INLINE Vec Pow(Vec x, Vec y) {
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_powf(x[i], y[i]);
  return x;
}
)";

constexpr const char* kCppFmod = R"(
INLINE float Fmod(float x, float y) { return __builtin_fmodf(x, y); }
INLINE Vec Fmod(Vec x, Vec y) {
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_fmodf(x[i], y[i]);
  return x;
}
)";

constexpr const char* kCppAtan2 = R"(
INLINE float Atan2(float x, float y) { return __builtin_atan2f(x, y); }
INLINE Vec Atan2(Vec x, Vec y) {
  for (int i = 0; i < kLanes; ++i) x[i] = __builtin_atan2f(x[i], y[i]);
  return x;
}
)";

constexpr const char* kCppLogAddExp = R"(
INLINE Vec LogAddExp(Vec a, Vec b) {
  const Vec top = NanMax(a, b), low = Min(a, b);
  const Vec sum = top + Log1p(Exp(low - top));
  return Abs(top) == __builtin_inff() ? top : sum;
}
INLINE float LogAddExp(float a, float b) { return LogAddExp(Splat(a), Splat(b))[0]; }
)";

constexpr const char* kCppAsFloat16 = R"(
INLINE Vec AsFloat16(Vec x) {
  _Float16 rounded[kLanes];
  StoreVec(rounded, x);
  return LoadVec(rounded);
}
INLINE float AsFloat16(float x) { return AsFloat16(Splat(x))[0]; }
)";

constexpr const char* kCppAsBfloat16 = R"(
INLINE Vec AsBfloat16(Vec x) {
  bf16 rounded[kLanes];
  StoreVec(rounded, x);
  return LoadVec(rounded);
}
INLINE float AsBfloat16(float x) { return AsBfloat16(Splat(x))[0]; }
)";

}  // namespace

const std::vector<CppPart>& CppFunctionParts() {
  static const std::vector<CppPart> kParts = {{"Max(", kCppMax},
                                              {"Min(", kCppMin},
                                              {"NanMax(", kCppNanMax},
                                              {"NanMin(", kCppNanMin},
                                              {"Abs(", kCppAbs},
                                              {"Sqrt(", kCppSqrt},
                                              {"ExpTail(", kCppPower},
                                              {"Exp(", kCppExp},
                                              {"Exp2(", kCppExp2},
                                              {"Expm1(", kCppExpm1},
                                              {"Tanh(", kCppTanh},
                                              {"Sigmoid(", kCppSigmoid},
                                              {"TwiceAtanh(", kCppAtanh},
                                              {"Log(", kCppLog},
                                              {"Log2(", kCppLog2},
                                              {"Log10(", kCppLog10},
                                              {"Log1p(", kCppLog1p},
                                              {"Erf(", kCppErf},
                                              {"Sign(", kCppSign},
                                              {"Sin(", kCppSin},
                                              {"Cos(", kCppCos},
                                              {"Tan(", kCppTan},
                                              {"Asin(", kCppAsin},
                                              {"Acos(", kCppAcos},
                                              {"Atan(", kCppAtan},
                                              {"Sinh(", kCppSinh},
                                              {"Cosh(", kCppCosh},
                                              {"Floor(", kCppFloor},
                                              {"Ceil(", kCppCeil},
                                              {"Round(", kCppRound},
                                              {"Trunc(", kCppTrunc},
                                              {"Pow(", kCppPow},
                                              {"Fmod(", kCppFmod},
                                              {"Atan2(", kCppAtan2},
                                              {"LogAddExp(", kCppLogAddExp},
                                              {"AsFloat16(", kCppAsFloat16},
                                              {"AsBfloat16(", kCppAsBfloat16}};
  return kParts;
}

}  // namespace kevin::search
