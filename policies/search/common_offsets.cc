#include "policies/search/common_offsets.h"

#include "policies/search/stage_parts.h"

namespace kevin::search {
namespace {

int64_t ConstantOf(const ExprPtr& offset) {
  return offset->op == "sum" || offset->op == "constant" ? offset->integer : 0;
}

}  // namespace

std::map<int, int64_t> TakeCommonOffsets(const Program& program, Stage& stage,
                                         const std::function<int64_t(int buffer)>& alignment) {
  std::map<int, int64_t> common;
  const auto note = [&](int buffer, const ExprPtr& offset) {
    const int64_t constant = ConstantOf(offset);
    const int64_t elements = program.buffers.at(static_cast<size_t>(buffer)).elements;
    // What a guard excludes may be read at the new beginning.
    const bool fits =
        constant > 0 && constant % alignment(buffer) == 0 && constant < elements && offset->low >= constant;
    const auto [found, is_new] = common.try_emplace(buffer, fits ? constant : 0);
    if (!is_new && found->second != constant) found->second = 0;
    if (!fits) found->second = 0;
  };
  ForEachExpr(std::as_const(stage), [&](const ExprPtr& expr) {
    for (const Expr* node : Nodes(expr)) {
      if (node->op == "load") note(node->id, node->args[0]);
    }
  });
  ForEachStores(stage, [&](std::vector<Store>& stores) {
    for (const Store& store : stores) note(store.buffer, store.offset);
  });
  std::erase_if(common, [](const auto& one) { return one.second == 0; });
  if (common.empty()) return common;
  const std::function<ExprPtr(const Expr&)> replace = [&](const Expr& node) -> ExprPtr {
    const auto found = node.op == "load" ? common.find(node.id) : common.end();
    if (found == common.end()) return nullptr;
    return Load(node.id, node.type, AddInt(Substitute(node.args[0], replace), Int(-found->second)));
  };
  ForEachExpr(stage, [&](ExprPtr& expr) { expr = Substitute(expr, replace); });
  ForEachStores(stage, [&](std::vector<Store>& stores) {
    for (Store& store : stores) {
      const auto found = common.find(store.buffer);
      if (found != common.end()) store.offset = AddInt(store.offset, Int(-found->second));
    }
  });
  return common;
}

}  // namespace kevin::search
