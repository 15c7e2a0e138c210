// Matrix products, einsum and linear layers.

#include <fmt/format.h>

#include <algorithm>

#include "policies/search/lowering.h"

namespace kevin::search {
namespace {

double Product64(const Shape& shape) { return static_cast<double>(Count(shape)); }

// The index of an operand with broadcast batch dims.
Index BatchIndex(const ValuePtr& value, const Index& batch) {
  const size_t rank = value->shape.size() - 2;
  Index own;
  for (size_t i = 0; i < rank; ++i)
    own.push_back(value->shape[i] == 1 ? Int(0) : batch[batch.size() - rank + i]);
  return own;
}

Index Joined(Index a, const Index& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

}  // namespace

ValuePtr Lowering::Multiply(const std::string& name, const std::string& dtype, const Shape& shape,
                            const Product& product) {
  Contraction work;
  work.batch = NewLoops(product.batch);
  work.m = NewLoops(product.m);
  work.n = NewLoops(product.n);
  work.k = NewLoops(product.k);
  const Index batch = Vars(work.batch), m = Vars(work.m), n = Vars(work.n), k = Vars(work.k);
  work.lhs = ToType(product.lhs(batch, m, k), Type::kFloat);
  work.rhs = ToType(product.rhs(batch, n, k), Type::kFloat);
  for (size_t i = 0; i < work.k.size(); ++i)
    work.k_limits.push_back(product.limit ? product.limit(batch, i) : nullptr);
  const ValuePtr stored = NewStored(name, dtype, shape);
  const Index at = product.index(batch, m, n);
  const ExprPtr result = product.after ? product.after(Result(0), at) : Result(0);
  ExprPtr inside = product.inside ? product.inside(batch, m, n) : nullptr;
  if (inside && inside->op == "constant") inside = nullptr;
  work.stores = {{stored->buffer, OffsetOf(at, shape), result, inside}};
  Add(name, work,
      2 * Product64(product.batch) * Product64(product.m) * Product64(product.n) * Product64(product.k));
  return stored;
}

ValuePtr Lowering::MatMul(const ValuePtr& a_given, const ValuePtr& b_given, const std::string& name,
                          const ValuePtr& bias) {
  if (scope_) {
    if (const ValuePtr hoisted = HoistedMatMul(a_given, b_given, name, bias)) return hoisted;
  }
  const bool a_is_vector = a_given->shape.size() == 1, b_is_vector = b_given->shape.size() == 1;
  const ValuePtr a = Plain(a_is_vector ? Unsqueeze(a_given, 0) : a_given);
  const ValuePtr b = Plain(b_is_vector ? Unsqueeze(b_given, 1) : b_given);
  const size_t a_rank = a->shape.size(), b_rank = b->shape.size();
  const int64_t rows = a->shape[a_rank - 2], terms = a->shape[a_rank - 1], columns = b->shape[b_rank - 1];
  Shape shape;
  {
    const Shape left(a->shape.begin(), a->shape.end() - 2), right(b->shape.begin(), b->shape.end() - 2);
    shape.assign(std::max(left.size(), right.size()), 1);
    for (size_t i = 0; i < left.size(); ++i) shape[shape.size() - left.size() + i] = left[i];
    for (size_t i = 0; i < right.size(); ++i) {
      int64_t& size = shape[shape.size() - right.size() + i];
      if (right[i] != 1) size = right[i];
    }
  }
  const Shape batch = shape;
  // A matrix that all batches share makes one tall product of them.
  const bool is_shared = Count(Shape(b->shape.begin(), b->shape.end() - 2)) == 1;
  Product product;
  product.k = {terms};
  product.n = {columns};
  product.m = {rows};
  if (is_shared) {
    product.m = batch;
    product.m.push_back(rows);
  } else {
    product.batch = batch;
  }
  const size_t lead = batch.size();
  const auto split = [is_shared, lead](const Index& batch_index, const Index& m) {
    return is_shared ? Index(m.begin(), m.begin() + static_cast<long>(lead)) : batch_index;
  };
  product.lhs = [=](const Index& batch_index, const Index& m, const Index& k) {
    return a->at(Joined(BatchIndex(a, split(batch_index, m)), {m.back(), k[0]}));
  };
  product.rhs = [=](const Index& batch_index, const Index& n, const Index& k) {
    const Index none(lead, Int(0));
    return b->at(Joined(BatchIndex(b, is_shared ? none : batch_index), {k[0], n[0]}));
  };
  product.index = [=](const Index& batch_index, const Index& m, const Index& n) {
    return Joined(split(batch_index, m), {m.back(), n[0]});
  };
  if (bias) {
    product.after = [bias](const ExprPtr& result, const Index& index) {
      return Binary("add", result, ToType(AtBroadcast(bias, index), Type::kFloat));
    };
  }
  shape.push_back(rows);
  shape.push_back(columns);
  const ValuePtr result = Multiply(name, a->dtype, shape, product);
  Shape wanted = batch;
  if (!a_is_vector) wanted.push_back(rows);
  if (!b_is_vector) wanted.push_back(columns);
  return Reshape(result, wanted);
}

namespace {

struct EinsumOperand {
  std::string labels;
  ValuePtr value;
};

bool Contains(const std::string& labels, char label) { return labels.find(label) != std::string::npos; }

}  // namespace

// Two operands at a time, from the left.
ValuePtr Lowering::Einsum(const GraphNode& node) {
  std::string equation = Word(node, "equation", "");
  std::erase(equation, ' ');
  const size_t arrow = equation.find("->");
  if (arrow == std::string::npos || Contains(equation, '.'))
    throw Unsupported("`einsum` without `->` or with `...` has no stage");
  const std::string out = equation.substr(arrow + 2);
  std::vector<EinsumOperand> operands;
  const std::vector<ValuePtr> values = Tensors(node, "tensors");
  std::string left = equation.substr(0, arrow) + ",";
  for (size_t at = 0; at < left.size(); at = left.find(',', at) + 1)
    operands.push_back({left.substr(at, left.find(',', at) - at), values.at(operands.size())});
  std::map<char, int64_t> sizes;
  for (const EinsumOperand& operand : operands) {
    for (size_t i = 0; i < operand.labels.size(); ++i) {
      if (std::count(operand.labels.begin(), operand.labels.end(), operand.labels[i]) > 1)
        throw Unsupported("`einsum` with a diagonal has no stage");
      sizes[operand.labels[i]] = std::max(sizes[operand.labels[i]], operand.value->shape.at(i));
    }
  }
  const auto shape_of = [&](const std::string& labels) {
    Shape shape;
    for (const char label : labels) shape.push_back(sizes.at(label));
    return shape;
  };
  const auto pick = [](const ValuePtr& value, const std::string& labels, const std::map<char, ExprPtr>& at) {
    Index index;
    for (size_t i = 0; i < labels.size(); ++i)
      index.push_back(value->shape[i] == 1 ? Int(0) : at.at(labels[i]));
    return value->at(index);
  };
  EinsumOperand sofar = operands[0];
  for (size_t i = 1; i <= operands.size(); ++i) {
    std::string needed = out;
    for (size_t j = i; j < operands.size(); ++j) needed += operands[j].labels;
    // Labels that only one operand has and nothing needs are summed first.
    std::vector<int> dims;
    std::string kept;
    for (size_t d = 0; d < sofar.labels.size(); ++d) {
      if (Contains(needed, sofar.labels[d]))
        kept += sofar.labels[d];
      else
        dims.push_back(static_cast<int>(d));
    }
    if (!dims.empty()) sofar = {kept, Reduce("sum", sofar.value, dims, false, sofar.value->dtype)};
    if (i == operands.size()) break;
    const EinsumOperand a = sofar, b = operands[i];
    std::string later = out, batch, m, n, k;
    for (size_t j = i + 1; j < operands.size(); ++j) later += operands[j].labels;
    for (const char label : a.labels) {
      const bool both = Contains(b.labels, label), kept_later = Contains(later, label);
      (both ? (kept_later ? batch : k) : m) += label;
    }
    for (const char label : b.labels) {
      if (!Contains(a.labels, label)) n += label;
    }
    // The order of the result where there is no later operand: that of the output.
    std::string order = batch + m + n;
    if (i + 1 == operands.size() && std::is_permutation(order.begin(), order.end(), out.begin(), out.end()))
      order = out;
    const auto at_labels = [](const std::string& labels, const Index& index, std::map<char, ExprPtr>& at) {
      for (size_t d = 0; d < labels.size(); ++d) at[labels[d]] = index[d];
    };
    if (k.empty()) {
      ValuePtr product = Lazy(
          a.value->dtype, shape_of(order),
          [=](const Index& index) {
            std::map<char, ExprPtr> at;
            at_labels(order, index, at);
            return Binary("mul", pick(a.value, a.labels, at), pick(b.value, b.labels, at));
          },
          a.value->cost + b.value->cost + 1);
      sofar = {order, product};
      continue;
    }
    const ValuePtr left_value = Plain(a.value), right_value = Plain(b.value);
    Product product;
    product.batch = shape_of(batch), product.m = shape_of(m), product.n = shape_of(n),
    product.k = shape_of(k);
    product.lhs = [=](const Index& bi, const Index& mi, const Index& ki) {
      std::map<char, ExprPtr> at;
      at_labels(batch, bi, at), at_labels(m, mi, at), at_labels(k, ki, at);
      return pick(left_value, a.labels, at);
    };
    product.rhs = [=](const Index& bi, const Index& ni, const Index& ki) {
      std::map<char, ExprPtr> at;
      at_labels(batch, bi, at), at_labels(n, ni, at), at_labels(k, ki, at);
      return pick(right_value, b.labels, at);
    };
    product.index = [=](const Index& bi, const Index& mi, const Index& ni) {
      std::map<char, ExprPtr> at;
      at_labels(batch, bi, at), at_labels(m, mi, at), at_labels(n, ni, at);
      Index index;
      for (const char label : order) index.push_back(at.at(label));
      return index;
    };
    sofar = {order, Multiply("einsum", a.value->dtype, shape_of(order), product)};
  }
  std::vector<int> order;
  for (const char label : out) order.push_back(static_cast<int>(sofar.labels.find(label)));
  return Permute(sofar.value, order);
}

// In a loop, a linear layer of a concatenation is a sum of products: some of them do not change or are known before. Null
// where the input is no concatenation of features.
ValuePtr Lowering::LinearOfParts(const ValuePtr& x, const ValuePtr& weight, const ValuePtr& bias) {
  if (x->parts.empty() || weight->shape.size() != 2 ||
      x->part_dim + 1 != static_cast<int64_t>(x->shape.size()))
    return nullptr;
  ValuePtr sum;
  int64_t start = 0;
  for (const ValuePtr& part : x->parts) {
    const int64_t size = part->shape.back();
    const ValuePtr columns = Permute(Sliced(weight, 1, start, size), {1, 0});
    const ValuePtr product = MatMul(part, columns, "linear", sum ? nullptr : bias);
    start += size;
    sum = sum ? MapFloat({sum, product},
                         [](const std::vector<ExprPtr>& a) { return Binary("add", a[0], a[1]); })
              : product;
  }
  return sum;
}

bool Lowering::Contracted(const GraphNode& node) {
  const std::string& op = node.op;
  if (op == "matmul" || op == "mm" || op == "bmm" || op == "mv" || op == "dot" || op == "linalg_matmul") {
    const char* second = op == "mm" || op == "bmm" ? "mat2"
                         : op == "mv"              ? "vec"
                         : op == "dot"             ? "tensor"
                                                   : "other";
    Set(node, MatMul(Tensor(node, "self"), Tensor(node, second), op));
    return true;
  }
  if (op == "linear") {
    const ValuePtr weight = Tensor(node, "weight"), bias = OptionalTensor(node, "bias");
    const ValuePtr transposed = weight->shape.size() == 2 ? Permute(weight, {1, 0}) : weight;
    if (const ValuePtr split = scope_ ? LinearOfParts(Tensor(node, "input"), weight, bias) : nullptr) {
      Set(node, split);
      return true;
    }
    Set(node, MatMul(Tensor(node, "input"), transposed, "linear", bias));
    return true;
  }
  if (op == "addmm" || op == "baddbmm" || op == "addmv" || op == "addbmm") {
    if (op == "addbmm") return false;
    const char* first = op == "addmm" ? "mat1" : op == "addmv" ? "mat" : "batch1";
    const char* second = op == "addmm" ? "mat2" : op == "addmv" ? "vec" : "batch2";
    const double alpha = Number(node, "alpha", 1), beta = Number(node, "beta", 1);
    if (alpha == 1 && beta == 1 && op != "addmv") {
      Set(node, MatMul(Tensor(node, first), Tensor(node, second), op, Tensor(node, "self")));
      return true;
    }
    const ValuePtr product = MatMul(Tensor(node, first), Tensor(node, second), op);
    if (beta == 0) {  // NaN and infinity of `self` do not count
      Set(node, MapFloat({product},
                         [=](const std::vector<ExprPtr>& a) { return Binary("mul", Float(alpha), a[0]); }));
      return true;
    }
    Set(node, Map({product, Tensor(node, "self")}, product->dtype, Type::kFloat,
                  [=](const std::vector<ExprPtr>& a) {
                    return Binary("add", Binary("mul", Float(alpha), a[0]), Binary("mul", Float(beta), a[1]));
                  }));
    return true;
  }
  if (op == "outer" || op == "ger") {
    const ValuePtr a = Tensor(node, "self"), b = Tensor(node, "vec2");
    Set(node, MapFloat({Unsqueeze(a, 1), Unsqueeze(b, 0)},
                       [](const std::vector<ExprPtr>& e) { return Binary("mul", e[0], e[1]); }));
    return true;
  }
  if (op == "einsum") {
    Set(node, Einsum(node));
    return true;
  }
  if (op == "bilinear") {
    // y[b, o] = sum over i, j of x1[b, i] * w[o, i, j] * x2[b, j]: first over j, then over i.
    const ValuePtr x1 = Tensor(node, "input1"), x2 = Tensor(node, "input2"), weight = Tensor(node, "weight");
    if (x1->shape.size() != 2) return false;
    const ValuePtr inner = MatMul(
        x2, Permute(Reshape(weight, {weight->shape[0] * weight->shape[1], weight->shape[2]}), {1, 0}), op);
    const ValuePtr split = Reshape(inner, {x1->shape[0], weight->shape[0], weight->shape[1]});
    ValuePtr y = Reduce("sum",
                        MapFloat({split, Unsqueeze(x1, 1)},
                                 [](const std::vector<ExprPtr>& a) { return Binary("mul", a[0], a[1]); }),
                        {2}, false, x1->dtype);
    if (const ValuePtr bias = OptionalTensor(node, "bias"))
      y = MapFloat({y, bias}, [](const std::vector<ExprPtr>& a) { return Binary("add", a[0], a[1]); });
    Set(node, y);
    return true;
  }
  for (size_t spatial = 1; spatial <= 3; ++spatial) {
    if (op == fmt::format("conv{}d", spatial)) {
      Set(node, Convolve(node, spatial));
      return true;
    }
    if (op == fmt::format("conv_transpose{}d", spatial)) {
      Set(node, ConvolveTransposed(node, spatial));
      return true;
    }
  }
  return false;
}

}  // namespace kevin::search
