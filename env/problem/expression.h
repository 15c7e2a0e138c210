#pragma once
// Integer expressions over size symbols, as problem files use them for shapes and costs: decimal integers,
// names, + - * / ( ) with the usual precedence, unary minus; "/" is floor division. All arithmetic is
// checked. Pure functions; safe from any thread.

#include <cstdint>
#include <map>
#include <string>

namespace kevin {

using Symbols = std::map<std::string, int64_t>;

// `error` is empty when `value` holds; else it says what is wrong, without repeating where the text stood:
// "unknown symbol 'M' (sizes define B, N)".
struct ExpressionResult {
  int64_t value = 0;
  std::string error;
};
ExpressionResult TryEvaluateExpression(const std::string& expression, const Symbols& symbols);

// A scale, which need not be whole: such an expression, or "1/sqrt(EXPRESSION)" for the initialisers of
// weights, of which the expression is the fan-in. "must be positive" is one of the errors.
struct ScaleResult {
  double value = 0;
  std::string error;
};
ScaleResult TryEvaluateScale(const std::string& text, const Symbols& symbols);

// The same as TryEvaluateExpression, throwing Error(kBadRequest): "expression '2*M': unknown symbol 'M'
// (sizes define B, N)".
int64_t EvaluateExpression(const std::string& expression, const Symbols& symbols);

}  // namespace kevin
