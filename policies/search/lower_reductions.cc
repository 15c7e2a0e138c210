// Reductions and what is made of them: norms, moments, softmax, layer norm.

#include <algorithm>

#include "policies/search/lowering.h"

namespace kevin::search {

TermPtr Lowering::Reduction(const Node& call, const Args& args) {
  if (call.text == "index" || call.text == "values" || call.text == "indices") return Indexed(call);
  std::string op = call.text;
  if (op == "amax" || op == "amin") op = op.substr(1);
  static const char* const kNames[] = {"sum", "mean", "max", "min", "argmax", "argmin"};
  if (std::none_of(std::begin(kNames), std::end(kNames), [&](const char* name) { return op == name; })) {
    return nullptr;
  }
  const TermPtr x = Value(args.Need(0, "input"));
  const bool has_dim = args.Get(1, "dim") != nullptr && args.Get(1, "dim")->kind != Node::Kind::kNone;
  if ((call.text == "max" || call.text == "min") && has_dim) {
    if (call.args.size() > 1 && call.args[1]->kind != Node::Kind::kNumber) {
      return MakeTerm(call.text == "max" ? "maximum" : "minimum", {x, Value(*call.args[1])});
    }
    throw Unsupported("the reference returns values and indices together");
  }
  return MakeReduction(op, x, Dims(args, 1, x), Flag(args, 2, "keepdim"));
}

TermPtr Lowering::Indexed(const Node& call) {
  const Node& object = *call.args[0];
  int64_t which = call.text == "indices" ? 1 : 0;
  if (object.kind == Node::Kind::kCall && (object.text == "shape" || object.text == "size")) {
    const std::vector<int64_t> sizes = Integers(object);
    return Number(static_cast<double>(
        sizes.at(static_cast<size_t>(Wrap(Integers(*call.args.at(1)).at(0), sizes.size())))));
  }
  if (object.kind == Node::Kind::kCall && (object.text == "max" || object.text == "min")) {
    if (call.text == "index") which = Integers(*call.args.at(1)).at(0);
    const Args args(object);
    const TermPtr x = Value(args.Need(0, "input"));
    return MakeReduction((which == 1 ? "arg" : "") + object.text, x, Dims(args, 1, x),
                         Flag(args, 2, "keepdim"));
  }
  if (call.text == "index") return NewAxes(call);
  throw Unsupported("the reference uses `." + call.text + "`");
}

Lowering::Moments Lowering::MeanAndVariance(const TermPtr& x, const std::vector<int>& dims) {
  if (!options_.one_pass_moments) {
    const TermPtr mean = MakeReduction("mean", x, dims, true);
    return {mean, MakeReduction("mean", Power(Sub(x, mean), 2), dims, true)};
  }
  const TermPtr shift = MakeReduction("head", x, dims, true);
  const TermPtr from_shift = Sub(x, shift);
  const TermPtr first = MakeReduction("mean", from_shift, dims, true);
  const TermPtr second = MakeReduction("mean", Power(from_shift, 2), dims, true);
  return {Add(shift, first), MakeTerm("maximum", {Sub(second, Power(first, 2)), Number(0)})};
}

TermPtr Lowering::Statistic(const Node& call, const Args& args) {
  const std::string& name = call.text;
  if (name == "logsumexp") {
    const TermPtr x = Value(args.Need(0, "input"));
    const std::vector<int> dims = Dims(args, 1, x);
    const TermPtr top = MakeReduction("max", x, dims, true);
    const TermPtr sum = MakeReduction("sum", MakeTerm("exp", {Sub(x, top)}), dims, true);
    if (!Flag(args, 2, "keepdim")) throw Unsupported("`logsumexp` without keepdim");
    return Add(top, MakeTerm("log", {sum}));
  }
  if (name == "norm") {
    const TermPtr x = Value(args.Need(0, "input"));
    const Node* p = args.Get(1, "p");
    const double order = p == nullptr || p->kind != Node::Kind::kNumber ? 2 : p->number;
    const std::vector<int> dims = Dims(args, 2, x);
    const bool keep = Flag(args, 3, "keepdim");
    if (order == 1) return MakeReduction("sum", MakeTerm("abs", {x}), dims, keep);
    if (order == 2) return MakeTerm("sqrt", {MakeReduction("sum", Power(x, 2), dims, keep)});
  }
  if (name == "var" || name == "std") {
    const TermPtr x = Value(args.Need(0, "input"));
    if (Scalar(args, 2, "unbiased", 1) != 0 || !Flag(args, 3, "keepdim")) {
      throw Unsupported("`" + name + "` other than unbiased=False, keepdim=True");
    }
    const TermPtr variance = MeanAndVariance(x, Dims(args, 1, x)).variance;
    return name == "var" ? variance : MakeTerm("sqrt", {variance});
  }
  return nullptr;
}

TermPtr Lowering::Normalisation(const Node& call, const Args& args) {
  const std::string& name = call.text;
  if (name == "softmax" || name == "log_softmax") {
    const TermPtr x = Value(args.Need(0, "input"));
    const std::vector<int> dims = Dims(args, 1, x);
    const TermPtr shifted = Sub(x, MakeReduction("max", x, dims, true));
    const TermPtr exponential = MakeTerm("exp", {shifted});
    const TermPtr sum = MakeReduction("sum", exponential, dims, true);
    if (name == "softmax") return Mul(exponential, Div(Number(1), sum));
    return Sub(shifted, MakeTerm("log", {sum}));
  }
  if (name != "layer_norm" && name != "rms_norm") return nullptr;
  const TermPtr x = Value(args.Need(0, "input"));
  const size_t normalized = Integers(args.Need(1, "normalized_shape")).size();
  std::vector<int> dims;
  for (size_t i = x->shape.size() - normalized; i < x->shape.size(); ++i) dims.push_back(static_cast<int>(i));
  TermPtr result;
  if (name == "layer_norm") {
    const Moments moments = MeanAndVariance(x, dims);
    const TermPtr eps = Number(Scalar(args, 4, "eps", 1e-5));
    result = Mul(Sub(x, moments.mean), Div(Number(1), MakeTerm("sqrt", {Add(moments.variance, eps)})));
  } else {
    const TermPtr square = MakeReduction("mean", Power(x, 2), dims, true);
    const TermPtr eps = Number(Scalar(args, 3, "eps", 1.1920928955078125e-07));
    result = Mul(x, Div(Number(1), MakeTerm("sqrt", {Add(square, eps)})));
  }
  const Node* weight = args.Get(2, "weight");
  const Node* bias = name == "layer_norm" ? args.Get(3, "bias") : nullptr;
  if (weight && weight->kind != Node::Kind::kNone) result = Mul(result, Value(*weight));
  if (bias && bias->kind != Node::Kind::kNone) result = Add(result, Value(*bias));
  return result;
}

}  // namespace kevin::search
