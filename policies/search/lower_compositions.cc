// Operations that are a few others: products of vectors and matrices, differences, norms of parts.

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "policies/search/element_parts.h"
#include "policies/search/indexing_parts.h"

namespace kevin::search {
namespace {

using Composition = void (*)(Lowering&, const GraphNode&);

const std::string& DtypeOf(Lowering& at, const GraphNode& node) { return at.ResultOf(node).dtype; }

ValuePtr ProductOf(Lowering& at, const ValuePtr& a, const ValuePtr& b) {
  return at.MapFloat({a, b}, [](const ElementArgs& e) { return Times(e[0], e[1]); });
}

std::vector<int> EveryDim(const ValuePtr& value) {
  std::vector<int> dims(value->shape.size());
  std::iota(dims.begin(), dims.end(), 0);
  return dims;
}

// --- Products ---

void VectorProduct(Lowering& at, const GraphNode& node) {
  const ValuePtr a = at.Tensor(node, node.args.contains("x") ? "x" : "self");
  const ValuePtr b = at.Tensor(node, node.args.contains("y") ? "y" : "other");
  const ValuePtr terms = ProductOf(at, a, b);
  const int dim = static_cast<int>(PositiveDim(at.Integer(node, "dim", -1), terms->shape.size()));
  at.Set(node, at.Reduce("sum", terms, {dim}, false, DtypeOf(at, node)));
}

// Over the last dim of both, for all pairs of their other dims.
void Inner(Lowering& at, const GraphNode& node) {
  const ValuePtr a = at.Tensor(node, "self"), b = at.Tensor(node, "other");
  if (a->shape.empty() || b->shape.empty()) return at.Set(node, ProductOf(at, a, b));
  const int64_t terms = a->shape.back();
  const ValuePtr left = at.Reshape(a, {Count(a->shape) / terms, terms}),
                 right = at.Reshape(b, {Count(b->shape) / terms, terms});
  const ValuePtr product = at.MatMul(left, at.Permute(right, {1, 0}), node.op);
  at.Set(node, at.Reshape(product, at.ResultOf(node).shape));
}

void TensorDot(Lowering& at, const GraphNode& node) {
  const ValuePtr a = at.Tensor(node, "self"), b = at.Tensor(node, "other");
  const Shape a_dims = at.Integers(node, "dims_self"), b_dims = at.Integers(node, "dims_other");
  std::vector<int> a_order, b_order;
  int64_t terms = 1;
  for (size_t i = 0; i < a_dims.size(); ++i) {
    b_order.push_back(static_cast<int>(PositiveDim(b_dims[i], b->shape.size())));
    terms *= b->shape[static_cast<size_t>(b_order.back())];
  }
  const auto is_in = [](const Shape& dims, size_t dim, size_t rank) {
    return std::any_of(dims.begin(), dims.end(), [&](int64_t one) { return PositiveDim(one, rank) == dim; });
  };
  for (size_t i = 0; i < a->shape.size(); ++i) {
    if (!is_in(a_dims, i, a->shape.size())) a_order.push_back(static_cast<int>(i));
  }
  for (const int64_t dim : a_dims) a_order.push_back(static_cast<int>(PositiveDim(dim, a->shape.size())));
  for (size_t i = 0; i < b->shape.size(); ++i) {
    if (!is_in(b_dims, i, b->shape.size())) b_order.push_back(static_cast<int>(i));
  }
  const ValuePtr left = at.Reshape(at.Permute(a, a_order), {Count(a->shape) / terms, terms});
  const ValuePtr right = at.Reshape(at.Permute(b, b_order), {terms, Count(b->shape) / terms});
  at.Set(node, at.Reshape(at.MatMul(left, right, node.op), at.ResultOf(node).shape));
}

// From the left: vectors at the ends are a row and a column.
void ChainOfProducts(Lowering& at, const GraphNode& node) {
  const std::vector<ValuePtr> matrices =
      at.Tensors(node, node.args.contains("matrices") ? "matrices" : "tensors");
  ValuePtr product = matrices.at(0);
  for (size_t i = 1; i < matrices.size(); ++i) product = at.MatMul(product, matrices[i], node.op);
  at.Set(node, at.Reshape(product, at.ResultOf(node).shape));
}

void MatrixPower(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, node.args.contains("A") ? "A" : "self");
  const int64_t n = at.Integer(node, "n", 1);
  constexpr int64_t kMostFactors = 64;
  if (n < 1 || n > kMostFactors)
    throw Unsupported("`" + node.op + "` by " + std::to_string(n) + " has no stage");
  ValuePtr power;
  ValuePtr square = x;
  for (int64_t left = n; left > 0; left /= 2) {
    if (left % 2 == 1) power = power ? at.MatMul(power, square, node.op) : square;
    if (left > 1) square = at.MatMul(square, square, node.op);
  }
  at.Set(node, power);
}

// beta * self + alpha * the sum of the batch's products.
void AddProducts(Lowering& at, const GraphNode& node) {
  const double alpha = at.Number(node, "alpha", 1), beta = at.Number(node, "beta", 1);
  ValuePtr product;
  if (node.op == "addr") {
    product =
        ProductOf(at, at.Unsqueeze(at.Tensor(node, "vec1"), 1), at.Unsqueeze(at.Tensor(node, "vec2"), 0));
  } else {
    // (b, m, k) x (b, k, n), summed over b: (m, b * k) x (b * k, n).
    const ValuePtr a = at.Tensor(node, "batch1"), b = at.Tensor(node, "batch2");
    const int64_t terms = a->shape[0] * a->shape[2];
    product = at.MatMul(at.Reshape(at.Permute(a, {1, 0, 2}), {a->shape[1], terms}),
                        at.Reshape(b, {terms, b->shape[2]}), node.op);
  }
  at.Set(node,
         at.Map({product, at.Tensor(node, "self")}, product->dtype, Type::kFloat, [=](const ElementArgs& e) {
           const ExprPtr scaled = Times(Float(alpha), e[0]);
           return beta == 0 ? scaled : Plus(scaled, Times(Float(beta), e[1]));
         }));
}

void Kronecker(Lowering& at, const GraphNode& node) {
  ValuePtr a = at.Tensor(node, "self"), b = at.Tensor(node, "other");
  const Shape& shape = at.ResultOf(node).shape;
  const auto padded = [&](const ValuePtr& x) {
    Shape own = x->shape;
    own.insert(own.begin(), shape.size() - own.size(), 1);
    return at.Reshape(x, own);
  };
  a = padded(a), b = padded(b);
  at.Set(node, at.Lazy(
                   DtypeOf(at, node), shape,
                   [=](const Index& place) {
                     Index high, low;
                     for (size_t i = 0; i < place.size(); ++i) {
                       high.push_back(DivInt(place[i], b->shape[i]));
                       low.push_back(ModInt(place[i], b->shape[i]));
                     }
                     return Times(ToType(a->at(high), Type::kFloat), ToType(b->at(low), Type::kFloat));
                   },
                   a->cost + b->cost + 1));
}

void Cross(Lowering& at, const GraphNode& node) {
  const ValuePtr a = at.Cheap(at.Tensor(node, "self"), kReadCost),
                 b = at.Cheap(at.Tensor(node, "other"), kReadCost);
  const Shape& shape = at.ResultOf(node).shape;
  size_t dim = 0;
  if (at.Has(node, "dim")) {
    dim = PositiveDim(at.Integer(node, "dim", -1), shape.size());
  } else {  // the first one of size 3
    while (dim + 1 < shape.size() && shape[dim] != 3) ++dim;
  }
  at.Set(node, at.Lazy(
                   DtypeOf(at, node), shape,
                   [=](const Index& place) {
                     const auto moved = [&](const ValuePtr& x, int64_t by) {
                       Index own = place;
                       own[dim] = ModInt(AddInt(place[dim], Int(by)), 3);
                       return ToType(Lowering::AtBroadcast(x, own), Type::kFloat);
                     };
                     return Minus(Times(moved(a, 1), moved(b, 2)), Times(moved(a, 2), moved(b, 1)));
                   },
                   2 * (a->cost + b->cost) + 3));
}

// --- Sums and differences along a dim ---

void DifferencesAlong(Lowering& at, const GraphNode& node) {
  if (at.Has(node, "prepend") || at.Has(node, "append"))
    throw Unsupported("`diff` with more elements in front or behind has no stage");
  ValuePtr x = at.Tensor(node, "self");
  const size_t dim = DimOf(at, node, "dim", x->shape.size(), -1);
  for (int64_t i = at.Integer(node, "n", 1); i > 0; --i) {
    const int64_t left = x->shape[dim] - 1;
    const ValuePtr next = at.Sliced(x, dim, 1, left), before = at.Sliced(x, dim, 0, left);
    x = at.MapFloat({next, before}, [](const ElementArgs& e) { return Minus(e[0], e[1]); });
  }
  at.Set(node, x);
}

// Of the pairs of neighbours, with a constant distance.
void Trapezoid(Lowering& at, const GraphNode& node) {
  if (at.Has(node, "x")) throw Unsupported("`" + node.op + "` with places has no stage");
  const double distance = at.Number(node, "dx", 1);
  const ValuePtr y = at.Tensor(node, "y");
  const size_t dim = DimOf(at, node, "dim", y->shape.size(), -1);
  const int64_t pairs = y->shape[dim] - 1;
  const ValuePtr areas = at.MapFloat(
      {at.Sliced(y, dim, 1, pairs), at.Sliced(y, dim, 0, pairs)},
      [distance](const ElementArgs& e) { return Times(Plus(e[0], e[1]), Float(0.5 * distance)); });
  const int at_dim = static_cast<int>(dim);
  at.Set(node, node.op == "cumulative_trapezoid" ? at.Running("sum", areas, at_dim, y->dtype)
                                                 : at.Reduce("sum", areas, {at_dim}, false, y->dtype));
}

void Trace(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, "self");
  const int64_t count = std::min(x->shape[0], x->shape[1]);
  const ValuePtr diagonal = at.Lazy(
      x->dtype, {count},
      [x](const Index& place) {
        return x->at({place[0], place[0]});
      },
      x->cost);
  at.Set(node, at.Reduce("sum", diagonal, {0}, false, DtypeOf(at, node)));
}

void NanSum(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Cheap(at.Tensor(node, "self"), kReadCost);
  const std::vector<int> dims = at.Dims(node, "dim", x->shape.size());
  const bool keep = at.Flag(node, "keepdim", false);
  const std::string dtype = DtypeOf(at, node);
  const ValuePtr known =
      at.MapFloat({x}, [](const ElementArgs& e) { return Select(IsNan(e[0]), Float(0), e[0]); });
  const ValuePtr sum = at.Reduce("sum", known, dims, keep, dtype);
  if (node.op == "nansum") return at.Set(node, sum);
  const ValuePtr there =
      at.MapFloat({x}, [](const ElementArgs& e) { return Select(IsNan(e[0]), Float(0), Float(1)); });
  const ValuePtr count = at.Reduce("sum", there, dims, keep, "float32");
  at.Set(node, at.MapFloat({sum, count}, [](const ElementArgs& e) { return Over(e[0], e[1]); }));
}

void BothExtremes(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, "self");
  const std::vector<int> dims = at.Dims(node, "dim", x->shape.size());
  const bool keep = at.Flag(node, "keepdim", false);
  at.Set(node, at.Reduce("min", x, dims, keep, x->dtype), 0);
  at.Set(node, at.Reduce("max", x, dims, keep, x->dtype), 1);
}

void RunningExtreme(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Cheap(at.Tensor(node, "self"), kReadCost);
  const size_t dim = DimOf(at, node, "dim", x->shape.size());
  const auto along = static_cast<int>(dim);
  const ValuePtr extreme = at.Running(node.op == "cummax" ? "max" : "min", x, along, x->dtype);
  at.Set(node, extreme);
  if (!at.IsUsed(node, 1)) return;
  // The last element that is as large as all before it; NaN is the largest, and the last one counts.
  const Type type = TypeOf(x->dtype) == Type::kFloat ? Type::kFloat : Type::kInt;
  const ValuePtr reached = at.Lazy(
      "int64", x->shape,
      [=](const Index& place) {
        const ExprPtr own = ToType(x->at(place), type), so_far = ToType(extreme->at(place), type);
        return Select(Or(IsEqual(own, so_far), IsNan(own)), place[dim], Int(0));
      },
      x->cost + 3);
  at.Set(node, at.Running("max", reached, along, "int64"), 1);
}

// Of rows of observations: products of the deviations from their means.
void Covariance(Lowering& at, const GraphNode& node) {
  if (at.Has(node, "fweights") || at.Has(node, "aweights"))
    throw Unsupported("`cov` with weights has no stage");
  ValuePtr x = at.Tensor(node, "self");
  const int64_t terms = x->shape.empty() ? 1 : x->shape.back();
  x = at.Cheap(at.Reshape(x, {Count(x->shape) / terms, terms}), kReadCost);
  const auto count = static_cast<double>(terms);
  const bool is_scaled = node.op == "corrcoef";
  const double divisor = is_scaled ? 1 : std::max(count - at.Number(node, "correction", 1), 0.0);
  const ValuePtr mean = at.Reduce("sum", x, {1}, true, "float32",
                                  [count](const ExprPtr& sum) { return Times(sum, Float(1 / count)); });
  const ValuePtr apart = at.Stored(
      at.Map({x, mean}, x->dtype, Type::kFloat, [](const ElementArgs& e) { return Minus(e[0], e[1]); }));
  const ValuePtr products = at.MatMul(apart, at.Permute(apart, {1, 0}), node.op);
  const ValuePtr result = at.Lazy(
      x->dtype, products->shape,
      [=](const Index& place) {
        const auto product = [&](const ExprPtr& i, const ExprPtr& j) {
          return ToType(products->at({i, j}), Type::kFloat);
        };
        const ExprPtr own = product(place[0], place[1]);
        if (!is_scaled) return Over(own, Float(divisor));
        const auto root = [&](const ExprPtr& i) { return Unary("sqrt", product(i, i)); };
        const ExprPtr share = Over(Over(own, root(place[0])), root(place[1]));
        return Larger(Smaller(share, Float(1)), Float(-1));
      },
      is_scaled ? 20 : 1);
  at.Set(node, at.Reshape(result, at.ResultOf(node).shape));
}

// --- Norms of parts ---

ValuePtr RootOfSquares(Lowering& at, const ValuePtr& x, const std::vector<int>& dims, bool keep,
                       const std::string& dtype) {
  return at.Reduce("sum", ProductOf(at, x, x), dims, keep, dtype,
                   [](const ExprPtr& sum) { return Unary("sqrt", sum); });
}

// Of vectors, or the Frobenius norm of matrices.
void PlainNorm(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, node.args.contains("A") ? "A" : "self");
  const bool is_matrix = node.op == "linalg_matrix_norm";
  if (at.Has(node, "ord") && at.Word(node, "ord", "") != "fro")
    throw Unsupported("`" + node.op + "` of this order has no stage");
  std::vector<int> dims = at.Dims(node, "dim", x->shape.size());
  if (is_matrix && !at.Has(node, "dim"))
    dims = {static_cast<int>(x->shape.size()) - 2, static_cast<int>(x->shape.size()) - 1};
  at.Set(node, RootOfSquares(at, x, dims, at.Flag(node, "keepdim", false), DtypeOf(at, node)));
}

std::vector<int> AllBut(const ValuePtr& x, int64_t dim) {
  std::vector<int> dims = EveryDim(x);
  if (dim != -1 || x->shape.size() == 1)
    dims.erase(dims.begin() + static_cast<long>(PositiveDim(dim, x->shape.size())));
  return dims;
}

void NormExceptDim(Lowering& at, const GraphNode& node) {
  const ValuePtr v = at.Cheap(at.Tensor(node, "v"), kReadCost);
  if (at.Number(node, "pow", 2) != 2) throw Unsupported("`norm_except_dim` of this order has no stage");
  const int64_t dim = at.Integer(node, "dim", 0);
  const ValuePtr norm = RootOfSquares(at, v, AllBut(v, dim), true, v->dtype);
  at.Set(node, at.Reshape(norm, at.ResultOf(node).shape));
}

// v * g / norm(v)
void WeightNorm(Lowering& at, const GraphNode& node) {
  const ValuePtr v = at.Cheap(at.Tensor(node, "v"), kReadCost), g = at.Tensor(node, "g");
  const ValuePtr norm = RootOfSquares(at, v, AllBut(v, at.Integer(node, "dim", 0)), true, v->dtype);
  at.Set(node, at.MapFloat({v, g, norm}, [](const ElementArgs& e) { return Times(e[0], Over(e[1], e[2])); }));
}

void DistanceOfAll(Lowering& at, const GraphNode& node) {
  const double p = at.Number(node, "p", 2);
  if (p != 2 && p != 1) throw Unsupported("`dist` of this order has no stage");
  const ValuePtr gap = at.MapFloat({at.Tensor(node, "self"), at.Tensor(node, "other")},
                                   [](const ElementArgs& e) { return Minus(e[0], e[1]); });
  if (p == 2) return at.Set(node, RootOfSquares(at, gap, EveryDim(gap), false, DtypeOf(at, node)));
  const ValuePtr size = at.MapFloat({gap}, [](const ElementArgs& e) { return Magnitude(e[0]); });
  at.Set(node, at.Reduce("sum", size, EveryDim(size), false, DtypeOf(at, node)));
}

// Rows along a dim whose norm is above the limit are scaled down to it.
void Renorm(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Cheap(at.Tensor(node, "self"), kReadCost);
  const double limit = at.Number(node, "maxnorm", 1);
  if (at.Number(node, "p", 2) != 2) throw Unsupported("`renorm` of this order has no stage");
  std::vector<int> dims = EveryDim(x);
  dims.erase(dims.begin() + static_cast<long>(DimOf(at, node, "dim", x->shape.size())));
  const ValuePtr norm = RootOfSquares(at, x, dims, true, "float32");
  at.Set(node, at.MapFloat({x, norm}, [limit](const ElementArgs& e) {
    const ExprPtr factor = Over(Float(limit), Plus(e[1], Float(1e-7)));
    return Times(e[0], Select(IsLess(Float(limit), e[1]), factor, Float(1)));
  }));
}

}  // namespace

bool Lowering::IsUsed(const GraphNode& node, size_t result) const {
  if (result >= node.results.size()) return false;
  const auto found = uses_.find(node.results[result]);
  return found != uses_.end() && found->second > 0;
}

bool Lowering::Composed(const GraphNode& node) {
  static const std::map<std::string, Composition> kTable = {{"linalg_vecdot", VectorProduct},
                                                            {"vdot", VectorProduct},
                                                            {"inner", Inner},
                                                            {"tensordot", TensorDot},
                                                            {"chain_matmul", ChainOfProducts},
                                                            {"linalg_multi_dot", ChainOfProducts},
                                                            {"matrix_power", MatrixPower},
                                                            {"linalg_matrix_power", MatrixPower},
                                                            {"addr", AddProducts},
                                                            {"addbmm", AddProducts},
                                                            {"kron", Kronecker},
                                                            {"cross", Cross},
                                                            {"linalg_cross", Cross},
                                                            {"diff", DifferencesAlong},
                                                            {"trapezoid", Trapezoid},
                                                            {"trapz", Trapezoid},
                                                            {"cumulative_trapezoid", Trapezoid},
                                                            {"trace", Trace},
                                                            {"nansum", NanSum},
                                                            {"nanmean", NanSum},
                                                            {"aminmax", BothExtremes},
                                                            {"cummax", RunningExtreme},
                                                            {"cummin", RunningExtreme},
                                                            {"cov", Covariance},
                                                            {"corrcoef", Covariance},
                                                            {"linalg_norm", PlainNorm},
                                                            {"linalg_matrix_norm", PlainNorm},
                                                            {"norm_except_dim", NormExceptDim},
                                                            {"_weight_norm", WeightNorm},
                                                            {"dist", DistanceOfAll},
                                                            {"renorm", Renorm}};
  const auto found = kTable.find(node.op);
  const Composition function = found == kTable.end() ? LayoutNamed(node.op) : found->second;
  if (!function) return false;
  function(*this, node);
  return true;
}

}  // namespace kevin::search
