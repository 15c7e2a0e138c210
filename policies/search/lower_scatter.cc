// Writes into a part of a tensor, and searches: a choice for each element, a stage that overwrites, or a reduction over
// what goes to an element.

#include <algorithm>

#include "policies/search/indexing_parts.h"

namespace kevin::search {
namespace {

// --- Writes into a part ---

void SelectScatter(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, "self"), source = at.Tensor(node, "src");
  const size_t dim = DimOf(at, node, "dim", x->shape.size());
  ExprPtr chosen = at.MovingInteger(node, "index", 0);
  if (chosen->high < 0) chosen = AddInt(chosen, Int(x->shape[dim]));
  const bool in_place = at.OverwriteInPlace(node, x, source->shape, [=](const Index& place) {
    Index own = place;
    own.insert(own.begin() + static_cast<long>(dim), chosen);
    return std::pair(own, source->at(place));
  });
  if (in_place) return;
  at.Set(node, at.Lazy(
                   x->dtype, x->shape,
                   [=](const Index& place) {
                     Index own = place;
                     own.erase(own.begin() + static_cast<long>(dim));
                     return Select(Compare("equal", place[dim], chosen),
                                   ToType(source->at(own), TypeOf(x->dtype)), x->at(place));
                   },
                   x->cost + source->cost + 1));
}

void SliceScatter(Lowering& at, const GraphNode& node) {
  if (at.CompleteWrite(node) >= 0) return at.SetCompleteWrite(node);
  const ValuePtr x = at.Tensor(node, "self"), source = at.Tensor(node, "src");
  const size_t dim = DimOf(at, node, "dim", x->shape.size());
  const int64_t size = x->shape[dim], step = at.Integer(node, "step", 1), count = source->shape[dim];
  int64_t start = at.Integer(node, "start", 0);
  start = std::clamp<int64_t>(start < 0 ? start + size : start, 0, size);
  if (count == 0) return at.Set(node, x);
  const bool in_place = at.OverwriteInPlace(node, x, source->shape, [=](const Index& place) {
    Index own = place;
    own[dim] = AddInt(Scaled(place[dim], step), Int(start));
    return std::pair(own, source->at(place));
  });
  if (in_place) return;
  at.Set(node, at.Lazy(
                   x->dtype, x->shape,
                   [=](const Index& place) {
                     const ExprPtr distance = AddInt(place[dim], Int(-start));
                     ExprPtr within = And(Compare("less_equal", Int(0), distance),
                                          Compare("less_equal", distance, Int((count - 1) * step)));
                     within = And(within, Compare("equal", ModInt(distance, step), Int(0)));
                     Index own = place;
                     own[dim] = DivInt(distance, step);
                     const ExprPtr zero = ToType(Float(0), TypeOf(x->dtype));
                     return Select(within, Guard(within, ToType(source->at(own), TypeOf(x->dtype)), zero),
                                   x->at(place));
                   },
                   x->cost + source->cost + 2));
}

void DiagonalScatter(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, "self"), source = at.Tensor(node, "src");
  const int64_t offset = at.Integer(node, "offset", 0);
  const size_t a = DimOf(at, node, "dim1", x->shape.size(), 0),
               b = DimOf(at, node, "dim2", x->shape.size(), 1);
  at.Set(node, at.Lazy(
                   x->dtype, x->shape,
                   [=](const Index& place) {
                     Index own;
                     for (size_t dim = 0; dim < place.size(); ++dim) {
                       if (dim != a && dim != b) own.push_back(place[dim]);
                     }
                     own.push_back(place[offset < 0 ? b : a]);
                     const ExprPtr within = Compare("equal", AddInt(place[a], Int(offset)), place[b]);
                     const ExprPtr zero = ToType(Float(0), TypeOf(x->dtype));
                     return Select(within, Guard(within, ToType(source->at(own), TypeOf(x->dtype)), zero),
                                   x->at(place));
                   },
                   x->cost + source->cost + 2));
}

// A copy of `x`, then a stage that writes to the places. Without the copy where `x` may be overwritten.
void SetOverwritten(Lowering& at, const GraphNode& node, const ValuePtr& x, const Shape& places,
                    const Lowering::Overwriting& element) {
  if (at.OverwriteInPlace(node, x, places, element)) return;
  const ValuePtr copy = at.Stored(at.Lazy(
      x->dtype, x->shape, [x](const Index& place) { return x->at(place); }, x->cost));
  const std::vector<Loop> loops = at.NewLoops(places);
  const auto [own, value] = element(Lowering::Vars(loops));
  at.Add(
      node.op,
      Pointwise{loops, {{copy->buffer, OffsetOf(own, x->shape), ToType(value, TypeOf(x->dtype)), nullptr}}});
  at.Set(node, copy);
}

void Scatter(Lowering& at, const GraphNode& node) {
  if (at.Has(node, "reduce")) throw Unsupported("`scatter` with a reduction has no stage");
  const ValuePtr x = at.Tensor(node, "self"), index = at.Tensor(node, "index");
  const ValuePtr source = at.Tensor(node, at.Has(node, "src") ? "src" : "value");
  const size_t dim = DimOf(at, node, "dim", x->shape.size());
  SetOverwritten(at, node, x, index->shape, [=, &node](const Index& place) {
    Index own = place;
    own[dim] = IndexAt(node, index, place, x->shape[dim]);
    return std::pair(own, source->shape.empty() ? source->at({}) : source->at(place));
  });
}

void IndexCopy(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, "self"), index = at.Tensor(node, "index"),
                 source = at.Tensor(node, "source");
  const size_t dim = DimOf(at, node, "dim", x->shape.size());
  SetOverwritten(at, node, x, source->shape, [=, &node](const Index& place) {
    Index own = place;
    own[dim] = IndexAt(node, index, index->shape.empty() ? Index() : Index{place[dim]}, x->shape[dim]);
    return std::pair(own, source->at(place));
  });
}

// x[mask] = value, with one value for all.
void MaskPut(Lowering& at, const GraphNode& node, const ValuePtr& mask, const ValuePtr& value) {
  const ValuePtr x = at.Tensor(node, "self");
  if (Count(value->shape) != 1)
    throw Unsupported("`" + node.op + "` of several values at a mask has no stage");
  const size_t rank = mask->shape.size();
  at.Set(node, at.Lazy(
                   x->dtype, x->shape,
                   [=](const Index& place) {
                     const Index chosen(place.begin(), place.begin() + static_cast<long>(rank));
                     const ExprPtr element = value->at(Index(value->shape.size(), Int(0)));
                     return Select(ToType(mask->at(chosen), Type::kBool), ToType(element, TypeOf(x->dtype)),
                                   x->at(place));
                   },
                   x->cost + mask->cost + 1));
}

void IndexPut(Lowering& at, const GraphNode& node) {
  if (at.Flag(node, "accumulate", false)) throw Unsupported("`index_put` that accumulates has no stage");
  const ValuePtr x = at.Tensor(node, "self"), values = at.Tensor(node, "values");
  const std::vector<ValuePtr> indices = at.Tensors(node, "indices");
  if (indices.size() == 1 && indices[0] && indices[0]->dtype == "bool")
    return MaskPut(at, node, indices[0], values);
  const IndexedPlaces places = PlacesOf(at, node, x->shape);
  SetOverwritten(at, node, x, places.shape, [=](const Index& place) {
    return std::pair(places.Of(place, x->shape), Lowering::AtBroadcast(values, place));
  });
}

// The elements of the source in their order at the places of the mask: a place takes the one of the number of places before it.
void MaskedScatter(Lowering& at, const GraphNode& node) {
  const Shape& shape = at.ResultOf(node).shape;
  const ValuePtr x = at.Expand(at.Tensor(node, "self"), shape),
                 mask = at.Expand(at.Tensor(node, "mask"), shape);
  const ValuePtr given = at.Cheap(at.Tensor(node, "source"), kReadCost);
  const int64_t size = Count(given->shape);
  const ValuePtr source = at.Reshape(given, {size});
  const ValuePtr counted = at.Running("sum", at.Reshape(mask, {Count(shape)}), 0, "int64");
  const ValuePtr so_far = at.Reshape(counted, shape);
  const Type type = TypeOf(x->dtype);
  at.Set(node, at.Lazy(
                   x->dtype, shape,
                   [=](const Index& place) {
                     const ExprPtr number = AddInt(so_far->at(place), Int(-1));
                     // torch refuses a source that is too short; a kernel must not read beyond it.
                     const ExprPtr is_taken =
                         And(ToType(mask->at(place), Type::kBool), Compare("less", number, Int(size)));
                     const ExprPtr element =
                         Guard(is_taken, ToType(source->at({number}), type), ToType(Float(0), type));
                     return Select(is_taken, element, x->at(place));
                   },
                   x->cost + mask->cost + source->cost + 3));
}

// Zeros, and the elements of `self` at their flat places of the last dims.
void MaxUnpool(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Plain(at.Tensor(node, "self")), indices = at.Plain(at.Tensor(node, "indices"));
  const Shape& shape = at.ResultOf(node).shape;
  const size_t spatial = node.op.ends_with("3d") ? 3 : 2, lead = shape.size() - spatial;
  const ExprPtr zero = ToType(Float(0), TypeOf(x->dtype));
  const ValuePtr zeros = at.Lazy(x->dtype, shape, [zero](const Index&) { return zero; });
  const Shape inner(shape.begin() + static_cast<long>(lead), shape.end());
  SetOverwritten(at, node, zeros, x->shape, [=, &node](const Index& place) {
    Index own(place.begin(), place.begin() + static_cast<long>(lead));
    for (const ExprPtr& one : IndexOf(IndexAt(node, indices, place, Count(inner)), inner)) own.push_back(one);
    return std::pair(own, x->at(place));
  });
}

// --- Reductions over what goes to an element: every output reads all of the dim, so that no two write at one place ---

struct Arrivals {
  std::string op = "sum";  // also "product", "max", "min", "mean"
  bool with_self = true;
  size_t dim = 0;
  int64_t count = 0;                               // of the dim in the source
  std::function<ExprPtr(const Index&)> at, value;  // where an element of the source goes, and what it adds
  ExprPtr within;                                  // null: everywhere
};

ExprPtr JoinedBy(const std::string& op, const ExprPtr& a, const ExprPtr& b) {
  if (op == "product") return Binary("mul", a, b);
  if (op == "max" || op == "min") return Binary(op == "max" ? Op("maximum") : Op("minimum"), a, b);
  return Binary("add", a, b);
}

ValuePtr Arrived(Lowering& at, const GraphNode& node, const ValuePtr& x,
                 const std::function<void(const Index& place, Arrivals&)>& describe) {
  const std::vector<Loop> outer = at.NewLoops(x->shape);
  const Index out = Lowering::Vars(outer);
  Arrivals arrivals;
  describe(out, arrivals);
  const std::vector<Loop> inner = at.NewLoops({arrivals.count});
  Index place = out;
  place[arrivals.dim] = Lowering::Var(inner[0]);
  const ExprPtr within = arrivals.within ? arrivals.within : Bool(true);
  const ExprPtr hit = Compare("equal", Guard(within, arrivals.at(place), Int(-1)), out[arrivals.dim]);
  const bool is_mean = arrivals.op == "mean";
  const std::string op = is_mean ? "sum" : arrivals.op;
  const double neutral = op == "product" ? 1 : op == "max" ? -kInfinity : op == "min" ? kInfinity : 0;
  std::vector<Accumulator> accumulators = {
      {op, Guard(hit, ToType(arrivals.value(place), Type::kFloat), Float(neutral)), 0, 0}};
  const bool counts = is_mean || !arrivals.with_self;
  if (counts) accumulators.push_back({"sum", Select(hit, Float(1), Float(0)), 1, 0});
  const ExprPtr self = ToType(x->at(out), Type::kFloat);
  ExprPtr total = arrivals.with_self ? JoinedBy(op, self, Result(0)) : Result(0);
  if (is_mean)
    total = Binary(
        "div_float", total,
        arrivals.with_self ? Binary("add", Result(1), Float(1)) : Binary("maximum", Result(1), Float(1)));
  if (!arrivals.with_self) total = Select(Compare("equal", Result(1), Float(0)), self, total);
  const ValuePtr stored = at.NewStored(node.op, x->dtype, x->shape);
  at.Add(
      node.op,
      Reduction{outer, inner, accumulators, {{stored->buffer, OffsetOf(out, x->shape), total, nullptr}}, {}});
  return stored;
}

std::string CombinationOf(Lowering& at, const GraphNode& node) {
  const std::string word = at.Word(node, "reduce", "sum");
  if (word == "sum" || word == "mean") return word;
  if (word == "prod") return "product";
  if (word == "amax" || word == "amin") return word.substr(1);
  throw Unsupported("`" + node.op + "` by " + word + " has no stage");
}

void ScatterReduce(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, "self"), index = at.Plain(at.Tensor(node, "index"));
  const ValuePtr source = at.Plain(at.Tensor(node, "src"));
  at.Set(node, Arrived(at, node, x, [&](const Index& out, Arrivals& arrivals) {
           arrivals.dim = DimOf(at, node, "dim", x->shape.size());
           arrivals.op = CombinationOf(at, node);
           arrivals.with_self = at.Flag(node, "include_self", true);
           arrivals.count = index->shape[arrivals.dim];
           arrivals.within = Bool(true);
           for (size_t i = 0; i < out.size(); ++i) {
             if (i == arrivals.dim) continue;
             arrivals.within = And(arrivals.within, Compare("less", out[i], Int(index->shape[i])));
           }
           arrivals.at = [=, &node](const Index& place) {
             return IndexAt(node, index, place, x->shape[arrivals.dim]);
           };
           arrivals.value = [=](const Index& place) { return source->at(place); };
         }));
}

void IndexAdd(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, "self"), index = at.Plain(at.Tensor(node, "index"));
  const ValuePtr source = at.Plain(at.Tensor(node, "source"));
  const double alpha = at.Number(node, "alpha", 1);
  at.Set(node, Arrived(at, node, x, [&](const Index&, Arrivals& arrivals) {
           const size_t dim = DimOf(at, node, "dim", x->shape.size());
           arrivals.dim = dim;
           arrivals.op = CombinationOf(at, node);
           arrivals.with_self = at.Flag(node, "include_self", true);
           arrivals.count = source->shape[dim];
           arrivals.at = [=, &node](const Index& place) {
             return IndexAt(node, index, index->shape.empty() ? Index() : Index{place[dim]}, x->shape[dim]);
           };
           arrivals.value = [=](const Index& place) {
             return Binary("mul", ToType(source->at(place), Type::kFloat), Float(alpha));
           };
         }));
}

void IndexFill(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, "self"), index = at.Plain(at.Tensor(node, "index"));
  const ValuePtr value = at.Tensor(node, "value");
  const size_t dim = DimOf(at, node, "dim", x->shape.size());
  const ValuePtr hits = at.Lazy("bool", {x->shape[dim], Count(index->shape)}, [=, &node](const Index& place) {
    const Index one = index->shape.empty() ? Index() : Index{place[1]};
    return Compare("equal", IndexFromEndAt(node, index, one, x->shape[dim]), place[0]);
  });
  const ValuePtr chosen = at.Reduce("any", hits, {1}, false, "bool");
  at.Set(node, at.Lazy(
                   x->dtype, x->shape,
                   [=](const Index& place) {
                     return Select(ToType(chosen->at({place[dim]}), Type::kBool),
                                   ToType(value->at({}), TypeOf(x->dtype)), x->at(place));
                   },
                   x->cost + 1));
}

// --- Searches: reductions over all elements that may be found ---

void IsIn(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Plain(at.Tensor(node, "elements")), given = at.Tensor(node, "test_elements");
  const ValuePtr flat = at.Plain(at.Reshape(given, {Count(given->shape)}));
  const bool inverts = at.Flag(node, "invert", false);
  Shape shape = x->shape;
  shape.push_back(flat->shape[0]);
  const Type type =
      TypeOf(x->dtype) == Type::kFloat || TypeOf(flat->dtype) == Type::kFloat ? Type::kFloat : Type::kInt;
  const ValuePtr equal = at.Lazy("bool", shape, [=](const Index& place) {
    const Index own(place.begin(), place.end() - 1);
    return Compare("equal", ToType(x->at(own), type), ToType(flat->at({place.back()}), type));
  });
  const int last = static_cast<int>(x->shape.size());
  at.Set(node, at.Reduce("any", equal, {last}, false, "bool",
                         [inverts](const ExprPtr& any) { return inverts ? Not(any) : any; }));
}

// The number of limits below a value, or not above it; the limits ascend.
void CountLimits(Lowering& at, const GraphNode& node) {
  const bool is_bucketize = node.op == "bucketize";
  if (at.Has(node, "sorter")) throw Unsupported("`searchsorted` with a sorter has no stage");
  const ValuePtr x = at.Plain(at.Tensor(node, "self"));
  const ValuePtr limits = at.Plain(at.Tensor(node, is_bucketize ? "boundaries" : "sorted_sequence"));
  const bool right = at.Flag(node, "right", false) || at.Word(node, "side", "left") == "right";
  Shape shape = x->shape;
  shape.push_back(limits->shape.back());
  const std::string dtype = at.ResultOf(node).dtype;
  const ValuePtr below = at.Lazy(dtype, shape, [=](const Index& place) {
    const Index own(place.begin(), place.end() - 1);
    Index row;
    if (limits->shape.size() > 1) row.assign(own.begin(), own.end() - 1);
    row.push_back(place.back());
    const ExprPtr value = ToType(x->at(own), Type::kFloat), limit = ToType(limits->at(row), Type::kFloat);
    return ToType(Compare(right ? Op("less_equal") : Op("less"), limit, value), Type::kInt);
  });
  at.Set(node, at.Reduce("sum", below, {static_cast<int>(x->shape.size())}, false, dtype));
}

}  // namespace

IndexingFunction ScatterNamed(const std::string& op) {
  static const std::map<std::string, IndexingFunction> kTable = {{"select_scatter", SelectScatter},
                                                                 {"slice_scatter", SliceScatter},
                                                                 {"diagonal_scatter", DiagonalScatter},
                                                                 {"scatter", Scatter},
                                                                 {"scatter_add", ScatterReduce},
                                                                 {"scatter_reduce", ScatterReduce},
                                                                 {"index_put", IndexPut},
                                                                 {"index_copy", IndexCopy},
                                                                 {"index_add", IndexAdd},
                                                                 {"index_reduce", IndexAdd},
                                                                 {"index_fill", IndexFill},
                                                                 {"masked_scatter", MaskedScatter},
                                                                 {"max_unpool2d", MaxUnpool},
                                                                 {"max_unpool3d", MaxUnpool},
                                                                 {"isin", IsIn},
                                                                 {"bucketize", CountLimits},
                                                                 {"searchsorted", CountLimits}};
  const auto found = kTable.find(op);
  return found == kTable.end() ? nullptr : found->second;
}

}  // namespace kevin::search
