#include "policies/search/stage_use.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>

#include "policies/search/stage_parts.h"

namespace kevin::search {
namespace {

size_t DigestOf(const Stage& stage) {
  Stage& open = const_cast<Stage&>(stage);
  std::string text = std::to_string(stage.work.index());
  for (const std::vector<Loop>* loops : LoopListsOf(open)) {
    for (const Loop& loop : *loops) text += fmt::format(" {}:{}", loop.variable, loop.extent);
    text += ";";
  }
  if (const auto* reduction = std::get_if<Reduction>(&stage.work)) {
    for (const Accumulator& one : reduction->accumulators)
      text += fmt::format(" {}{}@{}", one.op, one.result, one.step);
  }
  if (const auto* scan = std::get_if<Scan>(&stage.work)) {
    text += fmt::format(" {}:{} {}{}{}", scan->along.variable, scan->along.extent, scan->op, scan->reverse,
                        scan->exclusive);
  }
  if (const auto* attention = std::get_if<Attention>(&stage.work))
    text += fmt::format(" {}{}", attention->softmax, attention->causal);
  ForEachExpr(stage, [&](const ExprPtr& expr) { text += expr->key; });
  ForEachStores(open, [&](std::vector<Store>& stores) {
    text += ";";
    for (const Store& store : stores) text += fmt::format(">{}{}", store.buffer, store.guard ? "?" : "");
  });
  return std::hash<std::string>()(text);
}

}  // namespace

StageUse StageUseOf(const Stage& stage) {
  StageUse use{BuffersRead(stage), BuffersWritten(stage), DigestOf(stage)};
  std::sort(use.reads.begin(), use.reads.end());
  std::sort(use.writes.begin(), use.writes.end());
  return use;
}

bool Intersects(const std::vector<int>& a, const std::vector<int>& b) {
  for (size_t i = 0, j = 0; i < a.size() && j < b.size();) {
    if (a[i] == b[j]) return true;
    a[i] < b[j] ? ++i : ++j;
  }
  return false;
}

}  // namespace kevin::search
