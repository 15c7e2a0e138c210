#include "env/gpu/compile/device_source.h"

namespace kevin {
namespace {

// Types as CCCL's own <cuda/std/cstdint> has them under NVRTC, so that both can be included.
constexpr const char* kBasics = R"(#ifndef KEVIN_BASICS_H
#define KEVIN_BASICS_H
typedef signed char int8_t;
typedef short int16_t;
typedef int int32_t;
typedef long long int64_t;
typedef unsigned char uint8_t;
typedef unsigned short uint16_t;
typedef unsigned int uint32_t;
typedef unsigned long long uint64_t;
typedef long long intptr_t;
typedef unsigned long long uintptr_t;
typedef long long intmax_t;
typedef unsigned long long uintmax_t;
#ifndef INFINITY
#define INFINITY __builtin_bit_cast(float, 0x7f800000u)
#endif
#ifndef NAN
#define NAN __builtin_bit_cast(float, 0x7fc00000u)
#endif
#ifndef HUGE_VALF
#define HUGE_VALF INFINITY
#define HUGE_VAL __builtin_bit_cast(double, 0x7ff0000000000000ull)
#endif
#undef assert
#define assert(condition) ((void)0)
namespace std {
using ::size_t;
using ::ptrdiff_t;
using ::int8_t; using ::int16_t; using ::int32_t; using ::int64_t;
using ::uint8_t; using ::uint16_t; using ::uint32_t; using ::uint64_t;
using ::intptr_t; using ::uintptr_t;
template <class A, class B>
constexpr auto min(A a, B b) { return b < a ? b : a; }
template <class A, class B>
constexpr auto max(A a, B b) { return a < b ? b : a; }
template <class A>
constexpr A clamp(A a, A low, A high) { return a < low ? low : high < a ? high : a; }
template <class A>
constexpr void swap(A& a, A& b) { A c = a; a = b; b = c; }
}
#endif
)";

constexpr const char* kLimits = R"(#ifndef KEVIN_LIMITS_H
#define KEVIN_LIMITS_H
#ifndef CHAR_BIT
#define CHAR_BIT 8
#endif
#ifndef SCHAR_MAX
#define SCHAR_MIN (-128)
#define SCHAR_MAX 127
#define UCHAR_MAX 255
#define CHAR_MIN SCHAR_MIN
#define CHAR_MAX SCHAR_MAX
#endif
#ifndef SHRT_MAX
#define SHRT_MIN (-32768)
#define SHRT_MAX 32767
#define USHRT_MAX 65535
#endif
#ifndef INT_MAX
#define INT_MIN (-2147483647 - 1)
#define INT_MAX 2147483647
#define UINT_MAX 4294967295u
#endif
#ifndef LONG_MAX
#define LONG_MIN (-9223372036854775807l - 1)
#define LONG_MAX 9223372036854775807l
#define ULONG_MAX 18446744073709551615ul
#endif
#ifndef LLONG_MAX
#define LLONG_MIN (-9223372036854775807ll - 1)
#define LLONG_MAX 9223372036854775807ll
#define ULLONG_MAX 18446744073709551615ull
#endif
#endif
)";

constexpr const char* kIntegers = R"(#ifndef KEVIN_INTEGERS_H
#define KEVIN_INTEGERS_H
#include <kevin/basics.h>
#include <limits.h>
#ifndef INT32_MAX
#define INT8_MIN SCHAR_MIN
#define INT8_MAX SCHAR_MAX
#define UINT8_MAX UCHAR_MAX
#define INT16_MIN SHRT_MIN
#define INT16_MAX SHRT_MAX
#define UINT16_MAX USHRT_MAX
#define INT32_MIN INT_MIN
#define INT32_MAX INT_MAX
#define UINT32_MAX UINT_MAX
#define INT64_MIN LLONG_MIN
#define INT64_MAX LLONG_MAX
#define UINT64_MAX ULLONG_MAX
#define SIZE_MAX ULONG_MAX
#endif
#endif
)";

constexpr const char* kFloats = R"(#ifndef KEVIN_FLOATS_H
#define KEVIN_FLOATS_H
#ifndef FLT_MAX
#define FLT_MAX 3.402823466e+38f
#define FLT_MIN 1.175494351e-38f
#define FLT_EPSILON 1.192092896e-07f
#define FLT_DIG 6
#define FLT_MANT_DIG 24
#define FLT_RADIX 2
#endif
#ifndef DBL_MAX
#define DBL_MAX 1.7976931348623158e+308
#define DBL_MIN 2.2250738585072014e-308
#define DBL_EPSILON 2.2204460492503131e-016
#define DBL_DIG 15
#define DBL_MANT_DIG 53
#endif
#endif
)";

constexpr const char* kMath = R"(#ifndef KEVIN_MATH_H
#define KEVIN_MATH_H
#include <kevin/basics.h>
#ifndef M_PI
#define M_E 2.71828182845904523536
#define M_LOG2E 1.44269504088896340736
#define M_LOG10E 0.434294481903251827651
#define M_LN2 0.693147180559945309417
#define M_LN10 2.30258509299404568402
#define M_PI 3.14159265358979323846
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.785398163397448309616
#define M_1_PI 0.318309886183790671538
#define M_2_PI 0.636619772367581343076
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.707106781186547524401
#endif
namespace std {
using ::abs; using ::fabs; using ::fabsf; using ::acos; using ::acosh; using ::asin; using ::asinh;
using ::atan; using ::atan2; using ::atanh; using ::cbrt; using ::ceil; using ::copysign; using ::cos;
using ::cosh; using ::erf; using ::erfc; using ::exp; using ::exp2; using ::expf; using ::expm1;
using ::fdim; using ::floor; using ::fma; using ::fmaf; using ::fmax; using ::fmaxf; using ::fmin;
using ::fminf; using ::fmod; using ::frexp; using ::hypot; using ::isfinite; using ::isinf; using ::isnan;
using ::ldexp; using ::lgamma; using ::log; using ::log10; using ::log1p; using ::log2; using ::logf;
using ::lrint; using ::lround; using ::nearbyint; using ::pow; using ::powf; using ::remainder; using ::rint;
using ::round; using ::signbit; using ::sin; using ::sinh; using ::sqrt; using ::sqrtf; using ::tan;
using ::tanh; using ::tanhf; using ::tgamma; using ::trunc;
}
#endif
)";

constexpr const char* kNumericLimits = R"(#ifndef KEVIN_NUMERIC_LIMITS_H
#define KEVIN_NUMERIC_LIMITS_H
#include <kevin/basics.h>
#include <limits.h>
#include <float.h>
namespace std {
template <class T>
struct numeric_limits { static constexpr bool is_specialized = false; };
#define KEVIN_LIMITS(T, LEAST, MOST, SIGNED)                     \
  template <>                                                    \
  struct numeric_limits<T> {                                     \
    static constexpr bool is_specialized = true, is_integer = true, is_signed = SIGNED; \
    static constexpr int digits = sizeof(T) * 8 - SIGNED;        \
    static constexpr T min() { return LEAST; }                   \
    static constexpr T lowest() { return LEAST; }                \
    static constexpr T max() { return MOST; }                    \
  };
KEVIN_LIMITS(bool, false, true, false)
KEVIN_LIMITS(char, CHAR_MIN, CHAR_MAX, true)
KEVIN_LIMITS(signed char, SCHAR_MIN, SCHAR_MAX, true)
KEVIN_LIMITS(unsigned char, 0, UCHAR_MAX, false)
KEVIN_LIMITS(short, SHRT_MIN, SHRT_MAX, true)
KEVIN_LIMITS(unsigned short, 0, USHRT_MAX, false)
KEVIN_LIMITS(int, INT_MIN, INT_MAX, true)
KEVIN_LIMITS(unsigned int, 0, UINT_MAX, false)
KEVIN_LIMITS(long, LONG_MIN, LONG_MAX, true)
KEVIN_LIMITS(unsigned long, 0, ULONG_MAX, false)
KEVIN_LIMITS(long long, LLONG_MIN, LLONG_MAX, true)
KEVIN_LIMITS(unsigned long long, 0, ULLONG_MAX, false)
#undef KEVIN_LIMITS
#define KEVIN_LIMITS(T, NAME, INF, QUIET)                        \
  template <>                                                    \
  struct numeric_limits<T> {                                     \
    static constexpr bool is_specialized = true, is_integer = false, is_signed = true, has_infinity = true; \
    static constexpr int digits = NAME##_MANT_DIG;               \
    static constexpr T min() { return NAME##_MIN; }              \
    static constexpr T lowest() { return -NAME##_MAX; }          \
    static constexpr T max() { return NAME##_MAX; }              \
    static constexpr T epsilon() { return NAME##_EPSILON; }      \
    static constexpr T infinity() { return INF; }                \
    static constexpr T quiet_NaN() { return QUIET; }             \
  };
KEVIN_LIMITS(float, FLT, INFINITY, NAN)
KEVIN_LIMITS(double, DBL, HUGE_VAL, __builtin_bit_cast(double, 0x7ff8000000000000ull))
#undef KEVIN_LIMITS
}
#endif
)";

constexpr const char* kTypeTraits = R"(#ifndef KEVIN_TYPE_TRAITS_H
#define KEVIN_TYPE_TRAITS_H
namespace std {
template <class T, T v> struct integral_constant {
  static constexpr T value = v;
  using value_type = T;
  using type = integral_constant;
  constexpr operator T() const { return v; }
  constexpr T operator()() const { return v; }
};
template <bool b> using bool_constant = integral_constant<bool, b>;
using true_type = bool_constant<true>;
using false_type = bool_constant<false>;
template <bool b, class T = void> struct enable_if {};
template <class T> struct enable_if<true, T> { using type = T; };
template <bool b, class T = void> using enable_if_t = typename enable_if<b, T>::type;
template <bool b, class T, class F> struct conditional { using type = T; };
template <class T, class F> struct conditional<false, T, F> { using type = F; };
template <bool b, class T, class F> using conditional_t = typename conditional<b, T, F>::type;
template <class A, class B> struct is_same : false_type {};
template <class A> struct is_same<A, A> : true_type {};
template <class A, class B> inline constexpr bool is_same_v = is_same<A, B>::value;
template <class T> struct remove_reference { using type = T; };
template <class T> struct remove_reference<T&> { using type = T; };
template <class T> struct remove_reference<T&&> { using type = T; };
template <class T> using remove_reference_t = typename remove_reference<T>::type;
template <class T> struct remove_const { using type = T; };
template <class T> struct remove_const<const T> { using type = T; };
template <class T> using remove_const_t = typename remove_const<T>::type;
template <class T> struct remove_volatile { using type = T; };
template <class T> struct remove_volatile<volatile T> { using type = T; };
template <class T> struct remove_cv { using type = remove_const_t<typename remove_volatile<T>::type>; };
template <class T> using remove_cv_t = typename remove_cv<T>::type;
template <class T> struct remove_cvref { using type = remove_cv_t<remove_reference_t<T>>; };
template <class T> using remove_cvref_t = typename remove_cvref<T>::type;
template <class T> using decay_t = remove_cvref_t<T>;
template <class T> struct decay { using type = decay_t<T>; };
template <class T> struct remove_pointer { using type = T; };
template <class T> struct remove_pointer<T*> { using type = T; };
template <class T> using remove_pointer_t = typename remove_pointer<T>::type;
template <class T> struct is_pointer : false_type {};
template <class T> struct is_pointer<T*> : true_type {};
template <class T> inline constexpr bool is_pointer_v = is_pointer<T>::value;
template <class T> struct is_void : is_same<remove_cv_t<T>, void> {};
template <class T> inline constexpr bool is_void_v = is_void<T>::value;
template <class T, class... Any> inline constexpr bool kevin_any_of = (is_same_v<remove_cv_t<T>, Any> || ...);
template <class T> inline constexpr bool is_floating_point_v = kevin_any_of<T, float, double>;
template <class T> struct is_floating_point : bool_constant<is_floating_point_v<T>> {};
template <class T> inline constexpr bool is_integral_v =
    kevin_any_of<T, bool, char, signed char, unsigned char, short, unsigned short, int, unsigned int, long,
                 unsigned long, long long, unsigned long long>;
template <class T> struct is_integral : bool_constant<is_integral_v<T>> {};
template <class T> inline constexpr bool is_arithmetic_v = is_integral_v<T> || is_floating_point_v<T>;
template <class T> struct is_arithmetic : bool_constant<is_arithmetic_v<T>> {};
template <class T> inline constexpr bool is_unsigned_v = is_integral_v<T> && T(0) < T(-1);
template <class T> inline constexpr bool is_signed_v = is_arithmetic_v<T> && !is_unsigned_v<T>;
template <class T> struct is_unsigned : bool_constant<is_unsigned_v<T>> {};
template <class T> struct is_signed : bool_constant<is_signed_v<T>> {};
template <class T> inline constexpr bool is_trivially_copyable_v = __is_trivially_copyable(T);
template <class...> using void_t = void;
template <class T> T&& declval() noexcept;
}
#endif
)";

constexpr const char* kCString = R"(#ifndef KEVIN_CSTRING_H
#define KEVIN_CSTRING_H
#include <kevin/basics.h>
namespace std {
using ::memcpy; using ::memset;
}
#endif
)";

// The size and alignment that the driver fixes; CCCL forward-declares these names.
constexpr const char* kDriver = R"(#ifndef KEVIN_DRIVER_H
#define KEVIN_DRIVER_H
#include <kevin/basics.h>
struct alignas(64) CUtensorMap_st { unsigned long long opaque[16]; };
typedef struct CUtensorMap_st CUtensorMap;
#endif
)";

constexpr const char* kDependency = R"(#ifndef KEVIN_LAUNCH_DEPENDENCY_H
#define KEVIN_LAUNCH_DEPENDENCY_H
#if __CUDA_ARCH__ >= 900
__device__ __forceinline__ void cudaGridDependencySynchronize() { asm volatile("griddepcontrol.wait;" ::: "memory"); }
__device__ __forceinline__ void cudaTriggerProgrammaticLaunchCompletion() {
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
}
#else
__device__ __forceinline__ void cudaGridDependencySynchronize() {}
__device__ __forceinline__ void cudaTriggerProgrammaticLaunchCompletion() {}
#endif
#endif
)";

}  // namespace

const std::vector<std::pair<std::string, std::string>>& FixedHeaders() {
  static const std::vector<std::pair<std::string, std::string>> kHeaders = {
      {kBasicsHeader, kBasics},
      {kDependencyHeader, kDependency},
      {"limits.h", kLimits},
      {"climits", kLimits},
      {"stdint.h", kIntegers},
      {"cstdint", kIntegers},
      {"inttypes.h", kIntegers},
      {"cinttypes", kIntegers},
      {"float.h", kFloats},
      {"cfloat", kFloats},
      {"math.h", kMath},
      {"cmath", kMath},
      {"limits", kNumericLimits},
      {"type_traits", kTypeTraits},
      {"algorithm", kBasicsOnly},
      {"utility", kBasicsOnly},
      {"assert.h", kBasicsOnly},
      {"cassert", kBasicsOnly},
      {"stddef.h", kBasicsOnly},
      {"cstddef", kBasicsOnly},
      {"string.h", kCString},
      {"cstring", kCString},
      {"cuda.h", kDriver},
      {"cudaTypedefs.h", kDriver},
      {"cuda_runtime.h", kBasicsOnly},
      {"cuda_runtime_api.h", kBasicsOnly},
      {"device_launch_parameters.h", kBasicsOnly},
      {"device_functions.h", kBasicsOnly},
      {"math_functions.h", kMath}};
  return kHeaders;
}

}  // namespace kevin
