// Normalisations: statistics as one reduction, then elementwise work that Fuse joins to it.

#include <algorithm>
#include <map>

#include "policies/search/lowering.h"

namespace kevin::search {
namespace {

using Args = std::vector<ExprPtr>;

ExprPtr InverseDeviation(const ExprPtr& variance, double epsilon) {
  return Unary("rsqrt", Binary("add", variance, Float(epsilon)));
}

// A value per channel as a tensor that broadcasts over `rank` dims, with the channels in dim 1.
Shape ChannelShape(size_t rank, int64_t channels) {
  Shape shape(rank, 1);
  shape[rank > 1 ? 1 : 0] = channels;
  return shape;
}

}  // namespace

ValuePtr Lowering::Normalise(const ValuePtr& x, const ValuePtr& mean, const ValuePtr& inverse,
                             const ValuePtr& weight, const ValuePtr& bias) {
  std::vector<ValuePtr> values = {x, mean, inverse};
  if (weight) values.push_back(weight);
  if (bias) values.push_back(bias);
  return MapFloat(values, [has_weight = weight != nullptr, has_bias = bias != nullptr](const Args& a) {
    // Two steps and no folding of mean and scale: x - mean is exact where they are near.
    ExprPtr y = Binary("mul", Binary("sub", a[0], a[1]), a[2]);
    if (has_weight) y = Binary("mul", y, a[3]);
    return has_bias ? Binary("add", y, a.back()) : y;
  });
}

namespace {

Lowering::Moments InverseMoments(Lowering& at, const ValuePtr& x, const std::vector<int>& dims,
                                 double epsilon) {
  return at.MeanAndVariance(x, dims, 0, [epsilon](const ExprPtr& e) { return InverseDeviation(e, epsilon); });
}

ValuePtr NormInput(Lowering& at, const GraphNode& node) { return at.Cheap(at.Tensor(node, "input"), 8); }

std::vector<int> LastDims(Lowering& at, const GraphNode& node, const ValuePtr& x) {
  const size_t normal = at.Integers(node, "normalized_shape").size(), rank = x->shape.size();
  std::vector<int> dims;
  for (size_t i = rank - normal; i < rank; ++i) dims.push_back(static_cast<int>(i));
  return dims;
}

void LayerNorm(Lowering& at, const GraphNode& node) {
  const ValuePtr x = NormInput(at, node);
  const Lowering::Moments moments =
      InverseMoments(at, x, LastDims(at, node, x), at.Number(node, "eps", 1e-5));
  at.Set(node, at.Normalise(x, moments.mean, moments.spread, at.OptionalTensor(node, "weight"),
                            at.OptionalTensor(node, "bias")));
}

void RmsNorm(Lowering& at, const GraphNode& node) {
  const ValuePtr x = NormInput(at, node), weight = at.OptionalTensor(node, "weight");
  const std::vector<int> dims = LastDims(at, node, x);
  const double epsilon = at.Number(node, "eps",
                                   x->dtype == "float32"   ? 1.1920928955078125e-07
                                   : x->dtype == "float16" ? 9.765625e-4
                                                           : 7.8125e-3);
  double count = 1;
  for (const int dim : dims) count *= static_cast<double>(x->shape[dim]);
  const ValuePtr squares =
      at.Map({x}, "float32", Type::kFloat, [](const Args& a) { return Binary("mul", a[0], a[0]); });
  const ValuePtr inverse = at.Reduce("sum", squares, dims, true, "float32", [=](const ExprPtr& e) {
    return InverseDeviation(Binary("mul", e, Float(1 / count)), epsilon);
  });
  std::vector<ValuePtr> values = {x, inverse};
  if (weight) values.push_back(weight);
  at.Set(node, at.MapFloat(values, [](const Args& a) {
    const ExprPtr y = Binary("mul", a[0], a[1]);
    return a.size() > 2 ? Binary("mul", y, a[2]) : y;
  }));
}

void GroupNorm(Lowering& at, const GraphNode& node) {
  const ValuePtr x = NormInput(at, node);
  const int64_t groups = at.Integer(node, node.op == "group_norm" ? "num_groups" : "group", 1);
  const int64_t channels = x->shape.at(1);
  Shape split = {x->shape[0], groups, channels / groups};
  split.insert(split.end(), x->shape.begin() + 2, x->shape.end());
  std::vector<int> dims;
  for (size_t i = 2; i < split.size(); ++i) dims.push_back(static_cast<int>(i));
  const ValuePtr grouped = at.Reshape(x, split);
  const Lowering::Moments moments = InverseMoments(at, grouped, dims, at.Number(node, "eps", 1e-5));
  Shape per_channel(split.size(), 1);
  per_channel[1] = groups;
  per_channel[2] = channels / groups;
  const auto shaped = [&](const ValuePtr& value) { return value ? at.Reshape(value, per_channel) : nullptr; };
  const ValuePtr y =
      at.Normalise(grouped, moments.mean, moments.spread, shaped(at.OptionalTensor(node, "weight")),
                   shaped(at.OptionalTensor(node, "bias")));
  at.Set(node, at.Reshape(y, x->shape));
}

// Over all dims but the channels; of each image alone for instance_norm.
void BatchNorm(Lowering& at, const GraphNode& node) {
  const ValuePtr x = NormInput(at, node);
  const size_t rank = x->shape.size();
  const bool is_instance = node.op == "instance_norm";
  const double epsilon = at.Number(node, "eps", 1e-5);
  const Shape per_channel = ChannelShape(rank, x->shape.at(1));
  const auto shaped = [&](const char* name) {
    const ValuePtr value = at.OptionalTensor(node, name);
    return value ? at.Reshape(value, per_channel) : nullptr;
  };
  const ValuePtr weight = shaped("weight"), bias = shaped("bias");
  if (is_instance ? at.Flag(node, "use_input_stats", true) : at.Flag(node, "training", false)) {
    std::vector<int> dims;
    for (size_t i = is_instance ? 2 : 0; i < rank; ++i) {
      if (i != 1) dims.push_back(static_cast<int>(i));
    }
    const Lowering::Moments moments = InverseMoments(at, x, dims, epsilon);
    return at.Set(node, at.Normalise(x, moments.mean, moments.spread, weight, bias));
  }
  const ValuePtr mean = shaped("running_mean"), variance = shaped("running_var");
  if (!mean || !variance) throw Unsupported("`" + node.op + "` without statistics has no stage");
  const ValuePtr inverse =
      at.MapFloat({variance}, [epsilon](const Args& a) { return InverseDeviation(a[0], epsilon); });
  at.Set(node, at.Normalise(x, mean, inverse, weight, bias));
}

}  // namespace

bool Lowering::Normalised(const GraphNode& node) {
  using Norm = void (*)(Lowering&, const GraphNode&);
  static const std::map<std::string, Norm> kTable = {
      {"layer_norm", LayerNorm},    {"native_layer_norm", LayerNorm}, {"rms_norm", RmsNorm},
      {"_fused_rms_norm", RmsNorm}, {"group_norm", GroupNorm},        {"native_group_norm", GroupNorm},
      {"batch_norm", BatchNorm},    {"native_batch_norm", BatchNorm}, {"cudnn_batch_norm", BatchNorm},
      {"instance_norm", BatchNorm}};
  const auto found = kTable.find(node.op);
  if (found == kTable.end()) return false;
  found->second(*this, node);
  return true;
}

}  // namespace kevin::search
