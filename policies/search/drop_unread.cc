// What nothing reads is not computed.

#include <algorithm>
#include <set>
#include <utility>

#include "policies/search/forwarding.h"

namespace kevin::search {
namespace {

void DropUnusedResults(Stage& stage) {
  auto* reduction = std::get_if<Reduction>(&stage.work);
  if (!reduction) return;
  for (bool changed = true; changed;) {
    std::set<int> used;
    ForEachExpr(std::as_const(stage), [&](const ExprPtr& expr) {
      for (const Expr* node : Nodes(expr)) {
        if (node->op == "result") used.insert(node->id);
      }
    });
    changed = std::erase_if(reduction->accumulators,
                            [&](const Accumulator& one) { return !used.count(one.result); }) > 0;
  }
}

bool Has(const std::vector<int>& buffers, int buffer) {
  return std::find(buffers.begin(), buffers.end(), buffer) != buffers.end();
}

// The buffer that stage j copies to an output as it is; -1: none.
int CopiedToOutput(const Program& program, size_t j) {
  const auto* work = std::get_if<Pointwise>(&program.stages[j].work);
  if (!work || work->stores.size() != 1 || work->stores[0].guard) return -1;
  const Store& store = work->stores[0];
  if (store.value->op != "load" || store.value->args[0]->key != store.offset->key) return -1;
  const Buffer &from = program.buffers[store.value->id], &to = program.buffers[store.buffer];
  for (size_t i = 0; i < j; ++i) {  // written earlier, it would be overwritten, or overwrite what others read
    const Stage& other = program.stages[i];
    if (Has(BuffersWritten(other), store.buffer) || Has(BuffersRead(other), store.buffer)) return -1;
  }
  const bool is_whole = from.elements == to.elements && CountOf(work->loops) == to.elements;
  return is_whole && to.is_output && from.argument < 0 && from.dtype == to.dtype ? store.value->id : -1;
}

}  // namespace

void DropUnread(const Program& program, std::vector<Stage>& stages) {
  for (bool changed = true; changed;) {
    changed = false;
    std::set<int> read;
    for (const Stage& stage : program.stages) {
      for (const int buffer : BuffersRead(stage)) read.insert(buffer);
    }
    for (Stage& stage : stages) {
      if (std::holds_alternative<Repeat>(stage.work)) continue;
      ForEachStores(stage, [&](std::vector<Store>& stores) {
        changed |= std::erase_if(stores, [&](const Store& store) {
                     return !program.buffers[store.buffer].is_output && !read.count(store.buffer);
                   }) > 0;
      });
    }
    changed |= std::erase_if(stages, [](const Stage& stage) { return BuffersWritten(stage).empty(); }) > 0;
  }
  for (Stage& stage : stages) DropUnusedResults(stage);
}

void WriteOutputsDirectly(Program& program) {
  for (size_t j = 0; j < program.stages.size(); ++j) {
    const int from = CopiedToOutput(program, j);
    if (from < 0) continue;
    int readers = 0;
    for (const Stage& stage : program.stages) readers += Has(BuffersRead(stage), from);
    if (readers != 1) continue;
    const int to = std::get<Pointwise>(program.stages[j].work).stores[0].buffer;
    program.stages.erase(program.stages.begin() + static_cast<long>(j));
    for (Stage& stage : program.stages) {
      ForEachStores(stage, [&](std::vector<Store>& stores) {
        for (Store& store : stores) {
          if (store.buffer == from) store.buffer = to;
        }
      });
    }
    --j;
  }
}

}  // namespace kevin::search
