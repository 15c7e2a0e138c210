// Activations, taken apart into exponentials, comparisons and the like.

#include "policies/search/lowering.h"

namespace kevin::search {

TermPtr Lowering::Clamp(TermPtr x, const TermPtr& low, const TermPtr& high) {
  if (low) x = MakeTerm("maximum", {x, low});
  return high ? MakeTerm("minimum", {x, high}) : x;
}

TermPtr Lowering::Sigmoid(const TermPtr& x) {
  return Div(Number(1), Add(Number(1), MakeTerm("exp", {MakeTerm("neg", {x})})));
}

TermPtr Lowering::SoftPlus(const TermPtr& x) {
  const TermPtr small = MakeTerm("exp", {MakeTerm("neg", {MakeTerm("abs", {x})})});
  return Add(MakeTerm("maximum", {x, Number(0)}), MakeTerm("log1p_unit", {small}));
}

TermPtr Lowering::Elu(const TermPtr& x, double alpha, double scale) {
  return Where(Positive(x), Scale(x, scale), Scale(MakeTerm("expm1", {x}), alpha * scale));
}

TermPtr Lowering::Activation(const Node& call, const Args& args) {
  const std::string& name = call.text;
  if (name == "relu") return Clamp(Value(args.Need(0, "input")), Number(0), nullptr);
  if (name == "relu6") return Clamp(Value(args.Need(0, "input")), Number(0), Number(6));
  if (name == "leaky_relu") {
    const TermPtr x = Value(args.Need(0, "input"));
    return Where(Positive(x), x, Scale(x, Scalar(args, 1, "negative_slope", 0.01)));
  }
  if (name == "clamp" || name == "clip") {
    const TermPtr x = Value(args.Need(0, "input"));
    const Node* low = args.Get(1, "min");
    const Node* high = args.Get(2, "max");
    return Clamp(x, low && low->kind != Node::Kind::kNone ? Value(*low) : nullptr,
                 high && high->kind != Node::Kind::kNone ? Value(*high) : nullptr);
  }
  if (name == "clamp_min") return Clamp(Value(args.Need(0, "input")), Value(args.Need(1, "min")), nullptr);
  if (name == "clamp_max") return Clamp(Value(args.Need(0, "input")), nullptr, Value(args.Need(1, "max")));
  if (name == "hardtanh") {
    return Clamp(Value(args.Need(0, "input")), Number(Scalar(args, 1, "min_val", -1)),
                 Number(Scalar(args, 2, "max_val", 1)));
  }
  if (name == "hardsigmoid") return HardSigmoid(Value(args.Need(0, "input")));
  if (name == "elu") {
    return Elu(Value(args.Need(0, "input")), Scalar(args, 1, "alpha", 1), Scalar(args, 2, "scale", 1));
  }
  if (name == "selu") return Elu(Value(args.Need(0, "input")), 1.6732632423543772, 1.0507009873554805);
  return nullptr;
}

TermPtr Lowering::HardSigmoid(const TermPtr& x) {
  return Scale(Clamp(Add(x, Number(3)), Number(0), Number(6)), 1.0 / 6.0);
}

TermPtr Lowering::GatedActivation(const Node& call, const Args& args) {
  const std::string& name = call.text;
  if (name == "sigmoid") return Sigmoid(Value(args.Need(0, "input")));
  if (name == "silu") return Mul(Value(args.Need(0, "input")), Sigmoid(Value(args.Need(0, "input"))));
  if (name == "hardswish") {
    const TermPtr x = Value(args.Need(0, "input"));
    return Mul(x, HardSigmoid(x));
  }
  if (name == "softsign") {
    const TermPtr x = Value(args.Need(0, "input"));
    return Div(x, Add(Number(1), MakeTerm("abs", {x})));
  }
  if (name == "mish") {
    const TermPtr x = Value(args.Need(0, "input"));
    return Mul(x, MakeTerm("tanh", {SoftPlus(x)}));
  }
  if (name == "log_sigmoid" || name == "logsigmoid") {
    return MakeTerm("neg", {SoftPlus(MakeTerm("neg", {Value(args.Need(0, "input"))}))});
  }
  if (name == "softplus") {
    const TermPtr x = Value(args.Need(0, "input"));
    const double beta = Scalar(args, 1, "beta", 1), threshold = Scalar(args, 2, "threshold", 20);
    const TermPtr z = Scale(x, beta);
    return Where(MakeTerm("gt", {z, Number(threshold)}), x, Scale(SoftPlus(z), 1 / beta));
  }
  return name == "gelu" ? Gelu(Value(args.Need(0, "input")), args.Get(1, "approximate")) : nullptr;
}

TermPtr Lowering::Gelu(const TermPtr& x, const Node* approximate) {
  TermPtr inner;
  if (approximate != nullptr && approximate->text == "tanh") {
    const TermPtr cubed = Mul(Mul(x, x), x);
    inner = MakeTerm("tanh", {Scale(Add(x, Scale(cubed, 0.044715)), 0.79788456080286535588)});
  } else {
    inner = MakeTerm("erf", {Scale(x, 0.70710678118654752440)});
  }
  return Mul(Scale(x, 0.5), Add(Number(1), inner));
}

}  // namespace kevin::search
