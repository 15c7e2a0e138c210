#pragma once
// Inside lower_losses.cc and lower_distances.cc.

#include <functional>
#include <string>
#include <vector>

#include "policies/search/lowering.h"

namespace kevin::search {

using LossFunction = void (*)(Lowering&, const GraphNode&);
using LossArgs = std::vector<ExprPtr>;

inline ExprPtr LPlus(const ExprPtr& a, const ExprPtr& b) { return Binary("add", a, b); }
inline ExprPtr LMinus(const ExprPtr& a, const ExprPtr& b) { return Binary("sub", a, b); }
inline ExprPtr LTimes(const ExprPtr& a, const ExprPtr& b) { return Binary("mul", a, b); }
inline ExprPtr LRelu(const ExprPtr& a) { return Binary("maximum", a, Float(0)); }
inline ExprPtr LAbs(const ExprPtr& a) { return Unary("abs", a); }
inline ExprPtr LIs(const ExprPtr& a, double value) { return Compare("equal", a, Float(value)); }

std::vector<int> AllDimsOf(const ValuePtr& value);
Index WithInserted(Index place, size_t dim, const ExprPtr& element);
// Elementwise over broadcast operands, as floats of 32 bits.
ValuePtr Losses(Lowering& at, const std::vector<ValuePtr>& values, const Lowering::ElementFunction& f);
// Sets the node's result: the sum or the mean of the losses of the elements, or these, by its `reduction`.
void SetReduced(Lowering& at, const GraphNode& node, const ValuePtr& losses);

// lower_distances.cc; null for another operation.
LossFunction DistanceNamed(const std::string& op);

}  // namespace kevin::search
