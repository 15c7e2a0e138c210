#pragma once
// The operations of expressions (expression.h says what each does), as numbers: they are compared all the time.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace kevin::search {

inline constexpr std::string_view kOpNames[] = {
    "constant",   "variable",   "load",       "result",     "guard", "select",    "sum",   "div",
    "mod",        "product",    "less",       "less_equal", "equal", "not_equal", "and",   "or",
    "not",        "to_float",   "to_int",     "to_bool",    "add",   "sub",       "mul",   "div_float",
    "minimum",    "maximum",    "pow",        "fmod",       "atan2", "neg",       "abs",   "exp",
    "exp2",       "expm1",      "log",        "log2",       "log10", "log1p",     "sqrt",  "rsqrt",
    "reciprocal", "sigmoid",    "tanh",       "erf",        "sin",   "cos",       "tan",   "asin",
    "acos",       "atan",       "sinh",       "cosh",       "floor", "ceil",      "round", "trunc",
    "sign",       "as_float16", "as_bfloat16"};
inline constexpr size_t kOps = sizeof kOpNames / sizeof kOpNames[0];

class Op {
 public:
  constexpr Op() = default;
  // A literal; one that is no operation does not compile.
  consteval Op(const char* name) : number_(static_cast<uint8_t>(Find(name))) {
    if (number_ == kOps) throw "no operation";
  }
  // Throws Error(kBroken) where there is no such operation.
  Op(const std::string& name);

  std::string Name() const { return std::string(kOpNames[number_]); }
  constexpr size_t number() const { return number_; }  // below kOps
  friend constexpr bool operator==(Op a, Op b) { return a.number_ == b.number_; }

 private:
  static constexpr size_t Find(std::string_view name) {
    size_t number = 0;
    while (number < kOps && kOpNames[number] != name) ++number;
    return number;
  }
  uint8_t number_ = 0;
};

}  // namespace kevin::search
