// Whether the points of a stage, which run in any order, are independent of one another.

#include <algorithm>
#include <set>

#include "policies/search/forwarding.h"

namespace kevin::search {
namespace {

// --- Input-outputs ---

bool LoadsOtherPlace(const ExprPtr& expr, int buffer, const std::string& place) {
  if (!expr) return false;
  const std::vector<const Expr*> nodes = Nodes(expr);
  return std::any_of(nodes.begin(), nodes.end(), [&](const Expr* node) {
    return node->op == "load" && node->id == buffer && node->args[0]->key != place;
  });
}

bool Loads(const ExprPtr& expr, int buffer) { return LoadsOtherPlace(expr, buffer, ""); }

// What the stage reads besides its stores. Accumulators of a reduction are complete, for a row, before that row is stored.
bool ReadsOutsideStores(Stage& stage, int buffer, const std::string& place) {
  if (const auto* reduction = std::get_if<Reduction>(&stage.work)) {
    return std::any_of(reduction->accumulators.begin(), reduction->accumulators.end(),
                       [&](const Accumulator& one) { return LoadsOtherPlace(one.value, buffer, place); });
  }
  std::vector<ExprPtr> in_stores;
  ForEachStores(stage, [&](std::vector<Store>& stores) {
    for (const Store& store : stores) {
      for (const ExprPtr& expr : {store.offset, store.value, store.guard}) in_stores.push_back(expr);
    }
  });
  bool reads = false;
  ForEachExpr(std::as_const(stage), [&](const ExprPtr& expr) {
    const bool is_of_store = std::find(in_stores.begin(), in_stores.end(), expr) != in_stores.end();
    reads |= !is_of_store && Loads(expr, buffer);
  });
  return reads;
}

bool IsSafeFor(Stage& stage, int buffer) {
  const Store* own = nullptr;
  int writes = 0;
  std::vector<Store*> others;
  ForEachStores(stage, [&](std::vector<Store>& stores) {
    for (Store& store : stores) {
      if (store.buffer == buffer) {
        own = &store;
        ++writes;
      } else {
        others.push_back(&store);
      }
    }
  });
  if (writes != 1) return writes == 0;
  if (Loads(own->offset, buffer) || LoadsOtherPlace(own->value, buffer, own->offset->key) ||
      LoadsOtherPlace(own->guard, buffer, own->offset->key))
    return false;
  for (const Store* other : others) {
    if (Loads(other->offset, buffer) || Loads(other->value, buffer) ||
        (other->guard && Loads(other->guard, buffer)))
      return false;
  }
  return !ReadsOutsideStores(stage, buffer, own->offset->key);
}

// --- Places of one buffer ---

// Whether two offsets are never equal, each at any point of the stage's own loops `own`. Variables of loops around the
// stage have one value in both.
class Places {
 public:
  explicit Places(std::set<int> own) : own_(std::move(own)) {}

  bool AreApart(const ExprPtr& a, const ExprPtr& b) const {
    if (ApartByRanges(a, b)) return true;
    // Two places that a loop around the stage uses in turn.
    for (const Expr* node : Nodes(a)) {
      if (node->op != "variable" || own_.count(node->id) || !Uses(b, node->id)) continue;
      bool are_apart = true;
      for (const int64_t odd : {0, 1}) {
        const ExprPtr time = AddInt(Scaled(Variable(node->id, node->high / 2 + 1), 2), Int(odd));
        const Replacement at_time = {{node->id, time}};
        are_apart = are_apart && ApartByRanges(Replace(a, at_time), Replace(b, at_time));
      }
      if (are_apart) return true;
    }
    return false;
  }

 private:
  bool ApartByRanges(ExprPtr a, ExprPtr b) const {
    RemoveCommon(a, b);
    const auto apart = [](const ExprPtr& x, const ExprPtr& y) {
      return x->high < y->low || y->high < x->low;
    };
    if (apart(a, b)) return true;
    // Parts of rows: of a concatenation along an inner dimension.
    for (const ExprPtr& one : {a, b}) {
      for (const int64_t row : one->coefficients) {
        if (row > 1 && apart(ModInt(a, row), ModInt(b, row))) return true;
      }
    }
    return false;
  }

  // Takes off both what does not depend on the stage's own loops in `a`.
  void RemoveCommon(ExprPtr& a, ExprPtr& b) const {
    const ExprPtr all = a;
    const auto remove = [&](const ExprPtr& term, int64_t factor) {
      const std::vector<const Expr*> nodes = Nodes(term);
      const bool is_common = std::none_of(nodes.begin(), nodes.end(), [&](const Expr* node) {
        return node->op == "load" || (node->op == "variable" && own_.count(node->id));
      });
      if (is_common) a = AddScaled(a, term, -factor), b = AddScaled(b, term, -factor);
    };
    if (all->op != "sum") return remove(all, 1);
    for (size_t i = 0; i < all->args.size(); ++i) remove(all->args[i], all->coefficients[i]);
  }

  std::set<int> own_;
};

std::set<int> OwnVariables(Stage& stage) {
  std::set<int> own;
  for (const std::vector<Loop>* loops : LoopListsOf(stage)) {
    for (const Loop& loop : *loops) own.insert(loop.variable);
  }
  if (const auto* scan = std::get_if<Scan>(&stage.work)) own.insert(scan->along.variable);
  return own;
}

// Whether no store to the buffer is at a place that the stage reads, or that another store writes.
bool HasPlacesApart(Stage& stage, int buffer) {
  std::vector<ExprPtr> written, read;
  ForEachStores(stage, [&](std::vector<Store>& stores) {
    for (const Store& store : stores) {
      if (store.buffer == buffer) written.push_back(store.offset);
    }
  });
  std::set<std::string> seen;
  ForEachExpr(std::as_const(stage), [&](const ExprPtr& expr) {
    ForEachNode(expr, [&](const Expr& node) {
      if (node.op == "load" && node.id == buffer && seen.insert(node.args[0]->key).second)
        read.push_back(node.args[0]);
    });
  });
  if (written.size() < 2 && read.empty()) return true;
  const Places places(OwnVariables(stage));
  for (size_t i = 0; i < written.size(); ++i) {
    const auto is_apart = [&](const ExprPtr& other) { return places.AreApart(written[i], other); };
    if (!std::all_of(read.begin(), read.end(), is_apart) ||
        !std::all_of(written.begin() + static_cast<long>(i) + 1, written.end(), is_apart))
      return false;
  }
  return true;
}

}  // namespace

bool HasIndependentPoints(const Program& program, const Stage& stage) {
  if (const auto* repeat = std::get_if<Repeat>(&stage.work)) {
    return std::all_of(repeat->body.begin(), repeat->body.end(),
                       [&](const Stage& inner) { return HasIndependentPoints(program, inner); });
  }
  for (const int buffer : BuffersWritten(stage)) {
    Stage& open = const_cast<Stage&>(stage);
    if (program.buffers[static_cast<size_t>(buffer)].is_inout ? !IsSafeFor(open, buffer)
                                                              : !HasPlacesApart(open, buffer))
      return false;
  }
  return true;
}

}  // namespace kevin::search
