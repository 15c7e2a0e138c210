// Reductions, softmax and scans.

#include <algorithm>
#include <cmath>
#include <limits>

#include "policies/search/lowering.h"

namespace kevin::search {
namespace {


// The loops of a reduction of `shape` over `dims`, and the index of the whole tensor over them.
struct ReductionLoops {
  std::vector<Loop> outer, inner;
  Index index, outer_index;
  Shape kept, shape_without;  // with ones, and without the dims
};

ReductionLoops LoopsOf(Lowering& lowering, const Shape& shape, const std::vector<int>& dims) {
  ReductionLoops loops;
  for (size_t i = 0; i < shape.size(); ++i) {
    const bool reduced = std::count(dims.begin(), dims.end(), static_cast<int>(i)) > 0;
    const Loop loop = lowering.NewLoop(shape[i]);
    (reduced ? loops.inner : loops.outer).push_back(loop);
    loops.index.push_back(Lowering::Var(loop));
    loops.kept.push_back(reduced ? 1 : shape[i]);
    if (reduced) continue;
    loops.shape_without.push_back(shape[i]);
    loops.outer_index.push_back(Lowering::Var(loop));
  }
  return loops;
}

ExprPtr SquareOf(const ExprPtr& x) { return Binary("mul", x, x); }

}  // namespace

ValuePtr Lowering::Reduce(const std::string& op, const ValuePtr& given, const std::vector<int>& dims,
                          bool keep, const std::string& dtype,
                          const std::function<ExprPtr(const ExprPtr&)>& after) {
  const ValuePtr value = Cheap(given, 64);
  const ReductionLoops loops = LoopsOf(*this, value->shape, dims);
  const bool is_index = op == "argmax" || op == "argmin";
  const bool is_logical = op == "any" || op == "all";
  const Type type = is_index ? Type::kInt : is_logical ? Type::kBool : TypeOf(dtype);
  ExprPtr element = value->at(loops.index);
  if (!is_index) element = ToType(element, type);
  ExprPtr result = Result(0, type);
  if (after) result = after(result);
  const ValuePtr stored = NewStored(op, dtype, keep ? loops.kept : loops.shape_without);
  Reduction reduction{loops.outer, loops.inner, {{op, element, 0, 0}}, {}, {}};
  reduction.outer_stores = {{stored->buffer, OffsetOf(loops.outer_index, loops.shape_without),
                             ToType(result, TypeOf(dtype)), nullptr}};
  Add(op == name_ ? op : name_, reduction, static_cast<double>(Count(value->shape)));
  return stored;
}

ValuePtr Lowering::Softmax(const ValuePtr& given, int dim, bool is_log) {
  const ValuePtr x = Cheap(given, 8);
  const Normaliser n = ExponentialSum(x, {dim});
  const std::string dtype = x->dtype;
  if (is_log) {
    return MapFloat({x, n.shift, n.sum}, [](const std::vector<ExprPtr>& a) {
      return Binary("sub", Binary("sub", a[0], a[1]), Unary("log", a[2]));
    });
  }
  return MapFloat({x, n.shift, n.sum}, [](const std::vector<ExprPtr>& a) {
    return Binary("div_float", Unary("exp", Binary("sub", a[0], a[1])), a[2]);
  });
}

Lowering::Normaliser Lowering::ExponentialSum(const ValuePtr& x, const std::vector<int>& dims) {
  const ReductionLoops loops = LoopsOf(*this, x->shape, dims);
  const ExprPtr element = ToType(x->at(loops.index), Type::kFloat);
  const ExprPtr largest = Result(0);
  const ExprPtr exponential = Unary("exp", Binary("sub", element, largest));
  // In float32 also for 16-bit tensors: the maximum is exact, the sum is not.
  const ValuePtr shift = NewStored("row maximum", "float32", loops.kept);
  const ValuePtr sum = NewStored("row sum", "float32", loops.kept);
  const ExprPtr offset = OffsetOf(loops.outer_index, loops.shape_without);
  Reduction reduction{loops.outer, loops.inner, {{"max", element, 0, 0}, {"sum", exponential, 1, 1}}, {}, {}};
  reduction.outer_stores = {{shift->buffer, offset, largest, nullptr},
                            {sum->buffer, offset, Result(1), nullptr}};
  Add(name_, reduction, 10.0 * static_cast<double>(Count(x->shape)));
  return {shift, sum};
}

Lowering::Moments Lowering::MeanAndVariance(const ValuePtr& x, const std::vector<int>& dims,
                                            double correction,
                                            const std::function<ExprPtr(const ExprPtr&)>& of_variance) {
  const ReductionLoops loops = LoopsOf(*this, x->shape, dims);
  double count = 1;
  for (const Loop& loop : loops.inner) count *= static_cast<double>(loop.extent);
  const ExprPtr element = ToType(x->at(loops.index), Type::kFloat);
  Reduction reduction{loops.outer, loops.inner, {}, {}, {}};
  ExprPtr mean, squares;  // squares: the sum of squared deviations
  constexpr double kTwoPassTerms = 1 << 15;
  if (count <= kTwoPassTerms) {
    mean = Binary("mul", Result(0), Float(1 / count));
    reduction.accumulators = {{"sum", element, 0, 0}, {"sum", SquareOf(Binary("sub", element, mean)), 1, 1}};
    squares = Result(1);
  } else {
    // One pass over memory: sums of deviations from an estimate of the mean, so that little cancels.
    constexpr int kSamples = 16;
    ExprPtr estimate = Float(0);
    for (int i = 0; i < kSamples; ++i) {
      Index index = loops.index;
      size_t at = 0;
      for (size_t d = 0; d < index.size(); ++d) {
        if (std::count(dims.begin(), dims.end(), static_cast<int>(d)) == 0) continue;
        const int64_t extent = loops.inner[at++].extent;
        index[d] = Int((extent * i / kSamples + i * 7) % extent);
      }
      estimate = Binary("add", estimate, ToType(x->at(index), Type::kFloat));
    }
    estimate = Binary("mul", estimate, Float(1.0 / kSamples));
    const ExprPtr deviation = Binary("sub", element, estimate);
    reduction.accumulators = {{"sum", deviation, 0, 0}, {"sum", SquareOf(deviation), 1, 0}};
    mean = Binary("add", estimate, Binary("mul", Result(0), Float(1 / count)));
    squares = Binary(
        "maximum", Binary("sub", Result(1), Binary("mul", SquareOf(Result(0)), Float(1 / count))), Float(0));
  }
  const ExprPtr variance = Binary("mul", squares, Float(1 / std::max(count - correction, 0.0)));
  const ValuePtr mean_value = NewStored("mean", "float32", loops.kept);
  const ValuePtr spread = NewStored("spread", "float32", loops.kept);
  const ExprPtr offset = OffsetOf(loops.outer_index, loops.shape_without);
  reduction.outer_stores = {
      {mean_value->buffer, offset, mean, nullptr},
      {spread->buffer, offset, of_variance ? of_variance(variance) : variance, nullptr}};
  Add(name_, reduction, 4.0 * static_cast<double>(Count(x->shape)));
  return {mean_value, spread};
}

ValuePtr Lowering::Running(const std::string& op, const ValuePtr& given, int dim, const std::string& dtype) {
  const ValuePtr x = Cheap(given, 32);
  const Type type = TypeOf(dtype);
  Scan scan;
  Index index;
  for (size_t i = 0; i < x->shape.size(); ++i) {
    const Loop loop = NewLoop(x->shape[i]);
    index.push_back(Var(loop));
    if (static_cast<int>(i) == dim) {
      scan.along = loop;
    } else {
      scan.outer.push_back(loop);
    }
  }
  scan.op = op;
  scan.value = ToType(x->at(index), type);
  const ValuePtr stored = NewStored(name_, dtype, x->shape);
  scan.stores = {{stored->buffer, OffsetOf(index, x->shape), Result(0, type), nullptr}};
  Add(name_, scan, static_cast<double>(Count(x->shape)));
  return stored;
}

namespace {

ValuePtr VectorNorm(Lowering& lowering, const ValuePtr& x, double order, const std::vector<int>& dims,
                    bool keep, const std::string& dtype) {
  const auto mapped = [&](auto f) {
    return lowering.MapFloat({x}, [f](const std::vector<ExprPtr>& a) { return f(a[0]); });
  };
  const auto magnitude = [](const ExprPtr& e) { return Unary("abs", e); };
  if (order == 2)
    return lowering.Reduce("sum", mapped(SquareOf), dims, keep, dtype,
                           [](const ExprPtr& e) { return Unary("sqrt", e); });
  if (order == 1) return lowering.Reduce("sum", mapped(magnitude), dims, keep, dtype);
  if (order == kInfinity) return lowering.Reduce("max", mapped(magnitude), dims, keep, dtype);
  if (order == -kInfinity) return lowering.Reduce("min", mapped(magnitude), dims, keep, dtype);
  if (order == 0) {
    return lowering.Reduce("sum", mapped([](const ExprPtr& e) {
                             return ToType(Compare("not_equal", e, Float(0)), Type::kFloat);
                           }),
                           dims, keep, dtype);
  }
  const auto raised = [order](const ExprPtr& e) { return Binary("pow", Unary("abs", e), Float(order)); };
  return lowering.Reduce("sum", mapped(raised), dims, keep, dtype,
                         [order](const ExprPtr& e) { return Binary("pow", e, Float(1 / order)); });
}

}  // namespace

bool Lowering::Reduced(const GraphNode& node) {
  const std::string& op = node.op;
  if (!node.args.contains("self")) return false;
  static const std::map<std::string, std::string> kPlain = {
      {"sum", "sum"},      {"mean", "sum"}, {"amax", "max"}, {"amin", "min"},
      {"prod", "product"}, {"any", "any"},  {"all", "all"}};
  const auto dims_of = [&](const char* name) { return Dims(node, name, Tensor(node, "self")->shape.size()); };
  const bool keep = Flag(node, "keepdim", false);
  if (const auto found = kPlain.find(op); found != kPlain.end()) {
    const ValuePtr x = Tensor(node, "self");
    const std::vector<int> dims = dims_of("dim");
    double count = 1;
    for (const int dim : dims) count *= static_cast<double>(x->shape[dim]);
    std::function<ExprPtr(const ExprPtr&)> after;
    if (op == "mean") after = [count](const ExprPtr& e) { return Binary("mul", e, Float(1 / count)); };
    Set(node, Reduce(found->second, x, dims, keep, ResultOf(node).dtype, after));
    return true;
  }
  if (op == "count_nonzero") {
    const ValuePtr x = Tensor(node, "self");
    const ValuePtr one = Map({x}, "int64", TypeOf(x->dtype), [](const std::vector<ExprPtr>& a) {
      return ToType(ToType(a[0], Type::kBool), Type::kInt);
    });
    Set(node, Reduce("sum", one, dims_of("dim"), false, "int64"));
    return true;
  }
  if (op == "max" || op == "min" || op == "argmax" || op == "argmin") {
    const ValuePtr x = Tensor(node, "self");
    const bool is_index = op.starts_with("arg"), is_max = op.ends_with("max");
    const std::vector<int> dims = dims_of("dim");
    if (is_index || node.results.size() == 1) {
      Set(node, Reduce(is_index ? op : is_max ? "max" : "min", x, dims, keep, ResultOf(node).dtype));
      return true;
    }
    if (uses_[node.results[0]] > 0) Set(node, Reduce(is_max ? "max" : "min", x, dims, keep, x->dtype), 0);
    if (uses_[node.results[1]] > 0)
      Set(node, Reduce(is_max ? "argmax" : "argmin", x, dims, keep, "int64"), 1);
    return true;
  }
  if (op == "var" || op == "std" || op == "var_mean" || op == "std_mean") {
    const ValuePtr x = Cheap(Tensor(node, "self"), 8);
    const double correction = Has(node, "correction")        ? Number(node, "correction", 1)
                              : Flag(node, "unbiased", true) ? 1
                                                             : 0;
    const bool is_std = op.starts_with("std");
    const Moments moments = MeanAndVariance(
        x, dims_of("dim"), correction, [is_std](const ExprPtr& e) { return is_std ? Unary("sqrt", e) : e; });
    Set(node, Reshape(moments.spread, ResultOf(node).shape));
    if (node.results.size() > 1) Set(node, Reshape(moments.mean, ResultOf(node, 1).shape), 1);
    return true;
  }
  if (op == "logsumexp" || op == "special_logsumexp") {
    const ValuePtr x = Cheap(Tensor(node, "self"), 8);
    const Normaliser n = ExponentialSum(x, dims_of("dim"));
    const ValuePtr total = Map({n.shift, n.sum}, x->dtype, Type::kFloat, [](const std::vector<ExprPtr>& a) {
      return Binary("add", a[0], Unary("log", a[1]));
    });
    Set(node, Reshape(total, ResultOf(node).shape));
    return true;
  }
  if (op == "linalg_vector_norm" || op == "norm" || op == "frobenius_norm") {
    const ValuePtr x = Tensor(node, "self");
    const double order = Number(node, op == "norm" ? "p" : "ord", 2);
    Set(node, VectorNorm(*this, x, order, dims_of("dim"), keep, ResultOf(node).dtype));
    return true;
  }
  if (op == "softmax" || op == "log_softmax" || op == "_softmax" || op == "_log_softmax" ||
      op == "special_softmax" || op == "special_log_softmax" || op == "_safe_softmax") {
    const ValuePtr x = Tensor(node, "self");
    const int64_t dim = Integer(node, "dim", -1);
    const int rank = static_cast<int>(x->shape.size());
    Set(node, Softmax(x, static_cast<int>(dim < 0 ? dim + rank : dim), op.find("log") != std::string::npos));
    return true;
  }
  static const std::map<std::string, std::string> kScans = {
      {"cumsum", "sum"}, {"cumprod", "product"}, {"logcumsumexp", "logsumexp"}};
  if (const auto found = kScans.find(op); found != kScans.end()) {
    const ValuePtr x = Tensor(node, "self");
    const int64_t dim = Integer(node, "dim", 0);
    const int rank = static_cast<int>(x->shape.size());
    Set(node, Running(found->second, x, static_cast<int>(dim < 0 ? dim + rank : dim), ResultOf(node).dtype));
    return true;
  }
  return false;
}

}  // namespace kevin::search
