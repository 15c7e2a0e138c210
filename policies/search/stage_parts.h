#pragma once
// Inside the passes over programs: the loops and expressions of a stage, whatever its kind.

#include <functional>
#include <map>
#include <vector>

#include "policies/search/program.h"

namespace kevin::search {

// Every list of loops of the stage itself; not those of a Repeat's body.
std::vector<std::vector<Loop>*> LoopListsOf(Stage& stage);
// Every expression, none null; of a Repeat those of its body.
void ForEachExpr(Stage& stage, const std::function<void(ExprPtr&)>& visit);
void ForEachExpr(const Stage& stage, const std::function<void(const ExprPtr&)>& visit);
// Every list of stores; of a Repeat those of its body.
void ForEachStores(Stage& stage, const std::function<void(std::vector<Store>&)>& visit);
// div and mod in all expressions of the stage, equal ones of one expression once.
int CountDivisions(const Stage& stage);

// How an expression uses two neighbouring loops that may become one.
struct LoopPairUse {
  // Elsewhere than in c * (second.extent * first + second), and directly below a division.
  bool is_apart = false;
  bool is_divided = false;  // a div or mod has one of them below it
};
LoopPairUse UseOfLoopPair(const ExprPtr& expr, const Loop& first, const Loop& second);

// Joins neighbouring loops that always occur together, and removes those of extent 1.
void MergeLoops(Stage& stage);

// Takes the stages out of the loop's body that no later iteration needs, as stages over all iterations that run after
// the loop. Buffers that lie between both parts get a place for each iteration.
std::vector<Stage> TakeStagesAfterLoop(Repeat& repeat, std::vector<Buffer>& buffers,
                                       const std::function<Loop(int64_t)>& new_loop);

// Variables by their expressions.
using Replacement = std::map<int, ExprPtr>;
ExprPtr Replace(const ExprPtr& expr, const Replacement& variables);
// second.extent * first + second = joined, where the pair is used in no other way.
Replacement JoinedPair(const Loop& first, const Loop& second, int joined);

}  // namespace kevin::search
