// Pooling: reductions over small windows.

#include <algorithm>
#include <limits>

#include "policies/search/lowering.h"

namespace kevin::search {
namespace {


// The windows of one spatial dimension.
struct WindowDim {
  int64_t size = 1, kernel = 1, stride = 1, padding = 0, dilation = 1, out = 1;
};

}  // namespace

// `at` gives the element of the window and whether it lies in the tensor.
ValuePtr Lowering::Window(const std::string& op, const ValuePtr& x, const Shape& out_shape,
                          const std::vector<Loop>& outer, const std::vector<Loop>& inner, const Index& read,
                          const ExprPtr& inside, const std::function<ExprPtr(const ExprPtr&)>& after) {
  const double neutral = op == "max" || op == "argmax" ? -kInfinity : 0;
  const bool is_index = op.starts_with("arg");
  const ExprPtr element = Guard(inside, ToType(x->at(read), Type::kFloat), Float(neutral));
  const ExprPtr result = Result(0, is_index ? Type::kInt : Type::kFloat);
  const std::string dtype = is_index ? "int64" : x->dtype;
  const ValuePtr stored = NewStored(name_, dtype, out_shape);
  Reduction reduction{outer, inner, {{op, element, 0, 0}}, {}, {}};
  reduction.outer_stores = {
      {stored->buffer, OffsetOf(Vars(outer), out_shape), after ? after(result) : result, nullptr}};
  double terms = static_cast<double>(Count(out_shape));
  for (const Loop& loop : inner) terms *= static_cast<double>(loop.extent);
  Add(name_, reduction, terms);
  return stored;
}

ValuePtr Lowering::Pool(const GraphNode& node, size_t spatial, bool is_max) {
  const ValuePtr x = Plain(Tensor(node, node.args.contains("self") ? "self" : "input"));
  const size_t lead = x->shape.size() - spatial;
  const Shape& out_shape = ResultOf(node).shape;
  const Shape kernel = IntegersFor(node, "kernel_size", spatial, 1);
  const Shape stride = Integers(node, "stride").empty() ? kernel : IntegersFor(node, "stride", spatial, 1);
  const Shape padding = IntegersFor(node, "padding", spatial, 0);
  const Shape dilation = IntegersFor(node, "dilation", spatial, 1);
  const std::vector<Loop> outer = NewLoops(out_shape), inner = NewLoops(kernel);
  Index read = Vars(outer);
  ExprPtr inside = Bool(true);
  // Of average pooling: the elements that count, as a product over the dims.
  ExprPtr divisor = Float(1);
  const bool counts_padding = Flag(node, "count_include_pad", true);
  for (size_t d = 0; d < spatial; ++d) {
    const int64_t size = x->shape[lead + d];
    const ExprPtr start = AddInt(Scaled(read[lead + d], stride[d]), Int(-padding[d]));
    const ExprPtr at = AddInt(start, Scaled(Var(inner[d]), dilation[d]));
    inside = And(inside, And(Compare("less_equal", Int(0), at), Compare("less", at, Int(size))));
    const auto least = [](const ExprPtr& a, const ExprPtr& b) { return Select(Compare("less", a, b), a, b); };
    const auto most = [](const ExprPtr& a, const ExprPtr& b) { return Select(Compare("less", a, b), b, a); };
    // With ceil_mode a window may begin inside the padding and end beyond it.
    const ExprPtr end = least(AddInt(start, Int(kernel[d])), Int(size + padding[d]));
    const ExprPtr count = counts_padding ? AddInt(end, Scaled(start, -1))
                                         : AddInt(least(end, Int(size)), Scaled(most(start, Int(0)), -1));
    divisor = Binary("mul", divisor, ToType(count, Type::kFloat));
    read[lead + d] = at;
  }
  if (is_max) return Window("max", x, out_shape, outer, inner, read, inside, nullptr);
  if (Has(node, "divisor_override")) divisor = Float(Number(node, "divisor_override", 1));
  return Window("sum", x, out_shape, outer, inner, read, inside, [divisor](const ExprPtr& e) {
    return divisor->op == "constant" ? Binary("mul", e, Float(1 / divisor->number))
                                     : Binary("div_float", e, divisor);
  });
}

ValuePtr Lowering::AdaptivePool(const GraphNode& node, size_t spatial, bool is_max) {
  const ValuePtr x = Plain(Tensor(node, node.args.contains("self") ? "self" : "input"));
  const size_t lead = x->shape.size() - spatial;
  const Shape& out_shape = ResultOf(node).shape;
  const std::vector<Loop> outer = NewLoops(out_shape);
  Shape largest;
  for (size_t d = 0; d < spatial; ++d) {
    const int64_t size = x->shape[lead + d], out = out_shape[lead + d];
    int64_t most = 0;
    for (int64_t i = 0; i < out; ++i)
      most = std::max(most, ((i + 1) * size + out - 1) / out - i * size / out);
    largest.push_back(most);
  }
  const std::vector<Loop> inner = NewLoops(largest);
  Index read = Vars(outer);
  ExprPtr inside = Bool(true), divisor = Float(1);
  for (size_t d = 0; d < spatial; ++d) {
    const int64_t size = x->shape[lead + d], out = out_shape[lead + d];
    const ExprPtr i = read[lead + d];
    const ExprPtr start = DivInt(Scaled(i, size), out);
    const ExprPtr end = DivInt(AddInt(Scaled(AddInt(i, Int(1)), size), Int(out - 1)), out);
    const ExprPtr at = AddInt(start, Var(inner[d]));
    inside = And(inside, Compare("less", at, end));
    divisor = Binary("mul", divisor, ToType(AddInt(end, Scaled(start, -1)), Type::kFloat));
    read[lead + d] = at;
  }
  if (is_max) return Window("max", x, out_shape, outer, inner, read, inside, nullptr);
  return Window("sum", x, out_shape, outer, inner, read, inside, [divisor](const ExprPtr& e) {
    return divisor->op == "constant" ? Binary("mul", e, Float(1 / divisor->number))
                                     : Binary("div_float", e, divisor);
  });
}

bool Lowering::Windowed(const GraphNode& node) {
  const std::string& op = node.op;
  const size_t spatial = op.ends_with("1d") ? 1 : op.ends_with("2d") ? 2 : op.ends_with("3d") ? 3 : 0;
  if (spatial == 0) return false;
  const std::string plain = op.substr(0, op.size() - 2);
  if (plain == "max_pool" || plain == "avg_pool") {
    Set(node, Pool(node, spatial, plain == "max_pool"));
    return true;
  }
  if (plain == "adaptive_avg_pool" || plain == "_adaptive_avg_pool" || plain == "adaptive_max_pool") {
    if (node.results.size() > 1 && uses_[node.results[1]] > 0)
      throw Unsupported("the indices of `" + op + "` have no stage");
    Set(node, AdaptivePool(node, spatial, plain == "adaptive_max_pool"));
    return true;
  }
  return false;
}

}  // namespace kevin::search
