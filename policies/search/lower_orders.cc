// Sorting, and the largest or smallest elements along a dimension: an element's place is the number of elements that come
// before it, so that equal ones keep their order. A row of n elements takes n * n comparisons.

#include <fmt/format.h>

#include "policies/search/indexing_parts.h"

namespace kevin::search {
namespace {

constexpr int64_t kMostOrdered = 4096;  // of a row: above, a sort takes fewer steps

// Elements at places `first` to `first + count - 1` of the order along `dim`.
struct OrderPart {
  size_t dim = 0;
  int64_t first = 0, count = 0;
  bool descends = false;
};

// Whether a comes before b; NaN counts as the largest.
ExprPtr ComesBefore(const ExprPtr& a, const ExprPtr& b) {
  const ExprPtr less = Compare("less", a, b);
  if (a->type != Type::kFloat) return less;
  return Or(less, And(Compare("not_equal", b, b), Compare("equal", a, a)));
}

ExprPtr AreEqual(const ExprPtr& a, const ExprPtr& b) {
  const ExprPtr equal = Compare("equal", a, b);
  if (a->type != Type::kFloat) return equal;
  return Or(equal, And(Compare("not_equal", a, a), Compare("not_equal", b, b)));
}

ValuePtr RanksOf(Lowering& at, const ValuePtr& x, const OrderPart& part) {
  const Type type = TypeOf(x->dtype) == Type::kFloat ? Type::kFloat : Type::kInt;
  Shape shape = x->shape;
  shape.push_back(x->shape[part.dim]);
  const ValuePtr before = at.Lazy("int64", shape, [=](const Index& place) {
    const Index own(place.begin(), place.end() - 1);
    Index other = own;
    other[part.dim] = place.back();
    const ExprPtr mine = ToType(x->at(own), type), its = ToType(x->at(other), type);
    const ExprPtr is_before = part.descends ? ComesBefore(mine, its) : ComesBefore(its, mine);
    const ExprPtr is_first = And(AreEqual(its, mine), Compare("less", other[part.dim], own[part.dim]));
    return ToType(Or(is_before, is_first), Type::kInt);
  });
  return at.Reduce("sum", before, {static_cast<int>(x->shape.size())}, false, "int64");
}

// The values as result `value` of the node, their places in x as result `place`; -1: none.
void SetOrdered(Lowering& at, const GraphNode& node, const ValuePtr& given, const OrderPart& part,
                const Shape& shape, int value, int place) {
  if (given->shape.empty()) throw Unsupported("`" + node.op + "` of a number has no stage");
  const int64_t size = given->shape[part.dim];
  if (size > kMostOrdered) {
    throw Unsupported(fmt::format("`{}` of rows of {} elements has no stage: {} are the most", node.op, size,
                                  kMostOrdered));
  }
  const ValuePtr x = at.Plain(given);
  const ValuePtr ranks = at.Stored(RanksOf(at, x, part));
  const std::vector<Loop> loops = at.NewLoops(x->shape);
  const Index here = Lowering::Vars(loops);
  const ExprPtr rank = AddInt(ranks->at(here), Int(-part.first));
  Index there = here;
  there[part.dim] = rank;
  Shape kept = x->shape;
  kept[part.dim] = part.count;
  const ExprPtr guard =
      part.count == size ? nullptr
                         : And(Compare("less_equal", Int(0), rank), Compare("less", rank, Int(part.count)));
  std::vector<Store> stores;
  const auto add = [&](int result, const std::string& dtype, const ExprPtr& element) {
    if (result < 0 || !at.IsUsed(node, static_cast<size_t>(result))) return;
    const ValuePtr stored = at.NewStored(node.op, dtype, kept);
    stores.push_back({stored->buffer, OffsetOf(there, kept), element, guard});
    at.Set(node, at.Reshape(stored, shape), static_cast<size_t>(result));
  };
  add(value, x->dtype, x->at(here));
  add(place, "int64", here[part.dim]);
  at.Add(node.op, Pointwise{loops, stores});
}

void Sort(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, "self");
  const bool is_argument = node.op == "argsort";
  const size_t dim = DimOf(at, node, "dim", x->shape.size(), node.op == "msort" ? 0 : -1);
  const int64_t size = x->shape.empty() ? 1 : x->shape[dim];
  SetOrdered(at, node, x, {dim, 0, size, at.Flag(node, "descending", false)}, x->shape, is_argument ? -1 : 0,
             is_argument               ? 0
             : node.results.size() > 1 ? 1
                                       : -1);
}

void TopK(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, "self");
  const size_t dim = DimOf(at, node, "dim", x->shape.size(), -1);
  SetOrdered(at, node, x, {dim, 0, at.Integer(node, "k", 1), at.Flag(node, "largest", true)},
             at.ResultOf(node).shape, 0, 1);
}

void KthValue(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, "self");
  const size_t dim = DimOf(at, node, "dim", x->shape.size(), -1);
  SetOrdered(at, node, x, {dim, at.Integer(node, "k", 1) - 1, 1, false}, at.ResultOf(node).shape, 0, 1);
}

}  // namespace

IndexingFunction OrderNamed(const std::string& op) {
  static const std::map<std::string, IndexingFunction> kTable = {
      {"sort", Sort}, {"argsort", Sort}, {"msort", Sort}, {"topk", TopK}, {"kthvalue", KthValue}};
  const auto found = kTable.find(op);
  return found == kTable.end() ? nullptr : found->second;
}

}  // namespace kevin::search
