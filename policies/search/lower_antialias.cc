// Interpolation with antialiasing: each element is a weighted mean of the input around it, over a width that grows with the
// step where the image shrinks. One dim after another, the last one first.

#include <algorithm>
#include <cmath>

#include "policies/search/element_parts.h"
#include "policies/search/indexing_parts.h"

namespace kevin::search {
namespace {

struct Smoothing {
  int64_t in = 1, out = 1, taps = 1;
  double step = 1;   // in places of the input
  double width = 1;  // of one unit of the filter, in places of the input
  double reach = 1;  // half of the filter
  bool is_cubic = false;
};

Smoothing SmoothingOf(Lowering& at, const GraphNode& node, const ValuePtr& x, size_t dim,
                      const char* scale_name) {
  Smoothing s;
  s.in = x->shape[dim], s.out = at.ResultOf(node).shape[dim];
  s.is_cubic = node.op.find("bicubic") != std::string::npos;
  const double scale = at.Number(node, scale_name, 0);
  if (at.Flag(node, "align_corners", false))
    throw Unsupported("`" + node.op + "` with aligned corners has no stage");
  s.step = scale > 0 ? 1 / scale : static_cast<double>(s.in) / static_cast<double>(s.out);
  s.width = std::max(s.step, 1.0);
  s.reach = (s.is_cubic ? 2 : 1) * s.width;
  s.taps = std::min<int64_t>(s.in, static_cast<int64_t>(std::ceil(s.reach)) * 2 + 1);
  return s;
}

// The filter at a distance, in units of its width.
ExprPtr FilterAt(const ExprPtr& distance, bool is_cubic) {
  const ExprPtr x = Magnitude(distance);
  if (!is_cubic) return Ramp(Minus(Float(1), x));
  constexpr double kA = -0.5;
  const auto polynomial = [&](double third, double second, double first, double rest) {
    return Plus(Times(Plus(Times(Plus(Times(Float(third), x), Float(second)), x), Float(first)), x),
                Float(rest));
  };
  const ExprPtr near = polynomial(kA + 2, -(kA + 3), 0, 1), far = polynomial(kA, -5 * kA, 8 * kA, -4 * kA);
  return Select(IsLess(x, Float(1)), near, Select(IsLess(x, Float(2)), far, Float(0)));
}

ExprPtr Floor(const ExprPtr& x) { return ToType(Unary("floor", x), Type::kInt); }

ValuePtr Smoothed(Lowering& at, const std::string& name, const ValuePtr& given, size_t dim,
                  const Smoothing& s) {
  const ValuePtr x = at.Plain(given);
  Shape shape = x->shape;
  shape[dim] = s.out;
  const std::vector<Loop> outer = at.NewLoops(shape);
  const Loop tap = at.NewLoop(s.taps);
  const Index out = Lowering::Vars(outer);
  const ExprPtr centre = Times(Plus(ToType(out[dim], Type::kFloat), Float(0.5)), Float(s.step));
  const ExprPtr low = Floor(Plus(Minus(centre, Float(s.reach)), Float(0.5)));
  const ExprPtr high = Floor(Plus(Plus(centre, Float(s.reach)), Float(0.5)));
  const ExprPtr first = Select(Compare("less", low, Int(0)), Int(0), low);
  const ExprPtr at_tap = AddInt(first, Lowering::Var(tap));
  const ExprPtr is_inside = And(Compare("less", at_tap, high), Compare("less", at_tap, Int(s.in)));
  const ExprPtr distance =
      Times(Plus(Minus(ToType(at_tap, Type::kFloat), centre), Float(0.5)), Float(1 / s.width));
  const ExprPtr weight = Select(is_inside, FilterAt(distance, s.is_cubic), Float(0));
  Index place = out;
  place[dim] = at_tap;
  const ExprPtr element = Guard(is_inside, ToType(x->at(place), Type::kFloat), Float(0));
  const ValuePtr result = at.NewStored(name, given->dtype, shape);
  at.Add(name, Reduction{outer,
                         {tap},
                         {{"sum", Times(weight, element), 0, 0}, {"sum", weight, 1, 0}},
                         {{result->buffer, OffsetOf(out, shape), Over(Result(0), Result(1)), nullptr}},
                         {}});
  return result;
}

void Antialias(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, node.args.contains("self") ? "self" : "input");
  const Smoothing across = SmoothingOf(at, node, x, 3, "scales_w"),
                  down = SmoothingOf(at, node, x, 2, "scales_h");
  at.Set(node, Smoothed(at, node.op, Smoothed(at, node.op, x, 3, across), 2, down));
}

}  // namespace

IndexingFunction AntialiasNamed(const std::string& op) {
  return op == "_upsample_bilinear2d_aa" || op == "_upsample_bicubic2d_aa" ? Antialias : nullptr;
}

}  // namespace kevin::search
