// Reductions, softmax and scans.

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>

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

ValuePtr Lowering::Softmax(const ValuePtr& given, int dim, bool is_log, bool masked_is_zero) {
  const ValuePtr x = Cheap(given, 8);
  const Normaliser n = ExponentialSum(x, {dim});
  const std::string dtype = x->dtype;
  if (is_log) {
    return MapFloat({x, n.shift, n.sum}, [](const std::vector<ExprPtr>& a) {
      return Binary("sub", Binary("sub", a[0], a[1]), Unary("log", a[2]));
    });
  }
  return MapFloat({x, n.shift, n.sum}, [masked_is_zero](const std::vector<ExprPtr>& a) {
    const ExprPtr weight = Binary("div_float", Unary("exp", Binary("sub", a[0], a[1])), a[2]);
    if (!masked_is_zero) return weight;
    return Select(Compare("equal", a[1], Float(-kInfinity)), Float(0), weight);
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

using ReductionFunction = void (*)(Lowering&, const GraphNode&);

std::vector<int> ReducedDims(Lowering& at, const GraphNode& node, const ValuePtr& x) {
  return at.Dims(node, "dim", x->shape.size());
}

int OneDim(Lowering& at, const GraphNode& node, const ValuePtr& x, int64_t fallback) {
  const int64_t dim = at.Integer(node, "dim", fallback);
  return static_cast<int>(dim < 0 ? dim + static_cast<int64_t>(x->shape.size()) : dim);
}

void PlainReduction(Lowering& at, const GraphNode& node) {
  static const std::map<std::string, std::string> kOps = {
      {"sum", "sum"},      {"mean", "sum"}, {"amax", "max"}, {"amin", "min"},
      {"prod", "product"}, {"any", "any"},  {"all", "all"}};
  const ValuePtr x = at.Tensor(node, "self");
  const std::vector<int> dims = ReducedDims(at, node, x);
  double count = 1;
  for (const int dim : dims) count *= static_cast<double>(x->shape[dim]);
  std::function<ExprPtr(const ExprPtr&)> after;
  if (node.op == "mean") after = [count](const ExprPtr& e) { return Binary("mul", e, Float(1 / count)); };
  at.Set(node, at.Reduce(kOps.at(node.op), x, dims, at.Flag(node, "keepdim", false), at.ResultOf(node).dtype,
                         after));
}

void CountNonZero(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, "self");
  const ValuePtr one = at.Map({x}, "int64", TypeOf(x->dtype), [](const std::vector<ExprPtr>& a) {
    return ToType(ToType(a[0], Type::kBool), Type::kInt);
  });
  at.Set(node, at.Reduce("sum", one, ReducedDims(at, node, x), false, "int64"));
}

// The extreme, its place, or both.
void Extreme(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, "self");
  const bool is_index = node.op.starts_with("arg"), is_max = node.op.ends_with("max");
  const bool keep = at.Flag(node, "keepdim", false);
  const std::vector<int> dims = ReducedDims(at, node, x);
  const char* const value = is_max ? "max" : "min";
  if (is_index || node.results.size() == 1)
    return at.Set(node, at.Reduce(is_index ? node.op : value, x, dims, keep, at.ResultOf(node).dtype));
  if (at.IsUsed(node, 0)) at.Set(node, at.Reduce(value, x, dims, keep, x->dtype), 0);
  if (at.IsUsed(node, 1)) at.Set(node, at.Reduce(is_max ? "argmax" : "argmin", x, dims, keep, "int64"), 1);
}

void Variance(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Cheap(at.Tensor(node, "self"), 8);
  const double correction = at.Has(node, "correction")        ? at.Number(node, "correction", 1)
                            : at.Flag(node, "unbiased", true) ? 1
                                                              : 0;
  const bool is_std = node.op.starts_with("std");
  const Lowering::Moments moments =
      at.MeanAndVariance(x, ReducedDims(at, node, x), correction,
                         [is_std](const ExprPtr& e) { return is_std ? Unary("sqrt", e) : e; });
  at.Set(node, at.Reshape(moments.spread, at.ResultOf(node).shape));
  if (node.results.size() > 1) at.Set(node, at.Reshape(moments.mean, at.ResultOf(node, 1).shape), 1);
}

void LogSumExp(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Cheap(at.Tensor(node, "self"), 8);
  const Lowering::Normaliser n = at.ExponentialSum(x, ReducedDims(at, node, x));
  const ValuePtr total = at.Map({n.shift, n.sum}, x->dtype, Type::kFloat, [](const std::vector<ExprPtr>& a) {
    // An infinite maximum is the result; x - maximum would be NaN.
    const ExprPtr is_infinite = Compare("equal", Unary("abs", a[0]), Float(kInfinity));
    return Select(is_infinite, a[0], Binary("add", a[0], Unary("log", a[1])));
  });
  at.Set(node, at.Reshape(total, at.ResultOf(node).shape));
}

void NormOfVectors(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, "self");
  const double order = at.Number(node, node.op == "norm" ? "p" : "ord", 2);
  at.Set(node, VectorNorm(at, x, order, ReducedDims(at, node, x), at.Flag(node, "keepdim", false),
                          at.ResultOf(node).dtype));
}

void SoftmaxOf(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, "self");
  at.Set(node, at.Softmax(x, OneDim(at, node, x, -1), node.op.find("log") != std::string::npos,
                          node.op == "_safe_softmax"));
}

void ScanAlong(Lowering& at, const GraphNode& node) {
  const std::string op = node.op == "cumsum" ? "sum" : node.op == "cumprod" ? "product" : "logsumexp";
  const ValuePtr x = at.Tensor(node, "self");
  at.Set(node, at.Running(op, x, OneDim(at, node, x, 0), at.ResultOf(node).dtype));
}

const std::map<std::string, ReductionFunction>& ReductionTable() {
  static const std::map<std::string, ReductionFunction> kTable = [] {
    std::map<std::string, ReductionFunction> table = {{"count_nonzero", CountNonZero}};
    const auto add = [&](ReductionFunction f, const std::vector<const char*>& names) {
      for (const char* name : names) table[name] = f;
    };
    add(PlainReduction, {"sum", "mean", "amax", "amin", "prod", "any", "all"});
    add(Extreme, {"max", "min", "argmax", "argmin"});
    add(Variance, {"var", "std", "var_mean", "std_mean"});
    add(LogSumExp, {"logsumexp", "special_logsumexp"});
    add(NormOfVectors, {"linalg_vector_norm", "norm", "frobenius_norm"});
    add(SoftmaxOf, {"softmax", "log_softmax", "_softmax", "_log_softmax", "special_softmax",
                    "special_log_softmax", "_safe_softmax"});
    add(ScanAlong, {"cumsum", "cumprod", "logcumsumexp"});
    return table;
  }();
  return kTable;
}

}  // namespace

bool Lowering::Reduced(const GraphNode& node) {
  const auto found = ReductionTable().find(node.op);
  if (found == ReductionTable().end() || !node.args.contains("self")) return false;
  found->second(*this, node);
  return true;
}

}  // namespace kevin::search
