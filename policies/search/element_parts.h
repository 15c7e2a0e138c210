#pragma once
// Inside lower_*.cc: arithmetic on elements by short names.

#include <functional>
#include <string>
#include <vector>

#include "policies/search/lowering.h"

namespace kevin::search {

using ElementArgs = std::vector<ExprPtr>;
using OfFloat = std::function<ExprPtr(const ExprPtr&)>;

inline ExprPtr Plus(const ExprPtr& a, const ExprPtr& b) { return Binary("add", a, b); }
inline ExprPtr Minus(const ExprPtr& a, const ExprPtr& b) { return Binary("sub", a, b); }
inline ExprPtr Times(const ExprPtr& a, const ExprPtr& b) { return Binary("mul", a, b); }
inline ExprPtr Over(const ExprPtr& a, const ExprPtr& b) { return Binary("div_float", a, b); }
inline ExprPtr Smaller(const ExprPtr& a, const ExprPtr& b) { return Binary("minimum", a, b); }
inline ExprPtr Larger(const ExprPtr& a, const ExprPtr& b) { return Binary("maximum", a, b); }
inline ExprPtr Minus(const ExprPtr& a) { return Unary("neg", a); }
inline ExprPtr Magnitude(const ExprPtr& a) { return Unary("abs", a); }
inline ExprPtr Ramp(const ExprPtr& a) { return Larger(a, Float(0)); }  // max(a, 0)
inline ExprPtr IsLess(const ExprPtr& a, const ExprPtr& b) { return Compare("less", a, b); }
inline ExprPtr IsEqual(const ExprPtr& a, const ExprPtr& b) { return Compare("equal", a, b); }
inline ExprPtr IsNan(const ExprPtr& a) { return Compare("not_equal", a, a); }
// True for -0 too.
inline ExprPtr HasMinus(const ExprPtr& a) {
  return Or(IsLess(a, Float(0)), And(IsEqual(a, Float(0)), IsLess(Over(Float(1), a), Float(0))));
}
// log(1 + exp(x)) without overflow.
inline ExprPtr SoftPlus(const ExprPtr& x) {
  return Plus(Ramp(x), Unary("log1p", Unary("exp", Minus(Magnitude(x)))));
}

// Functions of one float and of numbers of the node (lower_activations.cc); null for another operation.
OfFloat FloatFunction(const Lowering& at, const GraphNode& node);
// Functions of two floats, whatever the operands are; null for another operation.
using OfTwoFloats = ExprPtr (*)(const ExprPtr&, const ExprPtr&);
OfTwoFloats FloatFunctionOfTwo(const std::string& op);

// Bits of integers (lower_bits.cc). Shifts are by 0 to 63; `op` has "and", "xor" or "or" in its name. Throw Unsupported for
// numbers that they have no form for.
ExprPtr ShiftedBits(const ExprPtr& x, const ExprPtr& by, bool is_left);
ExprPtr MaskedBits(const std::string& op, const ExprPtr& x, int64_t mask);

}  // namespace kevin::search
