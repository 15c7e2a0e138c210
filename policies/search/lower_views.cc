// Views: reshape, permute, slice, cat and so on are maps of indices.

#include <algorithm>
#include <functional>
#include <numeric>

#include "policies/search/lowering.h"

namespace kevin::search {
namespace {

size_t Wrapped(int64_t dim, size_t rank) {
  return static_cast<size_t>(dim < 0 ? dim + static_cast<int64_t>(rank) : dim);
}

ValuePtr ViewOf(Lowering& lowering, const ValuePtr& value, const Shape& shape,
                std::function<Index(const Index&)> map) {
  return lowering.Lazy(
      value->dtype, shape,
      [value, map = std::move(map)](const Index& index) { return value->at(map(index)); }, value->cost);
}

}  // namespace

ValuePtr Lowering::Reshape(const ValuePtr& value, const Shape& shape) {
  if (value->shape == shape) return value;
  if (value->buffer >= 0) {
    const int buffer = value->buffer;
    const Type type = TypeOf(value->dtype);
    ValuePtr view = Lazy(value->dtype, shape, [buffer, type, shape](const Index& index) {
      return Load(buffer, type, OffsetOf(index, shape));
    });
    view->buffer = buffer;
    return view;
  }
  const Shape from = value->shape;
  // Sizes of 1 carry no information: without them most reshapes need no division.
  return ViewOf(*this, value, shape,
                [from, shape](const Index& index) { return IndexOf(OffsetOf(index, shape), from); });
}

ValuePtr Lowering::Permute(const ValuePtr& value, const std::vector<int>& order) {
  Shape shape;
  for (const int dim : order) shape.push_back(value->shape[dim]);
  if (std::is_sorted(order.begin(), order.end())) return value;
  return ViewOf(*this, value, shape, [order](const Index& index) {
    Index own(index.size());
    for (size_t i = 0; i < order.size(); ++i) own[order[i]] = index[i];
    return own;
  });
}

ValuePtr Lowering::Unsqueeze(const ValuePtr& value, size_t at) {
  Shape shape = value->shape;
  shape.insert(shape.begin() + static_cast<long>(at), 1);
  return Reshape(value, shape);
}

ValuePtr Lowering::Sliced(const ValuePtr& value, size_t dim, int64_t start, int64_t size, int64_t step) {
  if (start == 0 && step == 1 && size == value->shape[dim]) return value;
  Shape shape = value->shape;
  shape[dim] = size;
  return ViewOf(*this, value, shape, [=](const Index& index) {
    Index own = index;
    own[dim] = AddInt(Scaled(index[dim], step), Int(start));
    return own;
  });
}

ValuePtr Lowering::Expand(const ValuePtr& value, const Shape& shape) {
  if (value->shape == shape) return value;
  return Lazy(
      value->dtype, shape, [value](const Index& index) { return AtBroadcast(value, index); }, value->cost);
}

ValuePtr Lowering::Cat(const std::vector<ValuePtr>& given, int64_t dim_given, const std::string& dtype) {
  std::vector<ValuePtr> parts;
  for (const ValuePtr& part : given) {
    // torch leaves out parts of shape (0).
    if (part->shape.size() == 1 && part->shape[0] == 0 && given.size() > 1) continue;
    const size_t dim = Wrapped(dim_given, part->shape.size());
    if (part->shape[dim] > 0) parts.push_back(part);
  }
  if (parts.empty()) throw Unsupported("`cat` of tensors without elements has no stage");
  const size_t dim = Wrapped(dim_given, parts[0]->shape.size());
  if (parts.size() == 1) return parts[0];
  Shape shape = parts[0]->shape;
  shape[dim] = 0;
  int cost = 0;
  for (const ValuePtr& part : parts) shape[dim] += part->shape[dim], cost += part->cost + 1;
  const Type type = TypeOf(dtype);
  ValuePtr value = Lazy(
      dtype, shape,
      [parts, dim, type](const Index& index) {
        int64_t end = 0;
        for (const ValuePtr& part : parts) end += part->shape[dim];
        ExprPtr result;
        for (size_t i = parts.size(); i-- > 0;) {
          const int64_t start = end - parts[i]->shape[dim];
          Index own = index;
          own[dim] = AddInt(index[dim], Int(-start));
          const ExprPtr element = ToType(parts[i]->at(own), type);
          const ExprPtr zero = ToType(Float(0), type);
          // Each part is read only where it is: a guard with 0 elsewhere, and a choice among them.
          const ExprPtr within =
              And(Compare("less_equal", Int(start), index[dim]), Compare("less", index[dim], Int(end)));
          const ExprPtr guarded = Guard(within, element, zero);
          result = result ? Select(Compare("less", index[dim], Int(end)), guarded, result) : guarded;
          end = start;
        }
        return result;
      },
      cost);
  value->parts = parts;
  value->part_dim = static_cast<int64_t>(dim);
  return value;
}

bool Lowering::View(const GraphNode& node) {
  const std::string& op = node.op;
  const auto self = [&] { return Tensor(node, node.args.contains("self") ? "self" : "input"); };
  if (op == "view" || op == "reshape" || op == "flatten" || op == "unflatten" || op == "_unsafe_view" ||
      op == "reshape_as" || op == "view_as" || op == "squeeze" || op == "unsqueeze" || op == "ravel" ||
      op == "_reshape_alias") {
    Set(node, Reshape(self(), ResultOf(node).shape));
    return true;
  }
  if (op == "t" || op == "numpy_T" || op == "mT" || op == "adjoint") {
    const ValuePtr x = self();
    std::vector<int> order(x->shape.size());
    std::iota(order.begin(), order.end(), 0);
    if (op == "numpy_T")
      std::reverse(order.begin(), order.end());
    else if (order.size() > 1)
      std::swap(order[order.size() - 1], order[order.size() - 2]);
    Set(node, Permute(x, order));
    return true;
  }
  if (op == "transpose" || op == "swapaxes" || op == "swapdims") {
    const ValuePtr x = self();
    std::vector<int> order(x->shape.size());
    std::iota(order.begin(), order.end(), 0);
    const bool swaps = op != "transpose";
    const size_t a = Wrapped(Integer(node, swaps ? "axis0" : "dim0", 0), order.size());
    const size_t b = Wrapped(Integer(node, swaps ? "axis1" : "dim1", 0), order.size());
    if (!order.empty()) std::swap(order[a], order[b]);
    Set(node, Permute(x, order));
    return true;
  }
  if (op == "permute") {
    const ValuePtr x = self();
    std::vector<int> order;
    for (const int64_t dim : Integers(node, "dims"))
      order.push_back(static_cast<int>(Wrapped(dim, x->shape.size())));
    Set(node, Permute(x, order));
    return true;
  }
  if (op == "movedim" || op == "moveaxis") {
    const ValuePtr x = self();
    const Shape from = Integers(node, "source"), to = Integers(node, "destination");
    const size_t rank = x->shape.size();
    std::vector<int> order(rank, -1);
    std::vector<bool> used(rank, false);
    for (size_t i = 0; i < from.size(); ++i) {
      order[Wrapped(to[i], rank)] = static_cast<int>(Wrapped(from[i], rank));
      used[Wrapped(from[i], rank)] = true;
    }
    size_t next = 0;
    for (int& one : order) {
      if (one >= 0) continue;
      while (used[next]) ++next;
      one = static_cast<int>(next++);
    }
    Set(node, Permute(x, order));
    return true;
  }
  if (op == "expand" || op == "expand_as" || op == "broadcast_to") {
    Set(node, Expand(self(), ResultOf(node).shape));
    return true;
  }
  if (op == "select") {
    const ValuePtr x = self();
    const size_t dim = Wrapped(Integer(node, "dim", 0), x->shape.size());
    const int64_t given = Integer(node, "index", 0), at = given < 0 ? given + x->shape[dim] : given;
    Set(node, Reshape(Sliced(x, dim, at, 1), ResultOf(node).shape));
    return true;
  }
  if (op == "slice" || op == "narrow") {
    const ValuePtr x = self();
    const size_t dim = Wrapped(Integer(node, "dim", 0), x->shape.size());
    const int64_t size = x->shape[dim];
    int64_t start = Integer(node, "start", 0);
    if (start < 0) start += size;
    start = std::clamp<int64_t>(start, 0, size);
    Set(node, Sliced(x, dim, start, ResultOf(node).shape[dim], op == "slice" ? Integer(node, "step", 1) : 1));
    return true;
  }
  if (op == "cat" || op == "concat" || op == "concatenate") {
    Set(node, Cat(Tensors(node, "tensors"), Integer(node, "dim", 0), ResultOf(node).dtype));
    return true;
  }
  if (op == "stack") {
    std::vector<ValuePtr> parts = Tensors(node, "tensors");
    const size_t dim = Wrapped(Integer(node, "dim", 0), parts.at(0)->shape.size() + 1);
    for (ValuePtr& part : parts) part = Unsqueeze(part, dim);
    Set(node, Cat(parts, static_cast<int64_t>(dim), ResultOf(node).dtype));
    return true;
  }
  if (op == "chunk" || op == "split" || op == "split_with_sizes" || op == "unsafe_split" ||
      op == "unsafe_chunk" || op == "tensor_split" || op == "unbind") {
    const ValuePtr x = self();
    const size_t dim = Wrapped(Integer(node, "dim", 0), x->shape.size());
    int64_t start = 0;
    for (size_t i = 0; i < node.results.size(); ++i) {
      const Shape& shape = ResultOf(node, i).shape;
      const int64_t size = op == "unbind" ? 1 : shape[dim];
      Set(node, Reshape(Sliced(x, dim, start, size), shape), i);
      start += size;
    }
    return true;
  }
  return false;
}

}  // namespace kevin::search
