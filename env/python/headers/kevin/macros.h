#pragma once
// TORCH_CHECK and its kin, and AT_DISPATCH_*.

#include <kevin/operators.h>

#define KEVIN_FAIL(...) ::kevin_torch::Raise(__FILE__, __LINE__, ::kevin_torch::TextOf(__VA_ARGS__))
#define TORCH_CHECK(condition, ...) \
  do {                              \
    if (!(condition)) {             \
      KEVIN_FAIL(__VA_ARGS__);      \
    }                               \
  } while (false)
#define TORCH_CHECK_INDEX(condition, ...) TORCH_CHECK(condition, __VA_ARGS__)
#define TORCH_CHECK_VALUE(condition, ...) TORCH_CHECK(condition, __VA_ARGS__)
#define TORCH_CHECK_TYPE(condition, ...) TORCH_CHECK(condition, __VA_ARGS__)
#define TORCH_INTERNAL_ASSERT(condition, ...) TORCH_CHECK(condition, __VA_ARGS__)
#define AT_ASSERT(condition) TORCH_CHECK(condition)
#define AT_ASSERTM(condition, ...) TORCH_CHECK(condition, __VA_ARGS__)
#define AT_ERROR(...)        \
  do {                       \
    KEVIN_FAIL(__VA_ARGS__); \
  } while (false)
#define TORCH_WARN(...) std::fprintf(stderr, "Warning: %s\n", ::kevin_torch::TextOf(__VA_ARGS__).c_str())
namespace kevin_torch {
namespace calls {
inline ScalarType TypeIn(ScalarType type) { return type; }
inline ScalarType TypeIn(const DeprecatedTypeProperties& properties) { return properties.type; }
}  // namespace calls
}  // namespace kevin_torch

#define AT_PRIVATE_CASE_TYPE_USING_HINT(type_of_case, hint, ...)                          \
  case type_of_case: {                                                                    \
    using hint [[maybe_unused]] = ::kevin_torch::ScalarTypeToCPPType<type_of_case>::type; \
    return __VA_ARGS__();                                                                 \
  }
#define AT_DISPATCH_CASE(type_of_case, ...) \
  AT_PRIVATE_CASE_TYPE_USING_HINT(type_of_case, scalar_t, __VA_ARGS__)
#define AT_DISPATCH_SWITCH(TYPE, NAME, ...)                                                      \
  [&] {                                                                                          \
    const auto& the_type = TYPE;                                                                 \
    constexpr const char* at_dispatch_name = NAME;                                               \
    const ::kevin_torch::ScalarType _st = ::kevin_torch::calls::TypeIn(the_type);                \
    switch (_st) {                                                                               \
      __VA_ARGS__                                                                                \
      default:                                                                                   \
        throw ::kevin_torch::NotImplemented(                                                     \
            ::kevin_torch::TextOf('"', at_dispatch_name, "\" not implemented for '", _st, "'")); \
    }                                                                                            \
  }()

#define AT_DISPATCH_CASE_FLOATING_TYPES(...)                       \
  AT_DISPATCH_CASE(::kevin_torch::ScalarType::Double, __VA_ARGS__) \
  AT_DISPATCH_CASE(::kevin_torch::ScalarType::Float, __VA_ARGS__)
#define AT_DISPATCH_CASE_INTEGRAL_TYPES(...)                     \
  AT_DISPATCH_CASE(::kevin_torch::ScalarType::Byte, __VA_ARGS__) \
  AT_DISPATCH_CASE(::kevin_torch::ScalarType::Char, __VA_ARGS__) \
  AT_DISPATCH_CASE(::kevin_torch::ScalarType::Int, __VA_ARGS__)  \
  AT_DISPATCH_CASE(::kevin_torch::ScalarType::Long, __VA_ARGS__) \
  AT_DISPATCH_CASE(::kevin_torch::ScalarType::Short, __VA_ARGS__)
#define AT_DISPATCH_CASE_ALL_TYPES(...)        \
  AT_DISPATCH_CASE_INTEGRAL_TYPES(__VA_ARGS__) \
  AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__)

#define AT_DISPATCH_FLOATING_TYPES(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND_HALF(TYPE, NAME, ...)      \
  AT_DISPATCH_SWITCH(TYPE, NAME,                                  \
                     AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__) \
                         AT_DISPATCH_CASE(::kevin_torch::ScalarType::Half, __VA_ARGS__))
#define AT_DISPATCH_REDUCED_FLOATING_TYPES(TYPE, NAME, ...)                         \
  AT_DISPATCH_SWITCH(TYPE, NAME,                                                    \
                     AT_DISPATCH_CASE(::kevin_torch::ScalarType::Half, __VA_ARGS__) \
                         AT_DISPATCH_CASE(::kevin_torch::ScalarType::BFloat16, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND(ONE, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME,                             \
                     AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(ONE, __VA_ARGS__))
#define AT_DISPATCH_FLOATING_TYPES_AND2(ONE, TWO, TYPE, NAME, ...)                                   \
  AT_DISPATCH_SWITCH(TYPE, NAME,                                                                     \
                     AT_DISPATCH_CASE_FLOATING_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(ONE, __VA_ARGS__) \
                         AT_DISPATCH_CASE(TWO, __VA_ARGS__))
#define AT_DISPATCH_INTEGRAL_TYPES(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_INTEGRAL_TYPES(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES(TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND(ONE, TYPE, NAME, ...) \
  AT_DISPATCH_SWITCH(TYPE, NAME, AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(ONE, __VA_ARGS__))
#define AT_DISPATCH_ALL_TYPES_AND2(ONE, TWO, TYPE, NAME, ...)                                   \
  AT_DISPATCH_SWITCH(TYPE, NAME,                                                                \
                     AT_DISPATCH_CASE_ALL_TYPES(__VA_ARGS__) AT_DISPATCH_CASE(ONE, __VA_ARGS__) \
                         AT_DISPATCH_CASE(TWO, __VA_ARGS__))

// --- The names under which extensions know all this ---

namespace c10 {
using namespace kevin_torch;
}
namespace at {
using namespace kevin_torch;
}
namespace caffe2 {
using kevin_torch::TypeMeta;
}
namespace torch {
using namespace kevin_torch;
}
