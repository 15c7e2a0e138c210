#pragma once
// Scalar expressions over the loops of a stage (program.h). Immutable, shared, with equal keys for equal expressions.
// Integer arithmetic has a normal form, so that index maps of composed views (reshape, permute, slice, pad) become
// short and comparable. Pure; any thread.
//
// START HERE for a new operation on elements: add it to the table in expression.cc and to both writers' tables.

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "policies/search/op.h"

namespace kevin::search {

enum class Type { kFloat, kInt, kBool };

struct Expr;
using ExprPtr = std::shared_ptr<const Expr>;

// `op` is one of
//   constant     `number` (kFloat) or `integer` (kInt, kBool)
//   variable     the loop variable `id`, from 0 to `high`
//   load         element args[0] (kInt) of buffer `id`; a floating element is converted to float
//   result       the accumulator `id` of the stage
//   guard        args[0] ? args[1] : args[2]; args[1] must not be evaluated where args[0] is false (a load beyond the
//                end); args[2] has no load
//   select       args[0] ? args[1] : args[2]; both may be evaluated
//   sum          kInt: integer + coefficients[0] * args[0] + ...; args are distinct, not sums, in an order of their own
//   div, mod     kInt: args[0] divided by `integer` > 0, rounded down; the remainder, never negative
//   product      kInt: of two that are not constant
//   less, less_equal, equal, not_equal (of two of one type), and, or, not: kBool
//   to_float, to_int (rounds towards 0), to_bool (is not 0)
//   add, sub, mul, div_float, minimum, maximum (NaN wins), pow, fmod, atan2: two floats
//   neg, abs, exp, exp2, expm1, log, log2, log10, log1p, sqrt, rsqrt, reciprocal, sigmoid, tanh, erf, sin, cos, tan,
//   asin, acos, atan, sinh, cosh, floor, ceil, round (half to even), trunc, sign: one float
//   as_float16, as_bfloat16: one float, rounded to the type to nearest
struct Expr {
  Op op;
  Type type = Type::kFloat;
  double number = 0;
  int64_t integer = 0;
  int id = -1;
  std::vector<ExprPtr> args;
  std::vector<int64_t> coefficients;
  int64_t low = 0, high = 0;  // kInt, kBool: bounds of the value, inclusive
  int size = 1;               // nodes of the tree, at most kMaxSize
  std::string key;            // 15 bytes, not text
};
inline constexpr int kMaxSize = 1 << 20;

// --- Leaves ---
ExprPtr Float(double value);
ExprPtr Int(int64_t value);
ExprPtr Bool(bool value);
ExprPtr Variable(int id, int64_t extent);
ExprPtr Load(int buffer, Type type, const ExprPtr& offset);
ExprPtr Result(int id, Type type = Type::kFloat);

// --- Integers. All simplify. ---
ExprPtr AddInt(const ExprPtr& a, const ExprPtr& b);
ExprPtr Scaled(const ExprPtr& a, int64_t factor);
ExprPtr AddScaled(const ExprPtr& a, const ExprPtr& b, int64_t factor);  // a + factor * b
ExprPtr MulInt(const ExprPtr& a, const ExprPtr& b);
ExprPtr DivInt(const ExprPtr& a, int64_t divisor);  // rounds down
ExprPtr ModInt(const ExprPtr& a, int64_t divisor);
// Row-major: the offset of an index in a contiguous tensor, and the index of an offset.
ExprPtr OffsetOf(const std::vector<ExprPtr>& index, const std::vector<int64_t>& shape);
std::vector<ExprPtr> IndexOf(const ExprPtr& offset, const std::vector<int64_t>& shape);

// --- Conditions ---
ExprPtr Compare(Op op, const ExprPtr& a,
                const ExprPtr& b);  // kInt by bounds where they decide
ExprPtr And(const ExprPtr& a, const ExprPtr& b);
ExprPtr Or(const ExprPtr& a, const ExprPtr& b);
ExprPtr Not(const ExprPtr& a);
ExprPtr Guard(const ExprPtr& condition, const ExprPtr& value, const ExprPtr& otherwise);
ExprPtr Select(const ExprPtr& condition, const ExprPtr& yes, const ExprPtr& no);

// --- Floats, and conversions. Constants fold; x + 0, x * 1 and the like disappear. ---
ExprPtr Unary(Op op, const ExprPtr& a);
ExprPtr Binary(Op op, const ExprPtr& a, const ExprPtr& b);
ExprPtr ToType(const ExprPtr& a, Type type);

// --- Questions ---
// Replaces variables, results and loads for which `replace` gives an expression; simplifies again.
ExprPtr Substitute(const ExprPtr& expr, const std::function<ExprPtr(const Expr&)>& replace);
// Every distinct node below and with `expr`, arguments first.
std::vector<const Expr*> Nodes(const ExprPtr& expr);
// The same for `visit`, which may get a node of a small expression more than once.
template <class Visit>
void ForEachNode(const ExprPtr& expr, const Visit& visit) {
  constexpr int kSmall = 256;  // nodes that are walked more quickly than noted
  if (expr->size > kSmall) {
    for (const Expr* node : Nodes(expr)) visit(*node);
    return;
  }
  for (const ExprPtr& arg : expr->args) ForEachNode(arg, visit);
  visit(*expr);
}
bool Uses(const ExprPtr& expr, int variable);
// a where `expr` = a * variable + (what does not depend on it); nullopt where it is not of that form. 0 where the
// variable does not occur.
std::optional<int64_t> StrideOf(const ExprPtr& expr, int variable);
// Operations on elements in the expression: arithmetic only, transcendental ones count 8.
int CostOf(const ExprPtr& expr);

}  // namespace kevin::search
