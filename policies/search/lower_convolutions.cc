// Convolutions and transposed convolutions of 1 to 3 dimensions, with groups, stride, padding and dilation.

#include <algorithm>
#include <numeric>

#include "policies/search/lowering.h"

namespace kevin::search {
namespace {

// From this stride on a GPU writes the products of all taps as columns and collects the outputs from them: one product a phase
// would store single elements this far apart.
constexpr int64_t kLeastStrideOfColumns = 4;
// Divisions of indices: products, which read an element often, read a stored copy.
constexpr int kCostOfCollecting = 4;

// The numbers of a convolution, by spatial dimension.
struct ConvolutionForm {
  Shape stride, padding, dilation, kernel, in, out;
  int64_t images = 1, groups = 1, in_channels = 1, out_channels = 1;  // channels of one group
};

Index Slice3(const Index& index, size_t from) {
  return Index(index.begin() + static_cast<long>(from), index.end());
}

std::function<ExprPtr(const ExprPtr&, const Index&)> AddBias(const ValuePtr& bias) {
  if (!bias) return nullptr;
  return [bias](const ExprPtr& result, const Index& index) {
    return Binary("add", result, bias->at({index[1]}));
  };
}

Shape OutShape(const ConvolutionForm& form) {
  Shape shape = {form.images, form.groups * form.out_channels};
  shape.insert(shape.end(), form.out.begin(), form.out.end());
  return shape;
}

// x with a * x % modulus == 1 % modulus.
int64_t Inverse(int64_t a, int64_t modulus) {
  int64_t x = 0;
  while (a * x % modulus != 1 % modulus) ++x;
  return x;
}

ExprPtr Within(const ExprPtr& at, int64_t size) {
  return And(Compare("less_equal", Int(0), at), Compare("less", at, Int(size)));
}

// The channel `c` of group batch[0], where there are groups.
ExprPtr ChannelOf(const ConvolutionForm& form, const Index& batch, const ExprPtr& c, int64_t of_group) {
  return form.groups == 1 ? c : AddScaled(c, batch[0], of_group);
}

// The products of each input position of a transposed convolution with each tap: image, channel, taps, input positions.
Lowering::Product ProductOfColumns(const ConvolutionForm& form, const ValuePtr& x, const ValuePtr& weight) {
  const auto joined = [](Index index, Index::const_iterator begin, Index::const_iterator end) {
    index.insert(index.end(), begin, end);
    return index;
  };
  Lowering::Product product;
  if (form.groups > 1) product.batch = {form.groups};
  product.m = {form.out_channels};
  product.m.insert(product.m.end(), form.kernel.begin(), form.kernel.end());
  product.n = {form.images};
  product.n.insert(product.n.end(), form.in.begin(), form.in.end());
  product.k = {form.in_channels};
  product.lhs = [=](const Index& batch, const Index& m, const Index& k) {
    return weight->at(joined({ChannelOf(form, batch, k[0], form.in_channels)}, m.begin(), m.end()));
  };
  product.rhs = [=](const Index& batch, const Index& n, const Index& k) {
    return x->at(joined({n[0], ChannelOf(form, batch, k[0], form.in_channels)}, n.begin() + 1, n.end()));
  };
  product.index = [=](const Index& batch, const Index& m, const Index& n) {
    const Index channel = {n[0], ChannelOf(form, batch, m[0], form.out_channels)};
    return joined(joined(channel, m.begin() + 1, m.end()), n.begin() + 1, n.end());
  };
  return product;
}

// The first tap of a transposed convolution that reaches `from`, an output position plus the padding.
ExprPtr FirstTap(const ConvolutionForm& form, size_t d, const ExprPtr& from) {
  const int64_t common = std::gcd(form.stride[d], form.dilation[d]), step = form.stride[d] / common;
  return ModInt(Scaled(DivInt(from, common), Inverse(form.dilation[d] / common, step)), step);
}

// The value at an index of the output, which one tap reaches at most. `columns` as above.
ExprPtr FromColumns(const ConvolutionForm& form, const ValuePtr& columns, const Index& index) {
  Index tap, in;
  ExprPtr exists = Bool(true);
  for (size_t d = 0; d < form.stride.size(); ++d) {
    const ExprPtr from = AddInt(index[d + 2], Int(form.padding[d]));
    tap.push_back(FirstTap(form, d, from));
    in.push_back(DivInt(AddInt(from, Scaled(tap[d], -form.dilation[d])), form.stride[d]));
    exists =
        And(exists, And(Compare("equal", ModInt(from, std::gcd(form.stride[d], form.dilation[d])), Int(0)),
                        And(Compare("less", tap[d], Int(form.kernel[d])), Within(in[d], form.in[d]))));
  }
  Index at = {index[0], index[1]};
  at.insert(at.end(), tap.begin(), tap.end());
  at.insert(at.end(), in.begin(), in.end());
  return Guard(exists, ToType(columns->at(at), Type::kFloat), Float(0));
}

// "same" padding: the smaller half before.
void ReadPadding(const Lowering& lowering, const GraphNode& node, size_t spatial, ConvolutionForm& form) {
  const std::string word = lowering.Word(node, "padding", "");
  if (word == "same") {
    for (size_t d = 0; d < spatial; ++d) form.padding.push_back(form.dilation[d] * (form.kernel[d] - 1) / 2);
  } else if (word == "valid") {
    form.padding.assign(spatial, 0);
  } else {
    form.padding = lowering.IntegersFor(node, "padding", spatial, 0);
  }
}

}  // namespace

ValuePtr Lowering::Convolve(const GraphNode& node, size_t spatial) {
  ValuePtr x = Plain(Tensor(node, "input"));
  const bool lacks_batch = x->shape.size() == spatial + 1;
  if (lacks_batch) x = Unsqueeze(x, 0);
  const ValuePtr weight = Plain(Tensor(node, "weight"));
  ConvolutionForm form;
  form.stride = IntegersFor(node, "stride", spatial, 1);
  form.dilation = IntegersFor(node, "dilation", spatial, 1);
  form.kernel.assign(weight->shape.begin() + 2, weight->shape.end());
  ReadPadding(*this, node, spatial, form);
  form.groups = Integer(node, "groups", 1);
  form.images = x->shape[0];
  form.in_channels = weight->shape[1];
  form.out_channels = weight->shape[0] / form.groups;
  form.in.assign(x->shape.begin() + 2, x->shape.end());
  const Shape& declared = ResultOf(node).shape;
  form.out.assign(declared.end() - static_cast<long>(spatial), declared.end());
  const auto bias = AddBias(OptionalTensor(node, "bias"));
  const auto read = [=](const ExprPtr& image, const ExprPtr& channel, const Index& position,
                        const Index& tap) {
    Index at = {image, channel};
    ExprPtr inside = Bool(true);
    for (size_t d = 0; d < spatial; ++d) {
      at.push_back(AddInt(AddInt(Scaled(position[d], form.stride[d]), Scaled(tap[d], form.dilation[d])),
                          Int(-form.padding[d])));
      inside = And(inside, Within(at.back(), form.in[d]));
    }
    return Guard(inside, ToType(x->at(at), Type::kFloat), Float(0));
  };
  const Shape shape = OutShape(form);
  ValuePtr y;
  if (form.in_channels == 1 && form.out_channels <= 2 && form.groups > 1) {
    // Depthwise: one short sum for each output.
    const std::vector<Loop> outer = NewLoops(shape), inner = NewLoops(form.kernel);
    const Index index = Vars(outer), tap = Vars(inner);
    Index weight_index = {index[1], Int(0)};
    weight_index.insert(weight_index.end(), tap.begin(), tap.end());
    const ExprPtr element =
        Binary("mul", read(index[0], DivInt(index[1], form.out_channels), Slice3(index, 2), tap),
               ToType(weight->at(weight_index), Type::kFloat));
    y = NewStored(name_, x->dtype, shape);
    Reduction reduction{outer, inner, {{"sum", element, 0, 0}}, {}, {}};
    reduction.outer_stores = {
        {y->buffer, OffsetOf(index, shape), bias ? bias(Result(0), index) : Result(0), nullptr}};
    Add(name_, reduction, 2.0 * static_cast<double>(Count(shape) * Count(form.kernel)));
  } else {
    Product product;
    if (form.groups > 1) product.batch = {form.groups};
    product.m = {form.out_channels};
    product.n = {form.images};
    product.n.insert(product.n.end(), form.out.begin(), form.out.end());
    product.k = {form.in_channels};
    product.k.insert(product.k.end(), form.kernel.begin(), form.kernel.end());
    product.lhs = [=](const Index& batch, const Index& m, const Index& k) {
      Index at = {ChannelOf(form, batch, m[0], form.out_channels)};
      at.insert(at.end(), k.begin(), k.end());
      return weight->at(at);
    };
    product.rhs = [=](const Index& batch, const Index& n, const Index& k) {
      return read(n[0], ChannelOf(form, batch, k[0], form.in_channels), Slice3(n, 1), Slice3(k, 1));
    };
    product.index = [=](const Index& batch, const Index& m, const Index& n) {
      Index at = {n[0], ChannelOf(form, batch, m[0], form.out_channels)};
      at.insert(at.end(), n.begin() + 1, n.end());
      return at;
    };
    product.after = bias;
    y = Multiply(name_, x->dtype, shape, product);
  }
  return lacks_batch ? Reshape(y, declared) : y;
}

ValuePtr Lowering::ConvolveTransposed(const GraphNode& node, size_t spatial) {
  ValuePtr x = Plain(Tensor(node, "input"));
  const bool lacks_batch = x->shape.size() == spatial + 1;
  if (lacks_batch) x = Unsqueeze(x, 0);
  const ValuePtr weight = Plain(Tensor(node, "weight"));
  ConvolutionForm form;
  form.stride = IntegersFor(node, "stride", spatial, 1);
  form.dilation = IntegersFor(node, "dilation", spatial, 1);
  form.padding = IntegersFor(node, "padding", spatial, 0);
  form.kernel.assign(weight->shape.begin() + 2, weight->shape.end());
  form.groups = Integer(node, "groups", 1);
  form.images = x->shape[0];
  form.in_channels = weight->shape[0] / form.groups;
  form.out_channels = weight->shape[1];
  form.in.assign(x->shape.begin() + 2, x->shape.end());
  const Shape& declared = ResultOf(node).shape;
  form.out.assign(declared.end() - static_cast<long>(spatial), declared.end());
  const ValuePtr bias = OptionalTensor(node, "bias");
  bool has_lone_taps = task_.kind == "cuda" && form.stride.back() >= kLeastStrideOfColumns;
  for (size_t d = 0; d < spatial; ++d)
    has_lone_taps &= form.kernel[d] <= form.stride[d] / std::gcd(form.stride[d], form.dilation[d]);
  if (has_lone_taps) {
    Shape shape = {form.images, form.groups * form.out_channels};
    shape.insert(shape.end(), form.kernel.begin(), form.kernel.end());
    shape.insert(shape.end(), form.in.begin(), form.in.end());
    const ValuePtr columns =
        Multiply(name_, bias ? "float32" : x->dtype, shape, ProductOfColumns(form, x, weight));
    const auto at = [=](const Index& index) {
      const ExprPtr value = FromColumns(form, columns, index);
      return bias ? Binary("add", value, ToType(bias->at({index[1]}), Type::kFloat)) : value;
    };
    const ValuePtr y = Lazy(x->dtype, OutShape(form), at, kCostOfCollecting);
    return lacks_batch ? Reshape(y, declared) : y;
  }
  // Output position o = v * stride + f. A tap t reaches it from input position (o + padding - dilation * t) / stride,
  // where that is whole: for taps first(f) + step * t', or for none.
  Product product;
  std::vector<bool> has_phases(spatial);
  std::vector<int> phase_at(spatial, -1);
  Shape common(spatial), step(spatial);
  if (form.groups > 1) product.batch = {form.groups};
  product.m = {form.out_channels};
  product.n = {form.images};
  product.k = {form.in_channels};
  for (size_t d = 0; d < spatial; ++d) {
    const int64_t s = form.stride[d];
    has_phases[d] = s > 1;
    common[d] = std::gcd(s, form.dilation[d]);
    step[d] = s / common[d];
    if (has_phases[d]) {
      phase_at[d] = static_cast<int>(product.batch.size());
      product.batch.push_back(s);
    }
    product.n.push_back((form.out[d] + s - 1) / s);
    product.k.push_back((form.kernel[d] + step[d] - 1) / step[d]);
  }
  const auto shifted = [=](const Index& batch, size_t d) {
    const ExprPtr phase = has_phases[d] ? batch[static_cast<size_t>(phase_at[d])] : Int(0);
    return AddInt(phase, Int(form.padding[d]));
  };
  const auto first_tap = [=](const Index& batch, size_t d) { return FirstTap(form, d, shifted(batch, d)); };
  // Of one dimension: the output and input position, the tap, and whether the input position exists.
  struct Place {
    ExprPtr out, in, tap, exists;
  };
  const auto place = [=](const Index& batch, const ExprPtr& v, const ExprPtr& t, size_t d) -> Place {
    const int64_t s = form.stride[d], dilation = form.dilation[d];
    const ExprPtr first = first_tap(batch, d), offset = shifted(batch, d);
    const ExprPtr from =
        dilation == 1 ? DivInt(offset, s) : DivInt(AddInt(offset, Scaled(first, -dilation)), s);
    const ExprPtr in = AddInt(AddInt(v, from), Scaled(t, -dilation / common[d]));
    const ExprPtr phase = has_phases[d] ? batch[static_cast<size_t>(phase_at[d])] : Int(0);
    return {AddInt(Scaled(v, s), phase), in, AddInt(first, Scaled(t, step[d])), Within(in, form.in[d])};
  };
  product.lhs = [=](const Index& batch, const Index& m, const Index& k) {
    Index at = {ChannelOf(form, batch, k[0], form.in_channels), m[0]};
    for (size_t d = 0; d < spatial; ++d) at.push_back(place(batch, Int(0), k[d + 1], d).tap);
    return weight->at(at);
  };
  product.rhs = [=](const Index& batch, const Index& n, const Index& k) {
    Index at = {n[0], ChannelOf(form, batch, k[0], form.in_channels)};
    ExprPtr inside = Bool(true);
    for (size_t d = 0; d < spatial; ++d) {
      const Place one = place(batch, n[d + 1], k[d + 1], d);
      at.push_back(one.in);
      inside = And(inside, one.exists);
    }
    return Guard(inside, ToType(x->at(at), Type::kFloat), Float(0));
  };
  product.limit = [=](const Index& batch, size_t k) -> ExprPtr {
    if (k == 0 || !has_phases[k - 1]) return nullptr;
    const size_t d = k - 1;
    if (form.kernel[d] % step[d] == 0 && common[d] == 1) return nullptr;
    const ExprPtr taps =
        DivInt(AddInt(Scaled(first_tap(batch, d), -1), Int(form.kernel[d] + step[d] - 1)), step[d]);
    if (common[d] == 1) return taps;
    // Not positive where no tap reaches the phase.
    return MulInt(taps, AddInt(Int(1), Scaled(ModInt(shifted(batch, d), common[d]), -1)));
  };
  product.index = [=](const Index& batch, const Index& m, const Index& n) {
    Index at = {n[0], ChannelOf(form, batch, m[0], form.out_channels)};
    for (size_t d = 0; d < spatial; ++d) at.push_back(place(batch, n[d + 1], Int(0), d).out);
    return at;
  };
  product.inside = [=](const Index& batch, const Index&, const Index& n) {
    ExprPtr inside = Bool(true);
    for (size_t d = 0; d < spatial; ++d)
      inside = And(inside, Compare("less", place(batch, n[d + 1], Int(0), d).out, Int(form.out[d])));
    return inside;
  };
  product.after = AddBias(bias);
  const ValuePtr y = Multiply(name_, x->dtype, OutShape(form), product);
  return lacks_batch ? Reshape(y, declared) : y;
}

}  // namespace kevin::search
