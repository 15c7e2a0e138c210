// Sorting, medians, and the largest or smallest elements along a dimension: an element's place is the number of elements that
// come before it, so that equal ones keep their order. A row of n elements takes n * n comparisons. The few largest of a long
// row are found one after another, each in a pass over the row.

#include <fmt/format.h>

#include "policies/search/indexing_parts.h"

namespace kevin::search {
namespace {

constexpr int64_t kMostOrdered = 4096;  // of a row: above, a sort takes fewer steps
constexpr int64_t kMostPasses = 64;     // over a longer row

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

// The `count` largest of long rows: each pass takes the first that comes after the one before it in the order.
void SetLargest(Lowering& at, const GraphNode& node, const ValuePtr& given, size_t dim, int64_t count) {
  const ValuePtr x = at.Plain(given);
  const Loop along = at.NewLoop(x->shape[dim]);
  Shape kept = x->shape;
  kept.erase(kept.begin() + static_cast<long>(dim));
  const std::vector<Loop> outer = at.NewLoops(kept);
  const Index rows = Lowering::Vars(outer);
  Index own = rows;
  own.insert(own.begin() + static_cast<long>(dim), Lowering::Var(along));
  const ExprPtr element = ToType(x->at(own), Type::kFloat), place = Lowering::Var(along);
  kept.push_back(count);
  const ValuePtr values = at.NewStored(node.op, "float32", kept),
                 places = at.NewStored(node.op, "int64", kept);
  for (int64_t i = 0; i < count; ++i) {
    const auto slot = [&](int64_t number) {
      Index index = rows;
      index.push_back(Int(number));
      return index;
    };
    ExprPtr is_left = Bool(true);
    if (i > 0) {
      const ExprPtr before = values->at(slot(i - 1));
      is_left = Or(ComesBefore(element, before),
                   And(AreEqual(element, before), Compare("less", places->at(slot(i - 1)), place)));
    }
    const ExprPtr candidate = Select(is_left, element, Float(-kInfinity));
    const ExprPtr is_chosen = And(is_left, AreEqual(element, Result(0)));
    const ExprPtr offset = OffsetOf(slot(i), kept);
    at.Add(node.op, Reduction{outer,
                              {along},
                              {{"max", candidate, 0, 0},
                               {"min", Select(is_chosen, place, Int(along.extent - 1)), 1, 1}},
                              {{values->buffer, offset, Result(0), nullptr},
                               {places->buffer, offset, Result(1, Type::kInt), nullptr}},
                              {}});
  }
  std::vector<int> order;
  for (size_t d = 0; d + 1 < kept.size(); ++d) order.push_back(static_cast<int>(d));
  order.insert(order.begin() + static_cast<long>(dim), static_cast<int>(kept.size()) - 1);
  const ValuePtr typed = at.Map({values}, x->dtype, Type::kFloat, [](const auto& a) { return a[0]; });
  if (at.IsUsed(node, 0)) at.Set(node, at.Permute(typed, order), 0);
  if (at.IsUsed(node, 1)) at.Set(node, at.Permute(places, order), 1);
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
  const int64_t count = at.Integer(node, "k", 1);
  const bool is_largest = at.Flag(node, "largest", true);
  const bool is_long = !x->shape.empty() && x->shape[dim] > kMostOrdered;
  if (is_long && is_largest && count <= kMostPasses && IsFloating(x->dtype))
    return SetLargest(at, node, x, dim, count);
  SetOrdered(at, node, x, {dim, 0, count, is_largest}, at.ResultOf(node).shape, 0, 1);
}

void KthValue(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, "self");
  const size_t dim = DimOf(at, node, "dim", x->shape.size(), -1);
  SetOrdered(at, node, x, {dim, at.Integer(node, "k", 1) - 1, 1, false}, at.ResultOf(node).shape, 0, 1);
}

// The lower one of two in the middle. Of a row with NaN it is NaN, unless these do not count.
void Median(Lowering& at, const GraphNode& node) {
  const bool skips = node.op == "nanmedian", is_whole = !at.Has(node, "dim");
  ValuePtr x = at.Tensor(node, "self");
  if (is_whole || x->shape.empty()) x = at.Reshape(x, {Count(x->shape)});
  const size_t dim = is_whole ? 0 : DimOf(at, node, "dim", x->shape.size(), -1);
  const int64_t size = x->shape[dim];
  if (size > kMostOrdered)
    throw Unsupported(fmt::format("`{}` of rows of {} elements has no stage: {} are the most", node.op, size,
                                  kMostOrdered));
  x = at.Plain(x);
  const Type type = TypeOf(x->dtype);
  const std::vector<int> dims = {static_cast<int>(dim)};
  const ValuePtr ranks = at.Stored(RanksOf(at, x, {dim, 0, size, false}));
  const ValuePtr there = at.Map(
      {x}, "int64", type, [](const auto& a) { return ToType(Compare("equal", a[0], a[0]), Type::kInt); });
  const ValuePtr known = at.Reduce("sum", there, dims, true, "int64");
  const ValuePtr middle = at.Map({known}, "int64", Type::kInt, [=](const auto& a) {
    const ExprPtr lower = DivInt(AddInt(a[0], Int(-1)), 2);
    if (skips) return Select(Compare("less", Int(0), a[0]), lower, Int(0));
    return Select(Compare("less", a[0], Int(size)), a[0],
                  Int((size - 1) / 2));  // the first NaN, or the middle
  });
  const auto chosen = [&](const std::string& dtype, const std::function<ExprPtr(const Index&)>& element) {
    const ValuePtr masked = at.Lazy(
        dtype, x->shape,
        [=](const Index& place) {
          const ExprPtr is_middle = Compare("equal", ranks->at(place), Lowering::AtBroadcast(middle, place));
          return Select(is_middle, element(place), ToType(Float(0), TypeOf(dtype)));
        },
        3);
    return at.Reduce("sum", masked, dims, false, dtype);
  };
  if (at.IsUsed(node, 0))
    at.Set(node, at.Reshape(chosen(x->dtype, [x](const Index& place) { return x->at(place); }),
                            at.ResultOf(node).shape));
  if (at.IsUsed(node, 1))
    at.Set(node,
           at.Reshape(chosen("int64", [dim](const Index& place) { return place[dim]; }),
                      at.ResultOf(node, 1).shape),
           1);
}

}  // namespace

IndexingFunction OrderNamed(const std::string& op) {
  static const std::map<std::string, IndexingFunction> kTable = {
      {"sort", Sort},     {"argsort", Sort},     {"msort", Sort},       {"topk", TopK},
      {"median", Median}, {"nanmedian", Median}, {"kthvalue", KthValue}};
  const auto found = kTable.find(op);
  return found == kTable.end() ? nullptr : found->second;
}

}  // namespace kevin::search
