// Normalisations: statistics as one reduction, then elementwise work that Fuse joins to it.

#include <algorithm>

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

bool Lowering::Normalised(const GraphNode& node) {
  const std::string& op = node.op;
  if (op == "layer_norm" || op == "rms_norm" || op == "native_layer_norm" || op == "_fused_rms_norm") {
    const ValuePtr x = Cheap(Tensor(node, "input"), 8);
    const size_t normal = Integers(node, "normalized_shape").size(), rank = x->shape.size();
    std::vector<int> dims;
    for (size_t i = rank - normal; i < rank; ++i) dims.push_back(static_cast<int>(i));
    const ValuePtr weight = OptionalTensor(node, "weight"), bias = OptionalTensor(node, "bias");
    if (op.find("rms") == std::string::npos) {
      const double epsilon = Number(node, "eps", 1e-5);
      const Moments moments =
          MeanAndVariance(x, dims, 0, [epsilon](const ExprPtr& e) { return InverseDeviation(e, epsilon); });
      Set(node, Normalise(x, moments.mean, moments.spread, weight, bias));
      return true;
    }
    const double epsilon = Number(node, "eps",
                                  x->dtype == "float32"   ? 1.1920928955078125e-07
                                  : x->dtype == "float16" ? 9.765625e-4
                                                          : 7.8125e-3);
    double count = 1;
    for (const int dim : dims) count *= static_cast<double>(x->shape[dim]);
    const ValuePtr squares =
        Map({x}, "float32", Type::kFloat, [](const Args& a) { return Binary("mul", a[0], a[0]); });
    const ValuePtr inverse = Reduce("sum", squares, dims, true, "float32", [=](const ExprPtr& e) {
      return InverseDeviation(Binary("mul", e, Float(1 / count)), epsilon);
    });
    std::vector<ValuePtr> values = {x, inverse};
    if (weight) values.push_back(weight);
    Set(node, MapFloat(values, [](const Args& a) {
          const ExprPtr y = Binary("mul", a[0], a[1]);
          return a.size() > 2 ? Binary("mul", y, a[2]) : y;
        }));
    return true;
  }
  if (op == "group_norm" || op == "native_group_norm") {
    const ValuePtr x = Cheap(Tensor(node, "input"), 8);
    const int64_t groups = op == "group_norm" ? Integer(node, "num_groups", 1) : Integer(node, "group", 1);
    const int64_t channels = x->shape.at(1);
    Shape split = {x->shape[0], groups, channels / groups};
    split.insert(split.end(), x->shape.begin() + 2, x->shape.end());
    std::vector<int> dims;
    for (size_t i = 2; i < split.size(); ++i) dims.push_back(static_cast<int>(i));
    const double epsilon = Number(node, "eps", 1e-5);
    const ValuePtr grouped = Reshape(x, split);
    const Moments moments = MeanAndVariance(
        grouped, dims, 0, [epsilon](const ExprPtr& e) { return InverseDeviation(e, epsilon); });
    Shape per_channel(split.size(), 1);
    per_channel[1] = groups;
    per_channel[2] = channels / groups;
    const auto shaped = [&](const ValuePtr& value) { return value ? Reshape(value, per_channel) : nullptr; };
    const ValuePtr y =
        Normalise(grouped, moments.mean, moments.spread, shaped(OptionalTensor(node, "weight")),
                  shaped(OptionalTensor(node, "bias")));
    Set(node, Reshape(y, x->shape));
    return true;
  }
  if (op == "batch_norm" || op == "instance_norm" || op == "native_batch_norm" || op == "cudnn_batch_norm") {
    const ValuePtr x = Cheap(Tensor(node, "input"), 8);
    const size_t rank = x->shape.size();
    const int64_t channels = x->shape.at(1);
    const bool is_instance = op == "instance_norm";
    const bool uses_statistics =
        is_instance ? Flag(node, "use_input_stats", true) : Flag(node, "training", false);
    const double epsilon = Number(node, "eps", 1e-5);
    const Shape per_channel = ChannelShape(rank, channels);
    const auto shaped = [&](const ValuePtr& value) { return value ? Reshape(value, per_channel) : nullptr; };
    const ValuePtr weight = shaped(OptionalTensor(node, "weight")),
                   bias = shaped(OptionalTensor(node, "bias"));
    if (!uses_statistics) {
      const ValuePtr mean = shaped(OptionalTensor(node, "running_mean")),
                     variance = shaped(OptionalTensor(node, "running_var"));
      if (!mean || !variance) throw Unsupported("`" + op + "` without statistics has no stage");
      const ValuePtr inverse =
          MapFloat({variance}, [epsilon](const Args& a) { return InverseDeviation(a[0], epsilon); });
      Set(node, Normalise(x, mean, inverse, weight, bias));
      return true;
    }
    std::vector<int> dims;
    for (size_t i = is_instance ? 2 : 0; i < rank; ++i) {
      if (i != 1) dims.push_back(static_cast<int>(i));
    }
    const Moments moments =
        MeanAndVariance(x, dims, 0, [epsilon](const ExprPtr& e) { return InverseDeviation(e, epsilon); });
    Set(node, Normalise(x, moments.mean, moments.spread, weight, bias));
    return true;
  }
  return false;
}

}  // namespace kevin::search
