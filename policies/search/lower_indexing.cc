// Reads at indices that tensors hold (gather, embedding, index), diagonals, triangles, and writes into a part of a
// tensor. All but the writes are maps of indices without a stage.

#include <algorithm>
#include <map>

#include "policies/search/lowering.h"

namespace kevin::search {
namespace {

using IndexingFunction = void (*)(Lowering&, const GraphNode&);

size_t PositiveDim(int64_t dim, size_t rank) {
  return static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(rank) : dim);
}

size_t DimOf(Lowering& at, const GraphNode& node, const char* name, size_t rank, int64_t fallback = 0) {
  return PositiveDim(at.Integer(node, name, fallback), rank);
}

// torch counts from the end where an index is negative.
ExprPtr FromEnd(const ExprPtr& index, int64_t size) {
  return Select(Compare("less", index, Int(0)), AddInt(index, Int(size)), index);
}

ExprPtr IntAt(const ValuePtr& value, const Index& index) {
  return ToType(Lowering::AtBroadcast(value, index), Type::kInt);
}

// What is read many times, or where it cannot be known, should cost little.
constexpr int kReadCost = 12;

// --- Reads ---

void Gather(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Cheap(at.Tensor(node, "self"), kReadCost), index = at.Tensor(node, "index");
  const Shape& shape = at.ResultOf(node).shape;
  if (x->shape.empty()) return at.Set(node, at.Expand(x, shape));
  const size_t dim = DimOf(at, node, "dim", x->shape.size());
  at.Set(node, at.Lazy(
                   x->dtype, shape,
                   [=](const Index& place) {
                     Index own = place;
                     own[dim] = IntAt(index, place);
                     return x->at(own);
                   },
                   x->cost + index->cost));
}

void TakeAlongDim(Lowering& at, const GraphNode& node) {
  ValuePtr x = at.Cheap(at.Tensor(node, "self"), kReadCost);
  ValuePtr index = at.Tensor(node, "indices");
  if (!at.Has(node, "dim")) {
    x = at.Reshape(x, {Count(x->shape)});
    index = at.Reshape(index, {Count(index->shape)});
  }
  const size_t dim = DimOf(at, node, "dim", x->shape.size());
  const int64_t size = x->shape[dim];
  at.Set(node, at.Lazy(
                   x->dtype, at.ResultOf(node).shape,
                   [=](const Index& place) {
                     Index own = place;
                     own[dim] = FromEnd(IntAt(index, place), size);
                     return Lowering::AtBroadcast(x, own);
                   },
                   x->cost + index->cost));
}

void Take(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, "self"), index = at.Tensor(node, "index");
  const ValuePtr flat = at.Reshape(at.Cheap(x, kReadCost), {Count(x->shape)});
  at.Set(node,
         at.Lazy(
             x->dtype, index->shape,
             [=](const Index& place) { return flat->at({FromEnd(IntAt(index, place), flat->shape[0])}); },
             flat->cost + index->cost));
}

void Embedding(Lowering& at, const GraphNode& node) {
  const ValuePtr weight = at.Cheap(at.Tensor(node, "weight"), kReadCost),
                 indices = at.Tensor(node, "indices");
  at.Set(node, at.Lazy(
                   weight->dtype, at.ResultOf(node).shape,
                   [=](const Index& place) {
                     const Index word(place.begin(), place.end() - 1);
                     return weight->at({ToType(indices->at(word), Type::kInt), place.back()});
                   },
                   weight->cost + indices->cost));
}

void IndexSelect(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Cheap(at.Tensor(node, "self"), kReadCost), index = at.Tensor(node, "index");
  if (x->shape.empty()) return at.Set(node, x);
  const size_t dim = DimOf(at, node, "dim", x->shape.size());
  at.Set(node, at.Lazy(
                   x->dtype, at.ResultOf(node).shape,
                   [=](const Index& place) {
                     Index own = place;
                     own[dim] = index->shape.empty() ? IntAt(index, {}) : IntAt(index, {place[dim]});
                     return x->at(own);
                   },
                   x->cost + index->cost));
}

// Where `x[a, :, b]` reads: the dims of the broadcast index tensors stand at `first`, in front where they are apart.
struct Places {
  std::vector<ValuePtr> indices;  // by dim of x; null: all of the dim
  size_t first = 0, rank = 0;     // of the dims of the index tensors in the result
  Shape shape;                    // of the result
  int cost = 0;

  Index Of(const Index& place, const Shape& from) const {
    const Index chosen(place.begin() + static_cast<long>(first),
                       place.begin() + static_cast<long>(first + rank));
    Index own;
    size_t next = 0;
    for (size_t dim = 0; dim < from.size(); ++dim) {
      if (indices[dim]) {
        own.push_back(FromEnd(IntAt(indices[dim], chosen), from[dim]));
        continue;
      }
      if (next == first) next += rank;
      own.push_back(place[next++]);
    }
    return own;
  }
};

Places PlacesOf(Lowering& at, const GraphNode& node, const Shape& from) {
  Places places;
  places.indices = at.Tensors(node, "indices");
  std::vector<ValuePtr> given;
  std::vector<size_t> dims;
  if (places.indices.size() > from.size()) throw Unsupported("`" + node.op + "` with a mask has no stage");
  places.indices.resize(from.size());
  for (size_t dim = 0; dim < from.size(); ++dim) {
    const ValuePtr& one = places.indices[dim];
    if (!one) continue;
    if (TypeOf(one->dtype) != Type::kInt) throw Unsupported("`" + node.op + "` with a mask has no stage");
    given.push_back(one);
    dims.push_back(dim);
    places.cost += one->cost;
  }
  if (dims.empty()) throw Unsupported("`" + node.op + "` without an index has no stage");
  const Shape chosen = Lowering::BroadcastShape(given);
  places.rank = chosen.size();
  const bool adjacent = dims.back() - dims.front() + 1 == dims.size();
  places.first = adjacent ? dims.front() : 0;
  for (size_t dim = 0; dim < from.size(); ++dim) {
    if (!places.indices[dim]) places.shape.push_back(from[dim]);
  }
  places.shape.insert(places.shape.begin() + static_cast<long>(places.first), chosen.begin(), chosen.end());
  return places;
}

void IndexOfTensors(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Cheap(at.Tensor(node, "self"), kReadCost);
  const Places places = PlacesOf(at, node, x->shape);
  at.Set(node,
         at.Lazy(
             x->dtype, places.shape, [=](const Index& place) { return x->at(places.Of(place, x->shape)); },
             x->cost + places.cost));
}

// --- Triangles and diagonals ---

void Triangle(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, "self");
  const ExprPtr diagonal = Int(at.Integer(node, "diagonal", 0));
  const bool upper = node.op == "triu";
  const ExprPtr zero = ToType(Float(0), TypeOf(x->dtype));
  at.Set(node, at.Lazy(
                   x->dtype, x->shape,
                   [=](const Index& place) {
                     const ExprPtr row = place[place.size() - 2], column = place.back();
                     const ExprPtr edge = AddInt(row, diagonal);
                     return Select(
                         upper ? Compare("less_equal", edge, column) : Compare("less_equal", column, edge),
                         x->at(place), zero);
                   },
                   x->cost + 1));
}

void Diagonal(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, "self");
  const bool is_diag = node.op == "diag";
  const int64_t offset = at.Integer(node, is_diag ? "diagonal" : "offset", 0);
  const size_t a = DimOf(at, node, "dim1", x->shape.size(), 0),
               b = DimOf(at, node, "dim2", x->shape.size(), 1);
  at.Set(node, at.Lazy(
                   x->dtype, at.ResultOf(node).shape,
                   [=](const Index& place) {
                     Index own;
                     for (size_t dim = 0, next = 0; dim < x->shape.size(); ++dim) {
                       own.push_back(dim == a   ? AddInt(place.back(), Int(std::max<int64_t>(-offset, 0)))
                                     : dim == b ? AddInt(place.back(), Int(std::max<int64_t>(offset, 0)))
                                                : place[next++]);
                     }
                     return x->at(own);
                   },
                   x->cost));
}

// Zeros but for one diagonal, that holds the last dim of `x`.
void OnDiagonal(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, "self");
  const Shape& shape = at.ResultOf(node).shape;
  const int64_t offset = at.Integer(node, node.op == "diag" ? "diagonal" : "offset", 0);
  const size_t a = DimOf(at, node, "dim1", shape.size(), -2), b = DimOf(at, node, "dim2", shape.size(), -1);
  at.Set(node, at.Lazy(
                   x->dtype, shape,
                   [=](const Index& place) {
                     Index own;
                     for (size_t dim = 0; dim < place.size(); ++dim) {
                       if (dim != a && dim != b) own.push_back(place[dim]);
                     }
                     own.push_back(place[offset < 0 ? b : a]);
                     return Guard(Compare("equal", AddInt(place[a], Int(offset)), place[b]), x->at(own),
                                  ToType(Float(0), TypeOf(x->dtype)));
                   },
                   x->cost + 1));
}

void Diag(Lowering& at, const GraphNode& node) {
  if (at.ResultOf(node).shape.size() == 1) {
    Diagonal(at, node);
  } else {
    OnDiagonal(at, node);
  }
}

// --- Writes into a part ---

void SelectScatter(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, "self"), source = at.Tensor(node, "src");
  const size_t dim = DimOf(at, node, "dim", x->shape.size());
  ExprPtr chosen = at.MovingInteger(node, "index", 0);
  if (chosen->high < 0) chosen = AddInt(chosen, Int(x->shape[dim]));
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
  const ValuePtr x = at.Tensor(node, "self"), source = at.Tensor(node, "src");
  const size_t dim = DimOf(at, node, "dim", x->shape.size());
  const int64_t size = x->shape[dim], step = at.Integer(node, "step", 1), count = source->shape[dim];
  int64_t start = at.Integer(node, "start", 0);
  start = std::clamp<int64_t>(start < 0 ? start + size : start, 0, size);
  if (count == 0) return at.Set(node, x);
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

// A copy of `x`, then a stage that writes to the places.
ValuePtr Overwritten(Lowering& at, const GraphNode& node, const ValuePtr& x, const Shape& places,
                     const std::function<std::pair<Index, ExprPtr>(const Index&)>& element) {
  const ValuePtr copy = at.Stored(at.Lazy(
      x->dtype, x->shape, [x](const Index& place) { return x->at(place); }, x->cost));
  const std::vector<Loop> loops = at.NewLoops(places);
  const auto [own, value] = element(Lowering::Vars(loops));
  at.Add(
      node.op,
      Pointwise{loops, {{copy->buffer, OffsetOf(own, x->shape), ToType(value, TypeOf(x->dtype)), nullptr}}});
  return copy;
}

void Scatter(Lowering& at, const GraphNode& node) {
  if (at.Has(node, "reduce")) throw Unsupported("`scatter` with a reduction has no stage");
  const ValuePtr x = at.Tensor(node, "self"), index = at.Tensor(node, "index");
  const ValuePtr source = at.Tensor(node, at.Has(node, "src") ? "src" : "value");
  const size_t dim = DimOf(at, node, "dim", x->shape.size());
  at.Set(node, Overwritten(at, node, x, index->shape, [&](const Index& place) {
           Index own = place;
           own[dim] = IntAt(index, place);
           return std::pair(own, source->shape.empty() ? source->at({}) : source->at(place));
         }));
}

void IndexPut(Lowering& at, const GraphNode& node) {
  if (at.Flag(node, "accumulate", false)) throw Unsupported("`index_put` that accumulates has no stage");
  const ValuePtr x = at.Tensor(node, "self"), values = at.Tensor(node, "values");
  const Places places = PlacesOf(at, node, x->shape);
  at.Set(node, Overwritten(at, node, x, places.shape, [&](const Index& place) {
           return std::pair(places.Of(place, x->shape), Lowering::AtBroadcast(values, place));
         }));
}

// out[i] = x[i] + the sum of what goes there: every output reads all of the dim, so that no two add at one place.
void ScatterAdd(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, "self"), index = at.Plain(at.Tensor(node, "index"));
  const ValuePtr source = at.Plain(at.Tensor(node, "src"));
  const size_t dim = DimOf(at, node, "dim", x->shape.size());
  const std::vector<Loop> outer = at.NewLoops(x->shape), inner = at.NewLoops({index->shape[dim]});
  const Index out = Lowering::Vars(outer);
  Index place = out;
  place[dim] = Lowering::Var(inner[0]);
  ExprPtr within = Bool(true);
  for (size_t i = 0; i < place.size(); ++i) {
    if (i != dim) within = And(within, Compare("less", place[i], Int(index->shape[i])));
  }
  const ExprPtr hit = Compare("equal", Guard(within, IntAt(index, place), Int(-1)), out[dim]);
  const ValuePtr sum = at.NewStored(node.op, x->dtype, x->shape);
  const ExprPtr value = Guard(hit, ToType(source->at(place), Type::kFloat), Float(0));
  const ExprPtr total = Binary("add", ToType(x->at(out), Type::kFloat), Result(0));
  at.Add(node.op, Reduction{outer,
                            inner,
                            {{"sum", value, 0, 0}},
                            {{sum->buffer, OffsetOf(out, x->shape), total, nullptr}},
                            {}});
  at.Set(node, sum);
}

void OneHot(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, "self");
  at.Set(node, at.Lazy(
                   "int64", at.ResultOf(node).shape,
                   [=](const Index& place) {
                     const ExprPtr word = ToType(x->at(Index(place.begin(), place.end() - 1)), Type::kInt);
                     return Select(Compare("equal", word, place.back()), Int(1), Int(0));
                   },
                   x->cost + 1));
}

const std::map<std::string, IndexingFunction>& IndexingTable() {
  static const std::map<std::string, IndexingFunction> kTable = {{"gather", Gather},
                                                                 {"take_along_dim", TakeAlongDim},
                                                                 {"take", Take},
                                                                 {"embedding", Embedding},
                                                                 {"index_select", IndexSelect},
                                                                 {"index", IndexOfTensors},
                                                                 {"tril", Triangle},
                                                                 {"triu", Triangle},
                                                                 {"diagonal", Diagonal},
                                                                 {"diag", Diag},
                                                                 {"diag_embed", OnDiagonal},
                                                                 {"select_scatter", SelectScatter},
                                                                 {"slice_scatter", SliceScatter},
                                                                 {"diagonal_scatter", DiagonalScatter},
                                                                 {"scatter", Scatter},
                                                                 {"index_put", IndexPut},
                                                                 {"scatter_add", ScatterAdd},
                                                                 {"one_hot", OneHot}};
  return kTable;
}

}  // namespace

bool Lowering::Indexing(const GraphNode& node) {
  const auto found = IndexingTable().find(node.op);
  if (found == IndexingTable().end()) return Resampled(node);
  found->second(*this, node);
  return true;
}

}  // namespace kevin::search
