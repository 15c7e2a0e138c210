// Reads at indices that tensors hold (gather, embedding, index), diagonals and triangles. All are maps of indices without
// a stage.

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/indexing_parts.h"

namespace kevin::search {
namespace {

// Whether the bounds of the expression are values that it has.
bool HasExactBounds(const ExprPtr& e) {
  if (e->op == "constant" || e->op == "variable") return true;
  if (e->op == "div") return HasExactBounds(e->args[0]);
  if (e->op != "sum") return false;
  return std::all_of(e->args.begin(), e->args.end(),
                     [](const ExprPtr& arg) { return arg->op == "variable"; });
}

// Throws where an element of the index tensor is a number outside of [low, size). All elements are looked at, as torch
// does, and no others: a concatenation around the node asks for elements that are not there, under a condition.
void RequireInside(const GraphNode& node, const ValuePtr& value, int64_t low, int64_t size) {
  Index every;
  for (const int64_t extent : value->shape) {
    if (extent == 0) return;
    every.push_back(Variable(-1 - static_cast<int>(every.size()), extent));  // of no loop
  }
  const ExprPtr index = ToType(value->at(every), Type::kInt);
  if (!HasExactBounds(index) || (index->low >= low && index->high < size)) return;
  throw Unsupported(fmt::format("`{}` reads index {} of a dimension of {}", node.op,
                                index->low < low ? index->low : index->high, size));
}

}  // namespace

size_t DimOf(Lowering& at, const GraphNode& node, const char* name, size_t rank, int64_t fallback) {
  return PositiveDim(at.Integer(node, name, fallback), rank);
}

ExprPtr IndexAt(const GraphNode& node, const ValuePtr& value, const Index& index, int64_t size) {
  RequireInside(node, value, 0, size);
  return ToType(Lowering::AtBroadcast(value, index), Type::kInt);
}

ExprPtr IndexFromEndAt(const GraphNode& node, const ValuePtr& value, const Index& index, int64_t size) {
  RequireInside(node, value, -size, size);
  const ExprPtr given = ToType(Lowering::AtBroadcast(value, index), Type::kInt);
  return Select(Compare("less", given, Int(0)), AddInt(given, Int(size)), given);
}

Index IndexedPlaces::Of(const Index& place, const Shape& from) const {
  const Index chosen(place.begin() + static_cast<long>(first),
                     place.begin() + static_cast<long>(first + rank));
  Index own;
  size_t next = 0;
  for (size_t dim = 0; dim < from.size(); ++dim) {
    if (indices[dim]) {
      own.push_back(IndexFromEndAt(*node, indices[dim], chosen, from[dim]));
      continue;
    }
    if (next == first) next += rank;
    own.push_back(place[next++]);
  }
  return own;
}

IndexedPlaces PlacesOf(Lowering& at, const GraphNode& node, const Shape& from) {
  IndexedPlaces places;
  places.node = &node;
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

namespace {

// --- Reads ---

void Gather(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Cheap(at.Tensor(node, "self"), kReadCost), index = at.Tensor(node, "index");
  const Shape& shape = at.ResultOf(node).shape;
  if (x->shape.empty()) return at.Set(node, at.Expand(x, shape));
  const size_t dim = DimOf(at, node, "dim", x->shape.size());
  at.Set(node, at.Lazy(
                   x->dtype, shape,
                   [=, &node](const Index& place) {
                     Index own = place;
                     own[dim] = IndexAt(node, index, place, x->shape[dim]);
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
                   [=, &node](const Index& place) {
                     Index own = place;
                     own[dim] = IndexFromEndAt(node, index, place, size);
                     return Lowering::AtBroadcast(x, own);
                   },
                   x->cost + index->cost));
}

void Take(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, "self"), index = at.Tensor(node, "index");
  const ValuePtr flat = at.Reshape(at.Cheap(x, kReadCost), {Count(x->shape)});
  at.Set(node, at.Lazy(
                   x->dtype, index->shape,
                   [=, &node](const Index& place) {
                     return flat->at({IndexFromEndAt(node, index, place, flat->shape[0])});
                   },
                   flat->cost + index->cost));
}

void Embedding(Lowering& at, const GraphNode& node) {
  const ValuePtr weight = at.Cheap(at.Tensor(node, "weight"), kReadCost),
                 indices = at.Tensor(node, "indices");
  at.Set(node, at.Lazy(
                   weight->dtype, at.ResultOf(node).shape,
                   [=, &node](const Index& place) {
                     const Index word(place.begin(), place.end() - 1);
                     return weight->at({IndexAt(node, indices, word, weight->shape[0]), place.back()});
                   },
                   weight->cost + indices->cost));
}

// Which places of the indices a bag has: neighbours in equal numbers where the offsets say so, else all are asked.
struct Bags {
  int64_t terms = 1;                                                         // asked for each bag
  std::function<ExprPtr(const ExprPtr&bag, const ExprPtr&term)> place, has;  // `has` null: all of them
};

Bags BagsOf(Lowering& at, const GraphNode& node, int64_t bags, int64_t words) {
  const ValuePtr offsets = at.Cheap(at.Tensor(node, "offsets"), kReadCost);
  const int64_t each = words / bags;
  const Loop loop = at.NewLoop(bags);
  if (each * bags == words &&
      ToType(offsets->at({Lowering::Var(loop)}), Type::kInt)->key == Scaled(Lowering::Var(loop), each)->key)
    return {each,
            [each](const ExprPtr& bag, const ExprPtr& term) { return AddInt(Scaled(bag, each), term); },
            {}};
  constexpr int64_t kMostAsked = int64_t{1} << 24;
  if (bags * words > kMostAsked)
    throw Unsupported(fmt::format("`{}` of {} indices in {} bags has no stage", node.op, words, bags));
  const bool has_end = at.Flag(node, "include_last_offset", false);
  return {words, [](const ExprPtr&, const ExprPtr& term) { return term; },
          [=](const ExprPtr& bag, const ExprPtr& term) {
            const ExprPtr next = AddInt(bag, Int(1)), is_last = Compare("equal", next, Int(bags));
            const ExprPtr begin = ToType(offsets->at({bag}), Type::kInt);
            const ExprPtr end =
                ToType(offsets->at({has_end ? next : Select(is_last, bag, next)}), Type::kInt);
            const ExprPtr is_before = Compare("less", term, end);
            return And(Compare("less_equal", begin, term), has_end ? is_before : Or(is_last, is_before));
          }};
}

// Sums, means or largest elements of rows of the weight, a bag of rows for each row of the result.
void EmbeddingBag(Lowering& at, const GraphNode& node) {
  for (size_t other = 1; other < node.results.size(); ++other) {
    if (at.IsUsed(node, other))
      throw Unsupported("other results of `" + node.op + "` than the first have no stage");
  }
  const ValuePtr weight = at.Plain(at.Tensor(node, "weight")),
                 indices = at.Cheap(at.Tensor(node, "indices"), kReadCost);
  const ValuePtr scales = at.OptionalTensor(node, "per_sample_weights");
  const Shape& shape = at.ResultOf(node).shape;
  const int64_t mode = at.Integer(node, "mode", 0), padding = at.Integer(node, "padding_idx", -1);
  const bool is_largest = mode == 2;
  const Bags bags = BagsOf(at, node, shape[0], indices->shape.at(0));
  const auto word = [=, &node](const Index& place) {
    return IndexAt(node, indices, {bags.place(place[0], place[1])}, weight->shape[0]);
  };
  const auto counts = [=](const Index& place) {
    ExprPtr is_there = bags.has ? bags.has(place[0], place[1]) : Bool(true);
    return padding < 0 ? is_there : And(is_there, Compare("not_equal", word(place), Int(padding)));
  };
  const ValuePtr rows = at.Lazy(
      weight->dtype, {shape[0], bags.terms, shape[1]},
      [=](const Index& place) {
        ExprPtr element = ToType(weight->at({word(place), place[2]}), Type::kFloat);
        if (scales)
          element =
              Binary("mul", element, ToType(scales->at({bags.place(place[0], place[1])}), Type::kFloat));
        return Guard(counts(place), element, Float(is_largest ? -kInfinity : 0));
      },
      4);
  const ValuePtr joined = at.Reduce(is_largest ? "max" : "sum", rows, {1}, false, weight->dtype);
  if (mode == 0) return at.Set(node, joined);
  const ValuePtr there = at.Lazy(
      "float32", {shape[0], bags.terms},
      [=](const Index& place) { return ToType(ToType(counts(place), Type::kInt), Type::kFloat); }, 3);
  const ValuePtr count = at.Unsqueeze(at.Reduce("sum", there, {1}, false, "float32"), 1);
  at.Set(node, at.Map({joined, count}, weight->dtype, Type::kFloat, [is_largest](const auto& a) {
    const ExprPtr is_empty = Compare("equal", a[1], Float(0));
    return Select(is_empty, Float(0), is_largest ? a[0] : Binary("div_float", a[0], a[1]));
  }));
}

void IndexSelect(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Cheap(at.Tensor(node, "self"), kReadCost), index = at.Tensor(node, "index");
  if (x->shape.empty()) return at.Set(node, x);
  const size_t dim = DimOf(at, node, "dim", x->shape.size());
  at.Set(node, at.Lazy(
                   x->dtype, at.ResultOf(node).shape,
                   [=, &node](const Index& place) {
                     Index own = place;
                     own[dim] = IndexAt(node, index, index->shape.empty() ? Index() : Index{place[dim]},
                                        x->shape[dim]);
                     return x->at(own);
                   },
                   x->cost + index->cost));
}

void IndexOfTensors(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Cheap(at.Tensor(node, "self"), kReadCost);
  const IndexedPlaces places = PlacesOf(at, node, x->shape);
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
  const ValuePtr x = at.Tensor(node, node.args.contains("A") ? "A" : "self");
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
  const ValuePtr given = at.Tensor(node, "self");
  const Shape& shape = at.ResultOf(node).shape;
  const int64_t offset = at.Integer(node, node.op == "diag" ? "diagonal" : "offset", 0);
  const ValuePtr x =
      given->shape.size() > 1 && node.op == "diagflat" ? at.Reshape(given, {Count(given->shape)}) : given;
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

}  // namespace

IndexingFunction ReadNamed(const std::string& op) {
  static const std::map<std::string, IndexingFunction> kTable = {{"gather", Gather},
                                                                 {"take_along_dim", TakeAlongDim},
                                                                 {"take", Take},
                                                                 {"embedding", Embedding},
                                                                 {"embedding_bag", EmbeddingBag},
                                                                 {"index_select", IndexSelect},
                                                                 {"index", IndexOfTensors},
                                                                 {"tril", Triangle},
                                                                 {"triu", Triangle},
                                                                 {"diagonal", Diagonal},
                                                                 {"linalg_diagonal", Diagonal},
                                                                 {"diag", Diag},
                                                                 {"diagflat", Diag},
                                                                 {"diag_embed", OnDiagonal},
                                                                 {"one_hot", OneHot}};
  const auto found = kTable.find(op);
  return found == kTable.end() ? nullptr : found->second;
}

bool Lowering::Indexing(const GraphNode& node) {
  for (const auto named :
       {ReadNamed, ScatterNamed, OrderNamed, ResamplingNamed, InterpolationNamed, AntialiasNamed}) {
    const IndexingFunction function = named(node.op);
    if (!function) continue;
    function(*this, node);
    return true;
  }
  return false;
}

}  // namespace kevin::search
