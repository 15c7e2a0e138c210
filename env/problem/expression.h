#pragma once
// Integer expressions over size symbols, used in problem files for shapes and costs: decimal integers, names,
// + - * / ( ) with the usual precedence, unary minus; "/" is floor division. All arithmetic is checked for
// overflow. Pure functions; safe from any thread.

#include <cstdint>
#include <map>
#include <string>

namespace kevin {

using Symbols = std::map<std::string, int64_t>;

// `error` is empty if `value` is valid, else the reason: "unknown symbol 'M' (sizes define B, N)".
struct ExpressionResult {
  int64_t value = 0;
  std::string error;
};
ExpressionResult TryEvaluateExpression(const std::string& expression, const Symbols& symbols);

// A scale, which may be a fraction: an expression, or "1/sqrt(EXPRESSION)" for the initialiser of a weight
// with that fan-in. A value that is not positive is an error.
struct ScaleResult {
  double value = 0;
  std::string error;
};
ScaleResult TryEvaluateScale(const std::string& text, const Symbols& symbols);

// Like TryEvaluateExpression, but throws Error(kBadRequest): "expression '2*M': unknown symbol 'M' (sizes
// define B, N)".
int64_t EvaluateExpression(const std::string& expression, const Symbols& symbols);

}  // namespace kevin
