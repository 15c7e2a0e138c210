// Neighbouring loops that always occur together become one: (h, w) of an elementwise operation is one loop over h * w.

#include <algorithm>

#include "policies/search/lowering.h"
#include "policies/search/stage_parts.h"

namespace kevin::search {
namespace {

// Whether the expression has first and second elsewhere than in c * (extent * first + second): then a joined loop would
// have to be divided there. Divisions of them are left to the count of divisions.
bool NeedsBoth(const ExprPtr& expr, const Loop& first, const Loop& second) {
  const auto is = [](const ExprPtr& e, const Loop& loop) {
    return e->id == loop.variable && e->op == "variable";
  };
  for (const Expr* node : Nodes(expr)) {
    if (node->op == "div" || node->op == "mod") continue;
    const bool is_sum = node->op == "sum";
    int64_t of_first = 0, of_second = 0;
    for (size_t i = 0; i < node->args.size(); ++i) {
      const bool has_first = is(node->args[i], first), has_second = is(node->args[i], second);
      if (!has_first && !has_second) continue;
      if (!is_sum) return true;
      (has_first ? of_first : of_second) = node->coefficients[i];
    }
    if (of_first != of_second * second.extent) return true;
  }
  return is(expr, first) || is(expr, second);
}

// Whether loop `at` and its successor can be one loop with the variable `at` has; changes the stage if so.
bool MergePair(Stage& stage, std::vector<Loop>& loops, size_t at) {
  const Loop first = loops[at], second = loops[at + 1];
  bool needs_both = false;
  ForEachExpr(std::as_const(stage),
              [&](const ExprPtr& expr) { needs_both = needs_both || NeedsBoth(expr, first, second); });
  if (needs_both) return false;
  const ExprPtr joined = Variable(first.variable, first.extent * second.extent);
  const Replacement replacement = {{first.variable, DivInt(joined, second.extent)},
                                   {second.variable, ModInt(joined, second.extent)}};
  const int before = CountDivisions(stage);
  std::vector<ExprPtr> merged;
  int after = 0;
  ForEachExpr(std::as_const(stage), [&](const ExprPtr& expr) {
    merged.push_back(Replace(expr, replacement));
    for (const Expr* node : Nodes(merged.back())) after += node->op == "div" || node->op == "mod";
  });
  if (after > before) return false;
  size_t next = 0;
  ForEachExpr(stage, [&](ExprPtr& expr) { expr = merged[next++]; });
  loops[at].extent = first.extent * second.extent;
  loops.erase(loops.begin() + static_cast<long>(at) + 1);
  return true;
}

void RemoveAt(Contraction* contraction, const std::vector<Loop>& loops, size_t at) {
  if (contraction && &loops == &contraction->k && at < contraction->k_limits.size())
    contraction->k_limits.erase(contraction->k_limits.begin() + static_cast<long>(at));
}

// A k loop of one pass that some points of the batch do not make.
bool HasLimit(const Contraction* contraction, const std::vector<Loop>& loops, size_t at) {
  return contraction && &loops == &contraction->k && at < contraction->k_limits.size() &&
         contraction->k_limits[at];
}

}  // namespace

void MergeLoops(Stage& stage) {
  auto* contraction = std::get_if<Contraction>(&stage.work);
  for (std::vector<Loop>* loops : LoopListsOf(stage)) {
    for (size_t i = loops->size(); i-- > 0;) {
      if ((*loops)[i].extent != 1 || HasLimit(contraction, *loops, i)) continue;
      RemoveAt(contraction, *loops, i);
      loops->erase(loops->begin() + static_cast<long>(i));
    }
    for (size_t i = loops->size(); i-- > 1;) {
      const bool is_k = contraction && loops == &contraction->k;
      if (is_k && (contraction->k_limits[i] || contraction->k_limits[i - 1])) continue;
      if (MergePair(stage, *loops, i - 1)) RemoveAt(contraction, *loops, i);
    }
  }
}

}  // namespace kevin::search
