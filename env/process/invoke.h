#pragma once
// Calls a C function that takes nothing but pointers, with a count known only at run time.

#include <array>
#include <cstddef>
#include <utility>

#include "env/process/shared_control_page.h"

namespace kevin {

using LaunchFunction = void (*)();

namespace invoke_internal {

template <size_t... I>
void Call(LaunchFunction function, void* const* arguments, std::index_sequence<I...>) {
  using Typed = void (*)(decltype(static_cast<void*>(arguments[I]))...);
  reinterpret_cast<Typed>(function)(arguments[I]...);
}

template <size_t N>
void CallN(LaunchFunction function, void* const* arguments) {
  Call(function, arguments, std::make_index_sequence<N>{});
}

template <size_t... N>
constexpr auto Table(std::index_sequence<N...>) {
  return std::array<void (*)(LaunchFunction, void* const*), sizeof...(N)>{&CallN<N>...};
}

}  // namespace invoke_internal

// 0 <= count <= kMaxArguments.
inline void Invoke(LaunchFunction function, void* const* arguments, size_t count) {
  static constexpr auto kTable = invoke_internal::Table(std::make_index_sequence<kMaxArguments + 1>{});
  kTable[count](function, arguments);
}

}  // namespace kevin
