// Operations that read other places of one tensor, known beforehand: padding, flips, rolls, repeats, shuffles, and windows
// as dims. Maps of indices without a stage, but for col2im.

#include <algorithm>

#include "policies/search/indexing_parts.h"

namespace kevin::search {
namespace {

using IndexMap = std::function<Index(const Index&)>;

ValuePtr InputOf(Lowering& at, const GraphNode& node) {
  return at.Tensor(node, node.args.contains("self") ? "self" : "input");
}

void SetMapped(Lowering& at, const GraphNode& node, const ValuePtr& x, const IndexMap& map) {
  at.Set(node, at.Lazy(
                   x->dtype, at.ResultOf(node).shape,
                   [x, map](const Index& place) { return x->at(map(place)); }, x->cost));
}

ExprPtr AtLeast(const ExprPtr& a, int64_t low) { return Select(Compare("less", a, Int(low)), Int(low), a); }
ExprPtr AtMost(const ExprPtr& a, int64_t high) { return Select(Compare("less", Int(high), a), Int(high), a); }

// --- Padding ---

enum class PadMode { kConstant, kReflect, kReplicate, kCircular };

PadMode ModeOf(const std::string& word) {
  if (word == "constant") return PadMode::kConstant;
  if (word == "reflect") return PadMode::kReflect;
  if (word == "replicate") return PadMode::kReplicate;
  if (word == "circular") return PadMode::kCircular;
  throw Unsupported("`pad` of mode " + word + " has no stage");
}

// The place in a dim of `size` that `index`, which may lie outside, stands for.
ExprPtr Inside(const ExprPtr& index, int64_t size, PadMode mode) {
  if (mode == PadMode::kReplicate) return AtLeast(AtMost(index, size - 1), 0);
  if (mode == PadMode::kCircular) return ModInt(AddInt(index, Int(size)), size);
  const ExprPtr above = Select(Compare("less", index, Int(0)), Scaled(index, -1), index);
  return Select(Compare("less", Int(size - 1), above), AddInt(Int(2 * (size - 1)), Scaled(above, -1)), above);
}

// `pad` has two numbers a dim, from the last dim on.
void Padded(Lowering& at, const GraphNode& node, const ValuePtr& given, const Shape& pad, PadMode mode,
            double fill) {
  // Padding reads an element a few times at most, but guards and windows around it repeat its arithmetic.
  const ValuePtr x = mode == PadMode::kConstant ? given : at.Cheap(given, 12);
  const size_t rank = x->shape.size();
  const ExprPtr otherwise = ToType(Float(fill), TypeOf(x->dtype));
  at.Set(node, at.Lazy(
                   x->dtype, at.ResultOf(node).shape,
                   [=](const Index& place) {
                     Index own = place;
                     ExprPtr within = Bool(true);
                     for (size_t i = 0; 2 * i + 1 < pad.size(); ++i) {
                       const size_t dim = rank - 1 - i;
                       if (pad[2 * i] == 0 && pad[2 * i + 1] == 0) continue;
                       own[dim] = AddInt(place[dim], Int(-pad[2 * i]));
                       if (mode != PadMode::kConstant) {
                         own[dim] = Inside(own[dim], x->shape[dim], mode);
                         continue;
                       }
                       within = And(within, Compare("less_equal", Int(0), own[dim]));
                       within = And(within, Compare("less", own[dim], Int(x->shape[dim])));
                     }
                     return Guard(within, x->at(own), otherwise);
                   },
                   x->cost));
}

void Pad(Lowering& at, const GraphNode& node) {
  const ValuePtr x = InputOf(at, node);
  const std::string& op = node.op;
  if (op == "_pad_enum") {
    static const char* const kModes[] = {"reflect", "replicate", "circular", "constant"};
    const auto mode = static_cast<size_t>(at.Integer(node, "mode", 0));
    return Padded(at, node, x, at.Integers(node, "pad"), ModeOf(kModes[std::min<size_t>(mode, 3)]),
                  at.Number(node, "value", 0));
  }
  if (op == "constant_pad_nd" || op == "pad") {
    const PadMode mode = op == "pad" ? ModeOf(at.Word(node, "mode", "constant")) : PadMode::kConstant;
    return Padded(at, node, x, at.Integers(node, "pad"), mode, at.Number(node, "value", 0));
  }
  const PadMode mode = op.starts_with("reflection")    ? PadMode::kReflect
                       : op.starts_with("replication") ? PadMode::kReplicate
                                                       : PadMode::kCircular;
  Padded(at, node, x, at.Integers(node, node.args.contains("padding") ? "padding" : "pad"), mode, 0);
}

// --- Other places of the same dims ---

void Flip(Lowering& at, const GraphNode& node) {
  const ValuePtr x = InputOf(at, node);
  Shape dims = at.Integers(node, "dims");
  if (node.op == "fliplr") dims = {1};
  if (node.op == "flipud") dims = {0};
  SetMapped(at, node, x, [=](const Index& place) {
    Index own = place;
    for (const int64_t given : dims) {
      const size_t dim = PositiveDim(given, place.size());
      own[dim] = AddInt(Int(x->shape[dim] - 1), Scaled(place[dim], -1));
    }
    return own;
  });
}

void Roll(Lowering& at, const GraphNode& node) {
  const ValuePtr x = InputOf(at, node);
  const Shape shifts = at.Integers(node, "shifts"), dims = at.Integers(node, "dims");
  const auto back = [](const ExprPtr& index, int64_t shift, int64_t size) {
    const int64_t left = ((-shift) % size + size) % size;
    return ModInt(AddInt(index, Int(left)), size);
  };
  SetMapped(at, node, x, [=](const Index& place) {
    // Without dims torch rolls the flat tensor.
    if (dims.empty())
      return IndexOf(back(OffsetOf(place, x->shape), shifts.at(0), Count(x->shape)), x->shape);
    Index own = place;
    for (size_t i = 0; i < dims.size(); ++i) {
      const size_t dim = PositiveDim(dims[i], place.size());
      own[dim] = back(own[dim], shifts.at(i), x->shape[dim]);
    }
    return own;
  });
}

void RepeatWhole(Lowering& at, const GraphNode& node) {
  const ValuePtr x = InputOf(at, node);
  const size_t added = at.ResultOf(node).shape.size() - x->shape.size();
  SetMapped(at, node, x, [=](const Index& place) {
    Index own(place.begin() + static_cast<long>(added), place.end());
    for (size_t dim = 0; dim < own.size(); ++dim) own[dim] = ModInt(own[dim], x->shape[dim]);
    return own;
  });
}

void RepeatInterleave(Lowering& at, const GraphNode& node) {
  if (node.args.contains("repeats") && node.args["repeats"].is_object())
    throw Unsupported("`repeat_interleave` by a tensor has no stage");
  const int64_t repeats = at.Integer(node, "repeats", 1);
  ValuePtr x = InputOf(at, node);
  if (!at.Has(node, "dim")) x = at.Reshape(x, {Count(x->shape)});
  const size_t dim = PositiveDim(at.Integer(node, "dim", 0), x->shape.size());
  SetMapped(at, node, x, [=](const Index& place) {
    Index own = place;
    own[dim] = DivInt(place[dim], repeats);
    return own;
  });
}

void Meshgrid(Lowering& at, const GraphNode& node) {
  const std::vector<ValuePtr> axes = at.Tensors(node, "tensors");
  const bool swaps = at.Word(node, "indexing", "ij") == "xy" && axes.size() > 1;
  for (size_t i = 0; i < axes.size(); ++i) {
    const size_t dim = swaps && i < 2 ? 1 - i : i;
    const ValuePtr axis = axes[i];
    at.Set(node,
           at.Lazy(
               axis->dtype, at.ResultOf(node, i).shape,
               [axis, dim](const Index& place) {
                 return axis->shape.empty() ? axis->at({}) : axis->at({place[dim]});
               },
               axis->cost),
           i);
  }
}

// --- Shuffles and windows: reshapes and permutations ---

void PixelShuffle(Lowering& at, const GraphNode& node) {
  const ValuePtr x = InputOf(at, node);
  const bool back = node.op == "pixel_unshuffle";
  const int64_t r = at.Integer(node, back ? "downscale_factor" : "upscale_factor", 1);
  SetMapped(at, node, x, [=](const Index& place) {
    Index own = place;
    const size_t h = place.size() - 2, w = h + 1, c = h - 1;
    if (back) {
      own[c] = DivInt(place[c], r * r);
      own[h] = AddInt(Scaled(place[h], r), ModInt(DivInt(place[c], r), r));
      own[w] = AddInt(Scaled(place[w], r), ModInt(place[c], r));
    } else {
      own[c] = AddInt(Scaled(place[c], r * r), AddInt(Scaled(ModInt(place[h], r), r), ModInt(place[w], r)));
      own[h] = DivInt(place[h], r);
      own[w] = DivInt(place[w], r);
    }
    return own;
  });
}

void ChannelShuffle(Lowering& at, const GraphNode& node) {
  const ValuePtr x = InputOf(at, node);
  const int64_t groups = at.Integer(node, "groups", 1), each = x->shape.at(1) / groups;
  SetMapped(at, node, x, [=](const Index& place) {
    Index own = place;
    own[1] = AddInt(Scaled(ModInt(place[1], groups), each), DivInt(place[1], groups));
    return own;
  });
}

void Unfold(Lowering& at, const GraphNode& node) {
  const ValuePtr x = InputOf(at, node);
  const size_t dim = PositiveDim(at.Integer(node, "dimension", 0), x->shape.size());
  const int64_t step = at.Integer(node, "step", 1);
  SetMapped(at, node, x, [=](const Index& place) {
    Index own(place.begin(), place.end() - 1);
    if (own.empty()) return own;
    own[dim] = AddInt(Scaled(place[dim], step), place.back());
    return own;
  });
}

void Im2Col(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Cheap(InputOf(at, node), 12);
  const Shape kernel = at.IntegersFor(node, "kernel_size", 2, 1),
              dilation = at.IntegersFor(node, "dilation", 2, 1);
  const Shape padding = at.IntegersFor(node, "padding", 2, 0), stride = at.IntegersFor(node, "stride", 2, 1);
  const Shape& shape = at.ResultOf(node).shape;
  const size_t h = x->shape.size() - 2;
  const int64_t channels = x->shape[h - 1];
  const auto size = [&](size_t i) {
    return (x->shape[h + i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) / stride[i] + 1;
  };
  const Shape positions = {size(0), size(1)};
  at.Set(node, at.Lazy(
                   x->dtype, shape,
                   [=](const Index& place) {
                     const Index tap = IndexOf(place[place.size() - 2], {channels, kernel[0], kernel[1]});
                     const Index position = IndexOf(place.back(), positions);
                     Index own(place.begin(), place.end() - 2);
                     own.push_back(tap[0]);
                     ExprPtr within = Bool(true);
                     for (size_t i = 0; i < 2; ++i) {
                       const ExprPtr at_dim =
                           AddInt(AddInt(Scaled(position[i], stride[i]), Scaled(tap[i + 1], dilation[i])),
                                  Int(-padding[i]));
                       within = And(within, And(Compare("less_equal", Int(0), at_dim),
                                                Compare("less", at_dim, Int(x->shape[h + i]))));
                       own.push_back(at_dim);
                     }
                     return Guard(within, x->at(own), ToType(Float(0), TypeOf(x->dtype)));
                   },
                   x->cost));
}

// The sum over the taps of the window of the columns that overlap at a place.
void Col2Im(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Cheap(InputOf(at, node), kReadCost);
  const Shape kernel = at.IntegersFor(node, "kernel_size", 2, 1),
              dilation = at.IntegersFor(node, "dilation", 2, 1);
  const Shape padding = at.IntegersFor(node, "padding", 2, 0), stride = at.IntegersFor(node, "stride", 2, 1);
  Shape shape = at.ResultOf(node).shape;
  const size_t h = shape.size() - 2;
  Shape positions;
  for (size_t i = 0; i < 2; ++i)
    positions.push_back((shape[h + i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) / stride[i] + 1);
  const Shape taps_shape = {shape[h - 1], kernel[0], kernel[1]};
  shape.insert(shape.end(), kernel.begin(), kernel.end());
  const ValuePtr taps = at.Lazy(
      x->dtype, shape,
      [=](const Index& place) {
        Index own(place.begin(), place.begin() + static_cast<long>(h) - 1), position;
        ExprPtr within = Bool(true);
        for (size_t i = 0; i < 2; ++i) {
          const ExprPtr from =
              AddInt(AddInt(place[h + i], Int(padding[i])), Scaled(place[h + 2 + i], -dilation[i]));
          position.push_back(DivInt(from, stride[i]));
          within = And(within, Compare("equal", ModInt(from, stride[i]), Int(0)));
          within = And(within, And(Compare("less_equal", Int(0), from),
                                   Compare("less", position[i], Int(positions[i]))));
        }
        own.push_back(OffsetOf({place[h - 1], place[h + 2], place[h + 3]}, taps_shape));
        own.push_back(OffsetOf(position, positions));
        return Guard(within, x->at(own), ToType(Float(0), TypeOf(x->dtype)));
      },
      x->cost);
  at.Set(node, at.Reduce("sum", taps, {static_cast<int>(h) + 2, static_cast<int>(h) + 3}, false, x->dtype));
}

}  // namespace

IndexingFunction ResamplingNamed(const std::string& op) {
  static const std::map<std::string, IndexingFunction> kTable = {{"constant_pad_nd", Pad},
                                                                 {"pad", Pad},
                                                                 {"reflection_pad1d", Pad},
                                                                 {"reflection_pad2d", Pad},
                                                                 {"reflection_pad3d", Pad},
                                                                 {"replication_pad1d", Pad},
                                                                 {"replication_pad2d", Pad},
                                                                 {"replication_pad3d", Pad},
                                                                 {"_pad_circular", Pad},
                                                                 {"_pad_enum", Pad},
                                                                 {"flip", Flip},
                                                                 {"fliplr", Flip},
                                                                 {"flipud", Flip},
                                                                 {"roll", Roll},
                                                                 {"repeat", RepeatWhole},
                                                                 {"tile", RepeatWhole},
                                                                 {"repeat_interleave", RepeatInterleave},
                                                                 {"meshgrid", Meshgrid},
                                                                 {"pixel_shuffle", PixelShuffle},
                                                                 {"pixel_unshuffle", PixelShuffle},
                                                                 {"channel_shuffle", ChannelShuffle},
                                                                 {"native_channel_shuffle", ChannelShuffle},
                                                                 {"unfold", Unfold},
                                                                 {"im2col", Im2Col},
                                                                 {"col2im", Col2Im}};
  const auto found = kTable.find(op);
  return found == kTable.end() ? nullptr : found->second;
}

}  // namespace kevin::search
