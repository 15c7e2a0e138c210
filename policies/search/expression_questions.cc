// Walks over expressions: substitution, the nodes below one, strides, counts.

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>

#include "policies/search/expression_parts.h"

namespace kevin::search {
namespace {

ExprPtr Rebuild(const Expr& e, const std::vector<ExprPtr>& args) {
  if (e.op == "sum") return SumOfTerms(e.integer, args, e.coefficients);
  if (e.op == "div") return DivInt(args[0], e.integer);
  if (e.op == "mod") return ModInt(args[0], e.integer);
  if (e.op == "product") return MulInt(args[0], args[1]);
  if (e.op == "load") return Load(e.id, e.type, args[0]);
  if (e.op == "guard") return Guard(args[0], args[1], args[2]);
  if (e.op == "select") return Select(args[0], args[1], args[2]);
  if (e.op == "and") return And(args[0], args[1]);
  if (e.op == "or") return Or(args[0], args[1]);
  if (e.op == "not") return Not(args[0]);
  if (e.op == "to_float" || e.op == "to_int" || e.op == "to_bool") return ToType(args[0], e.type);
  if (e.type == Type::kBool) return Compare(e.op, args[0], args[1]);
  return args.size() == 1 ? Unary(e.op, args[0]) : Binary(e.op, args[0], args[1]);
}

// A set of expressions with open addressing: most have a few dozen nodes, and they are walked all the time. The keys are
// digests: their first bytes are a hash.
class NodeSet {
 public:
  explicit NodeSet(int size) {
    size_t slots = few_.size();
    while (slots < 2 * static_cast<size_t>(std::min(size, 1 << 10))) slots *= 2;
    if (slots == few_.size()) return;
    many_.resize(slots);
    slots_ = many_.data(), count_of_slots_ = slots;
  }
  NodeSet(const NodeSet&) = delete;
  NodeSet& operator=(const NodeSet&) = delete;
  // The slot of the node, or the empty one where it would be; of equal trees one stands for all.
  const Expr*& Slot(const Expr* e) {
    if (2 * count_ >= count_of_slots_) Grow();
    return SlotIn(slots_, count_of_slots_, e);
  }
  void NoteNew() { ++count_; }

 private:
  static const Expr*& SlotIn(const Expr** slots, size_t count, const Expr* e) {
    size_t at = 0;
    std::memcpy(&at, e->key.data(), std::min(sizeof at, e->key.size()));
    for (;; ++at) {
      const Expr*& slot = slots[at & (count - 1)];
      if (slot == nullptr || slot == e || slot->key == e->key) return slot;
    }
  }
  void Grow() {
    std::vector<const Expr*> larger(4 * count_of_slots_);
    for (size_t i = 0; i < count_of_slots_; ++i) {
      if (slots_[i] != nullptr) SlotIn(larger.data(), larger.size(), slots_[i]) = slots_[i];
    }
    many_ = std::move(larger);
    slots_ = many_.data(), count_of_slots_ = many_.size();
  }

  std::array<const Expr*, 32> few_{};
  std::vector<const Expr*> many_;
  const Expr** slots_ = few_.data();
  size_t count_of_slots_ = few_.size(), count_ = 0;
};

class Collection {
 public:
  explicit Collection(const ExprPtr& e) : seen_(e->size) {
    nodes.reserve(static_cast<size_t>(std::min(e->size, 64)));
    Add(e);
  }
  std::vector<const Expr*> nodes;

 private:
  void Add(const ExprPtr& e) {
    const Expr*& slot = seen_.Slot(e.get());
    if (slot != nullptr) return;
    slot = e.get();
    seen_.NoteNew();
    for (const ExprPtr& arg : e->args) Add(arg);
    nodes.push_back(e.get());
  }
  NodeSet seen_;
};

class Substitution {
 public:
  explicit Substitution(const std::function<ExprPtr(const Expr&)>& replace) : replace_(replace) {}
  ExprPtr Of(const ExprPtr& e) {
    if (const auto known = done_.find(e.get()); known != done_.end()) return known->second;
    ExprPtr result = replace_(*e);
    if (!result && e->args.empty()) return e;  // not worth an entry
    if (!result) {
      std::vector<ExprPtr> args;  // empty until one of them changes
      for (size_t i = 0; i < e->args.size(); ++i) {
        ExprPtr arg = Of(e->args[i]);
        if (args.empty() && arg == e->args[i]) continue;
        if (args.empty()) {
          args.reserve(e->args.size());
          args.assign(e->args.begin(), e->args.begin() + static_cast<long>(i));
        }
        args.push_back(std::move(arg));
      }
      result = args.empty() ? e : Rebuild(*e, args);
    }
    // A node with a single owner has no second way to it.
    if (e.use_count() > 1) done_[e.get()] = result;
    return result;
  }

 private:
  const std::function<ExprPtr(const Expr&)>& replace_;
  std::unordered_map<const Expr*, ExprPtr> done_;
};

bool UsesSmall(const Expr& e, int variable) {
  if (e.op == "variable") return e.id == variable;
  return std::any_of(e.args.begin(), e.args.end(),
                     [&](const ExprPtr& arg) { return UsesSmall(*arg, variable); });
}

}  // namespace

ExprPtr Substitute(const ExprPtr& expr, const std::function<ExprPtr(const Expr&)>& replace) {
  if (!expr) return nullptr;
  return Substitution(replace).Of(expr);
}

std::vector<const Expr*> Nodes(const ExprPtr& expr) {
  if (!expr) return {};
  Collection collection(expr);
  return std::move(collection.nodes);
}

bool Uses(const ExprPtr& expr, int variable) {
  if (!expr) return false;
  constexpr int kSmall = 64;  // nodes that are quickly walked, those with two ways to them twice
  if (expr->size <= kSmall) return UsesSmall(*expr, variable);
  const std::vector<const Expr*> nodes = Nodes(expr);
  return std::any_of(nodes.begin(), nodes.end(),
                     [&](const Expr* e) { return e->id == variable && e->op == "variable"; });
}

std::optional<int64_t> StrideOf(const ExprPtr& expr, int variable) {
  if (expr->op == "variable") return expr->id == variable ? 1 : 0;
  if (expr->op == "sum") {
    int64_t stride = 0;
    for (size_t i = 0; i < expr->args.size(); ++i) {
      const std::optional<int64_t> part = StrideOf(expr->args[i], variable);
      if (!part) return std::nullopt;
      stride += *part * expr->coefficients[i];
    }
    return stride;
  }
  if (Uses(expr, variable)) return std::nullopt;
  return 0;
}

int CostOf(const ExprPtr& expr) {
  static constexpr auto kCosts = [] {
    std::array<int, kOps> costs{};
    costs.fill(8);
    for (const Op free : {Op("constant"), Op("variable"), Op("load"), Op("result"), Op("sum"), Op("div"),
                          Op("mod"), Op("product"), Op("guard"), Op("to_float"), Op("to_int")})
      costs[free.number()] = 0;
    for (const Op cheap :
         {Op("add"), Op("sub"), Op("mul"), Op("neg"), Op("abs"), Op("minimum"), Op("maximum"), Op("select"),
          Op("less"), Op("not"), Op("and"), Op("less_equal"), Op("equal"), Op("or"), Op("not_equal")})
      costs[cheap.number()] = 1;
    return costs;
  }();
  int cost = 0;
  for (const Expr* e : Nodes(expr)) cost += kCosts[e->op.number()];
  return cost;
}

}  // namespace kevin::search
