// Neighbouring loops that always occur together become one: (h, w) of an elementwise operation is one loop over h * w.

#include <algorithm>

#include "policies/search/lowering.h"
#include "policies/search/stage_parts.h"

namespace kevin::search {

LoopPairUse UseOfLoopPair(const ExprPtr& expr, const Loop& first, const Loop& second) {
  const auto is = [](const ExprPtr& e, const Loop& loop) {
    return e->id == loop.variable && e->op == "variable";
  };
  LoopPairUse use;
  use.is_apart = is(expr, first) || is(expr, second);
  ForEachNode(expr, [&](const Expr& node) {
    if (node.op == "div" || node.op == "mod") {
      use.is_divided =
          use.is_divided || Uses(node.args[0], first.variable) || Uses(node.args[0], second.variable);
      return;
    }
    const bool is_sum = node.op == "sum";
    int64_t of_first = 0, of_second = 0;
    for (size_t i = 0; i < node.args.size(); ++i) {
      const bool has_first = is(node.args[i], first), has_second = is(node.args[i], second);
      if (!has_first && !has_second) continue;
      use.is_apart = use.is_apart || !is_sum;
      if (is_sum) (has_first ? of_first : of_second) = node.coefficients[i];
    }
    use.is_apart = use.is_apart || of_first != of_second * second.extent;
  });
  return use;
}

Replacement JoinedPair(const Loop& first, const Loop& second, int joined) {
  return {{first.variable, Int(0)}, {second.variable, Variable(joined, first.extent * second.extent)}};
}

namespace {

void JoinAt(std::vector<Loop>& loops, size_t at) {
  loops[at].extent *= loops[at + 1].extent;
  loops.erase(loops.begin() + static_cast<long>(at) + 1);
}

// Whether loop `at` and its successor can be one loop with the variable `at` has; changes the stage if so.
bool MergePair(Stage& stage, std::vector<Loop>& loops, size_t at) {
  const Loop first = loops[at], second = loops[at + 1];
  LoopPairUse use;
  ForEachExpr(std::as_const(stage), [&](const ExprPtr& expr) {
    if (use.is_apart) return;
    const LoopPairUse here = UseOfLoopPair(expr, first, second);
    use.is_apart = here.is_apart;
    use.is_divided = use.is_divided || here.is_divided;
  });
  if (use.is_apart) return false;
  if (!use.is_divided) {
    const Replacement joined = JoinedPair(first, second, first.variable);
    ForEachExpr(stage, [&](ExprPtr& expr) { expr = Replace(expr, joined); });
    JoinAt(loops, at);
    return true;
  }
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
  JoinAt(loops, at);
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
