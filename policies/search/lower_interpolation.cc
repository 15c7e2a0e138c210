// Interpolation: nearest, linear and cubic upsampling, and samples at the places of a grid. Maps of indices without a
// stage, but for cubic ones.

#include <algorithm>
#include <cmath>

#include "policies/search/element_parts.h"
#include "policies/search/indexing_parts.h"

namespace kevin::search {
namespace {

// Overloads with sizes call it self, those with factors input.
ValuePtr SourceOf(Lowering& at, const GraphNode& node) {
  return at.Tensor(node, node.args.contains("self") ? "self" : "input");
}

ExprPtr NotBelow(const ExprPtr& a, int64_t low) { return Select(Compare("less", a, Int(low)), Int(low), a); }
ExprPtr NotAbove(const ExprPtr& a, int64_t high) {
  return Select(Compare("less", Int(high), a), Int(high), a);
}

// Of one dim: element i reads `low` and `low + 1` with the weights 1 - share and share.
struct Axis {
  int64_t in = 1, out = 1;
  double step = 0;       // in places of the input; 0: in / out
  bool aligned = false;  // the corners of both stand on each other
};

struct Between {
  ExprPtr low, high, share;
};

Between LinearPlace(const Axis& axis, const ExprPtr& i) {
  const auto neighbour = [&](const ExprPtr& low) { return NotAbove(AddInt(low, Int(1)), axis.in - 1); };
  if (axis.out == 1 && axis.aligned) return {Int(0), Int(0), Float(0)};
  if (axis.step == 0 || axis.aligned) {
    // The place is numerator / denominator, in integers.
    const int64_t denominator = axis.aligned ? axis.out - 1 : 2 * axis.out;
    ExprPtr numerator =
        axis.aligned ? Scaled(i, axis.in - 1) : AddInt(Scaled(i, 2 * axis.in), Int(axis.in - axis.out));
    numerator = NotBelow(numerator, 0);
    const ExprPtr low = NotAbove(DivInt(numerator, denominator), axis.in - 1);
    const ExprPtr share = Binary("mul", ToType(ModInt(numerator, denominator), Type::kFloat),
                                 Float(1.0 / static_cast<double>(denominator)));
    return {low, neighbour(low), share};
  }
  const ExprPtr middle = Binary("mul", Binary("add", ToType(i, Type::kFloat), Float(0.5)), Float(axis.step));
  const ExprPtr place = Binary("maximum", Binary("sub", middle, Float(0.5)), Float(0));
  const ExprPtr low = NotAbove(ToType(place, Type::kInt), axis.in - 1);
  const ExprPtr share = Binary("sub", place, ToType(low, Type::kFloat));
  return {low, neighbour(low), Binary("minimum", share, Float(1))};
}

ExprPtr NearestPlace(const Axis& axis, const ExprPtr& i, bool exact) {
  const float step = axis.step == 0 ? static_cast<float>(axis.in) / static_cast<float>(axis.out)
                                    : static_cast<float>(axis.step);
  const float shift = exact ? 0.5f : 0.0f;
  const ExprPtr numerator = exact ? AddInt(Scaled(i, 2 * axis.in), Int(axis.in)) : Scaled(i, axis.in);
  const int64_t denominator = exact ? 2 * axis.out : axis.out;
  // torch computes in floats: integers where they give the same places.
  bool same = true;
  for (int64_t j = 0; j < axis.out && same; ++j) {
    const int64_t theirs = std::min<int64_t>(
        static_cast<int64_t>(std::floor((static_cast<float>(j) + shift) * step)), axis.in - 1);
    const int64_t ours = (exact ? 2 * j * axis.in + axis.in : j * axis.in) / denominator;
    same = theirs == std::min(ours, axis.in - 1);
  }
  if (same) return NotAbove(DivInt(numerator, denominator), axis.in - 1);
  const ExprPtr place = Binary("mul", Binary("add", ToType(i, Type::kFloat), Float(shift)), Float(step));
  return NotAbove(ToType(place, Type::kInt), axis.in - 1);
}

std::vector<Axis> AxesOf(Lowering& at, const GraphNode& node, const ValuePtr& x, size_t dims) {
  const Shape& shape = at.ResultOf(node).shape;
  static const char* const kScales[3][3] = {
      {"scales"}, {"scales_h", "scales_w"}, {"scales_d", "scales_h", "scales_w"}};
  std::vector<Axis> axes(dims);
  for (size_t i = 0; i < dims; ++i) {
    Axis& axis = axes[i];
    axis.in = x->shape[i + 2];
    axis.out = shape[i + 2];
    axis.aligned = at.Flag(node, "align_corners", false);
    double scale = at.Number(node, kScales[dims - 1][i], 0);
    if (at.Has(node, "scale_factors") && node.args["scale_factors"].is_array())
      scale = node.args["scale_factors"].at(i).get<double>();
    if (scale > 0 && scale * static_cast<double>(axis.in) != static_cast<double>(axis.out))
      axis.step = 1 / scale;
  }
  return axes;
}

void Interpolate(Lowering& at, const GraphNode& node, size_t dims, bool linear, bool exact) {
  const ValuePtr given = SourceOf(at, node);
  const ValuePtr x = linear ? at.Plain(given) : at.Cheap(given, 12);
  const std::vector<Axis> axes = AxesOf(at, node, x, dims);
  const Type type = TypeOf(x->dtype);
  if (!linear) {
    return at.Set(node, at.Lazy(
                            x->dtype, at.ResultOf(node).shape,
                            [=](const Index& place) {
                              Index own = place;
                              for (size_t i = 0; i < dims; ++i)
                                own[i + 2] = NearestPlace(axes[i], place[i + 2], exact);
                              return x->at(own);
                            },
                            x->cost));
  }
  at.Set(node, at.Lazy(
                   x->dtype, at.ResultOf(node).shape,
                   [=](const Index& place) {
                     std::vector<Between> around;
                     for (size_t i = 0; i < dims; ++i) around.push_back(LinearPlace(axes[i], place[i + 2]));
                     const std::function<ExprPtr(Index, size_t)> mixed = [&](Index own,
                                                                             size_t dim) -> ExprPtr {
                       if (dim == dims) return ToType(x->at(own), Type::kFloat);
                       own[dim + 2] = around[dim].low;
                       const ExprPtr low = mixed(own, dim + 1);
                       own[dim + 2] = around[dim].high;
                       const ExprPtr high = mixed(own, dim + 1);
                       return Binary("add", low, Binary("mul", around[dim].share, Binary("sub", high, low)));
                     };
                     return ToType(mixed(place, 0), type);
                   },
                   3 << dims));
}

template <size_t dims, bool linear, bool exact>
void Upsample(Lowering& at, const GraphNode& node) {
  Interpolate(at, node, dims, linear, exact);
}

// --- Cubic ---

struct CubicTaps {
  ExprPtr places[4], weights[4];
};

CubicTaps CubicPlace(const Axis& axis, const ExprPtr& i) {
  ExprPtr low, t;
  if (axis.step == 0 || axis.aligned) {
    const int64_t denominator = axis.aligned ? std::max<int64_t>(axis.out - 1, 1) : 2 * axis.out;
    const ExprPtr numerator = axis.aligned ? Scaled(i, axis.out > 1 ? axis.in - 1 : 0)
                                           : AddInt(Scaled(i, 2 * axis.in), Int(axis.in - axis.out));
    low = DivInt(numerator, denominator);
    t = Times(ToType(ModInt(numerator, denominator), Type::kFloat),
              Float(1.0 / static_cast<double>(denominator)));
  } else {
    const ExprPtr place =
        Minus(Times(Plus(ToType(i, Type::kFloat), Float(0.5)), Float(axis.step)), Float(0.5));
    const ExprPtr floor = Unary("floor", place);
    low = ToType(floor, Type::kInt);
    t = Minus(place, floor);
  }
  constexpr double kA = -0.75;
  const auto near = [](const ExprPtr& x) {  // distance below 1
    return Plus(Times(Times(Minus(Times(Float(kA + 2), x), Float(kA + 3)), x), x), Float(1));
  };
  const auto far = [](const ExprPtr& x) {  // from 1 to 2
    const ExprPtr inner = Plus(Times(Minus(Times(Float(kA), x), Float(5 * kA)), x), Float(8 * kA));
    return Minus(Times(inner, x), Float(4 * kA));
  };
  const ExprPtr rest = Minus(Float(1), t);
  CubicTaps taps{{}, {far(Plus(t, Float(1))), near(t), near(rest), far(Plus(rest, Float(1)))}};
  for (int k = 0; k < 4; ++k) taps.places[k] = NotBelow(NotAbove(AddInt(low, Int(k - 1)), axis.in - 1), 0);
  return taps;
}

void Bicubic(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Plain(SourceOf(at, node));
  const std::vector<Axis> axes = AxesOf(at, node, x, 2);
  const auto element = [=](const Index& place) {
    const CubicTaps rows = CubicPlace(axes[0], place[2]), columns = CubicPlace(axes[1], place[3]);
    ExprPtr sum;
    for (int r = 0; r < 4; ++r) {
      ExprPtr line;
      for (int c = 0; c < 4; ++c) {
        Index own = place;
        own[2] = rows.places[r], own[3] = columns.places[c];
        const ExprPtr term = Times(columns.weights[c], ToType(x->at(own), Type::kFloat));
        line = line ? Plus(line, term) : term;
      }
      const ExprPtr term = Times(rows.weights[r], line);
      sum = sum ? Plus(sum, term) : term;
    }
    return ToType(sum, TypeOf(x->dtype));
  };
  at.Set(node, at.Stored(at.Lazy(x->dtype, at.ResultOf(node).shape, element, 80)));
}

// --- Samples at the places of a grid ---

// In places of the input, of a coordinate from -1 to 1.
ExprPtr GridPlace(const ExprPtr& coordinate, int64_t size, bool aligned) {
  const auto places = static_cast<double>(size);
  const ExprPtr shifted = Plus(coordinate, Float(1));
  if (aligned) return Times(shifted, Float((places - 1) / 2));
  return Times(Minus(Times(shifted, Float(places)), Float(1)), Float(0.5));
}

void GridSample(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Plain(at.Tensor(node, "input")), grid = at.Plain(at.Tensor(node, "grid"));
  const int64_t mode = at.Integer(node, "interpolation_mode", 0),
                padding = at.Integer(node, "padding_mode", 0);
  if (mode > 1) throw Unsupported("`" + node.op + "` of mode bicubic has no stage");
  if (padding > 1) throw Unsupported("`" + node.op + "` with padding by reflection has no stage");
  const bool aligned = at.Flag(node, "align_corners", false);
  const size_t dims = x->shape.size() - 2;
  const auto element = [=](const Index& place) {
    std::vector<ExprPtr> lows, shares;
    for (size_t i = 0; i < dims; ++i) {
      Index own = {place[0]};
      own.insert(own.end(), place.begin() + 2, place.end());
      own.push_back(Int(static_cast<int64_t>(dims - 1 - i)));  // x comes first in the grid
      const int64_t size = x->shape[i + 2];
      ExprPtr where = GridPlace(ToType(grid->at(own), Type::kFloat), size, aligned);
      if (padding == 1) where = Smaller(Larger(where, Float(0)), Float(static_cast<double>(size - 1)));
      const ExprPtr low = Unary(mode == 1 ? Op("round") : Op("floor"), where);
      lows.push_back(ToType(low, Type::kInt));
      shares.push_back(mode == 1 ? Float(0) : Minus(where, low));
    }
    ExprPtr sum;
    for (size_t corner = 0; corner < (mode == 1 ? 1u : 1u << dims); ++corner) {
      Index own = {place[0], place[1]};
      ExprPtr weight = Float(1), within = Bool(true);
      for (size_t i = 0; i < dims; ++i) {
        const bool high = (corner >> i) % 2 == 1;
        own.push_back(AddInt(lows[i], Int(high)));
        weight = Times(weight, high ? shares[i] : Minus(Float(1), shares[i]));
        within = And(within, And(Compare("less_equal", Int(0), own.back()),
                                 Compare("less", own.back(), Int(x->shape[i + 2]))));
      }
      const ExprPtr value = Guard(within, ToType(x->at(own), Type::kFloat), Float(0));
      const ExprPtr term = mode == 1 ? value : Times(weight, value);
      sum = sum ? Plus(sum, term) : term;
    }
    return ToType(sum, TypeOf(x->dtype));
  };
  at.Set(node, at.Stored(at.Lazy(x->dtype, at.ResultOf(node).shape, element, 60)));
}

// The grid of an affine map: theta times (x, y, [z,] 1).
void AffineGrid(Lowering& at, const GraphNode& node) {
  const ValuePtr theta = at.Plain(at.Tensor(node, "theta"));
  const bool aligned = at.Flag(node, "align_corners", false);
  const Shape& shape = at.ResultOf(node).shape;
  const size_t dims = shape.size() - 2;
  at.Set(node, at.Lazy(
                   theta->dtype, shape,
                   [=](const Index& place) {
                     const auto entry = [&](size_t column) {
                       const Index own = {place[0], place.back(), Int(static_cast<int64_t>(column))};
                       return ToType(theta->at(own), Type::kFloat);
                     };
                     ExprPtr sum = entry(dims);
                     for (size_t i = 0; i < dims; ++i) {
                       const size_t dim = dims - i;  // x is the last one
                       const auto size = static_cast<double>(shape[dim]);
                       const double step = size < 2 ? 0 : aligned ? 2 / (size - 1) : 2 / size;
                       const double start = size < 2 ? 0 : aligned ? -1 : 1 / size - 1;
                       const ExprPtr base =
                           Plus(Times(ToType(place[dim], Type::kFloat), Float(step)), Float(start));
                       sum = Plus(sum, Times(entry(i), base));
                     }
                     return ToType(sum, TypeOf(theta->dtype));
                   },
                   6));
}

}  // namespace

IndexingFunction InterpolationNamed(const std::string& op) {
  static const std::map<std::string, IndexingFunction> kTable = {
      {"upsample_nearest1d", Upsample<1, false, false>},
      {"upsample_nearest2d", Upsample<2, false, false>},
      {"upsample_nearest3d", Upsample<3, false, false>},
      {"_upsample_nearest_exact1d", Upsample<1, false, true>},
      {"_upsample_nearest_exact2d", Upsample<2, false, true>},
      {"_upsample_nearest_exact3d", Upsample<3, false, true>},
      {"upsample_linear1d", Upsample<1, true, false>},
      {"upsample_bilinear2d", Upsample<2, true, false>},
      {"upsample_trilinear3d", Upsample<3, true, false>},
      {"upsample_bicubic2d", Bicubic},
      {"grid_sampler", GridSample},
      {"grid_sampler_2d", GridSample},
      {"grid_sampler_3d", GridSample},
      {"affine_grid_generator", AffineGrid}};
  const auto found = kTable.find(op);
  return found == kTable.end() ? nullptr : found->second;
}

}  // namespace kevin::search
