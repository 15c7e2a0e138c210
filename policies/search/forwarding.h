#pragma once
// Inside the passes over programs: what a later stage reads of an earlier one, put in its place.

#include <map>
#include <optional>
#include <vector>

#include "policies/search/stage_parts.h"

namespace kevin::search {

// Replaces each load of a buffer of `stores` by the stored value. It does not fit where a load reads another place than
// that, or where a store has another guard than `guard`, which holds at all loads (null: none).
class Forwarding {
 public:
  explicit Forwarding(const std::vector<Store>& stores, const ExprPtr& guard = nullptr) : guard_(guard) {
    for (const Store& store : stores) by_buffer_[store.buffer].push_back(&store);
  }
  ExprPtr Of(const ExprPtr& expr) {
    if (!expr) return nullptr;
    return Substitute(expr, [&](const Expr& e) -> ExprPtr {
      if (e.op != "load") return nullptr;
      const auto found = by_buffer_.find(e.id);
      if (found == by_buffer_.end()) return nullptr;
      for (const Store* store : found->second) {
        if (store->offset->key != e.args[0]->key) continue;
        if (!store->guard || (guard_ && guard_->key == store->guard->key))
          return ToType(store->value, e.type);
      }
      fits_ = false;
      return nullptr;
    });
  }
  bool fits() const { return fits_; }

 private:
  ExprPtr guard_;
  std::map<int, std::vector<const Store*>> by_buffer_;
  bool fits_ = true;
};

// `stores` over other loops, in terms of the loops and results of the stage that has `made`, and where `guard` holds.
// Nothing where a read does not fit.
std::optional<std::vector<Store>> Moved(const std::vector<Store>& stores, const Replacement& replacement,
                                        const std::vector<Store>& made, const ExprPtr& guard);

// The loops of a pointwise stage from the offset at which it reads a buffer of `elements`: the read must visit each
// element once.
std::optional<Replacement> Invert(const std::vector<Loop>& loops, const ExprPtr& read, int64_t elements,
                                  const ExprPtr& offset);

// Removes stores that no stage of the program reads, from `stages`, which are those of the program or of a Repeat in it;
// then stages without stores and results that nothing uses.
void DropUnread(const Program& program, std::vector<Stage>& stages);
// What a loop leaves behind and is only copied to an output is written there at once.
void WriteOutputsDirectly(Program& program);

int64_t CountOf(const std::vector<Loop>& loops);
// The row-major position over the loops.
ExprPtr LinearOf(const std::vector<Loop>& loops);
// The variables of `loops` as parts of a row-major position.
void AddPositions(const std::vector<Loop>& loops, const ExprPtr& position, Replacement& replacement);

// Keeps intermediates of 16 bits in fp32 where a norm reads them (widen.cc).
void WidenNormInputs(Program& program);

}  // namespace kevin::search
