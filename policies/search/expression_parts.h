#pragma once
// Inside expression*.cc.

#include <string>
#include <vector>

#include "policies/search/expression.h"

namespace kevin::search {

inline constexpr int64_t kFar = int64_t{1} << 60;  // bounds beyond it are unknown

// With its key, its size and the bounds of a condition.
ExprPtr Finish(Expr expr);
ExprPtr Simple(Op op, Type type, std::vector<ExprPtr> args);
inline bool IsConstant(const ExprPtr& e) { return e->op == "constant"; }
// The sum of constant and coefficients[i] * args[i], which need not be distinct.
ExprPtr SumOfTerms(int64_t constant, const std::vector<ExprPtr>& args,
                   const std::vector<int64_t>& coefficients);

}  // namespace kevin::search
