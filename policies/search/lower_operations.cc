#include <algorithm>

namespace kevin::search {

// --- Activations, decomposed into exponentials, comparisons and the like ---

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

// --- Reductions, and operations made of them: norms, moments, softmax, layer norm ---

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

// --- Views of tensors, and operations on whole tensors: products and scans ---

TermPtr Lowering::NewAxes(const Node& call) {
  TermPtr term = Value(*call.args[0]);
  int at = 0;
  for (size_t i = 1; i < call.args.size(); ++i, ++at) {
    const Node& item = *call.args[i];
    if (item.kind == Node::Kind::kNone) {
      term = Unsqueeze(term, at);
    } else if (item.text == "...") {
      at += static_cast<int>(term->shape.size()) - at - static_cast<int>(call.args.size() - i);
    } else if (item.text != "slice" || item.args[0]->kind != Node::Kind::kNone ||
               item.args[1]->kind != Node::Kind::kNone) {
      throw Unsupported("the reference takes a part of a tensor");
    }
  }
  return term;
}

TermPtr Lowering::View(const Node& call, const Args& args) {
  const std::string& name = call.text;
  if (name == "size") {
    const TermPtr x = Value(args.Need(0, "input"));
    return Number(static_cast<double>(
        x->shape[static_cast<size_t>(Wrap(Integers(args.Need(1, "dim")).at(0), x->shape.size()))].size));
  }
  if (name == "numel") return Number(static_cast<double>(Count(Value(args.Need(0, "input"))->shape)));
  if (name == "contiguous" || name == "float" || name == "clone") return Value(args.Need(0, "input"));
  if (name == "unsqueeze") {
    const TermPtr x = Value(args.Need(0, "input"));
    return Unsqueeze(x, Wrap(Integers(args.Need(1, "dim")).at(0), x->shape.size() + 1));
  }
  if (name == "t" || name == "T" || name == "mT") {
    const TermPtr x = Value(args.Need(0, "input"));
    if (x->shape.size() < 2) return x;
    return Swap(x, x->shape.size() - 2, x->shape.size() - 1);
  }
  if (name == "transpose") {
    const TermPtr x = Value(args.Need(0, "input"));
    const size_t rank = x->shape.size();
    return Swap(x, static_cast<size_t>(Wrap(Integers(args.Need(1, "dim0")).at(0), rank)),
                static_cast<size_t>(Wrap(Integers(args.Need(2, "dim1")).at(0), rank)));
  }
  if (name == "view" || name == "reshape" || name == "flatten") return Reshape(call);
  return nullptr;
}

TermPtr Lowering::Unsqueeze(const TermPtr& x, int at) {
  Term term = *x;
  if (x->op == "constant") return x;
  if (x->op == "leaf") {
    term.shape.insert(term.shape.begin() + at, Dim{});
    term.strides.insert(term.strides.begin() + at, 0);
    return FinishTerm(std::move(term));
  }
  if (IsReduction(*x) && !x->keep_dims && x->dims.size() == 1 && x->dims[0] == at) {
    return MakeReduction(x->op, x->args[0], x->dims, true);
  }
  if (!IsElementwise(*x)) throw Unsupported("`unsqueeze` of a computed tensor");
  for (TermPtr& arg : term.args) {
    if (!arg->shape.empty() && arg->shape.size() != x->shape.size())
      throw Unsupported("`unsqueeze` of a broadcast");
    arg = Unsqueeze(arg, at);
  }
  return MakeTerm(term.op, term.args);
}

TermPtr Lowering::Swap(const TermPtr& x, size_t a, size_t b) {
  if (x->op != "leaf") throw Unsupported("a transposed intermediate result");
  Term term = *x;
  std::swap(term.shape[a], term.shape[b]);
  std::swap(term.strides[a], term.strides[b]);
  return FinishTerm(std::move(term));
}

TermPtr Lowering::Reshape(const Node& call) {
  const TermPtr x = Value(*call.args.at(0));
  Term plain = *x;
  SetContiguous(plain);
  if (x->op != "leaf" || plain.strides != x->strides)
    throw Unsupported("`" + call.text + "` of a computed tensor");
  std::vector<int64_t> sizes;
  for (size_t i = 1; i < call.args.size(); ++i) {
    for (const int64_t size : Integers(*call.args[i])) sizes.push_back(size);
  }
  if (call.text == "flatten") throw Unsupported("`flatten`");
  int64_t known = 1;
  for (const int64_t size : sizes) known *= size == -1 ? 1 : size;
  Term term = *x;
  term.shape.clear();
  for (const int64_t size : sizes) {
    const int64_t value = size == -1 ? Count(x->shape) / std::max<int64_t>(known, 1) : size;
    term.shape.push_back(Dim{value, std::to_string(value)});
  }
  if (Count(term.shape) != Count(x->shape))
    throw Unsupported("`" + call.text + "` to another count of elements");
  SetContiguous(term);
  return FinishTerm(std::move(term));
}

TermPtr Lowering::Product(const Node& call, const Args& args) {
  const std::string& name = call.text;
  if (name == "cumsum" || name == "cumprod") {
    const TermPtr x = Value(args.Need(0, "input"));
    Term term;
    term.op = name;
    term.shape = x->shape;
    term.args = {x};
    term.dims = {Wrap(Integers(args.Need(1, "dim")).at(0), x->shape.size())};
    return FinishTerm(std::move(term));
  }
  if (name != "matmul" && name != "mm" && name != "bmm" && name != "mv") return nullptr;
  if (call.args[0]->kind == Node::Kind::kCall && call.args[0]->text == "diag") {
    return Mul(Unsqueeze(Value(*call.args[0]->args.at(0)), 1), Value(*call.args.at(1)));
  }
  return MatMul(Value(args.Need(0, "input")), Value(args.Need(1, "other")));
}

TermPtr Lowering::MatMul(const TermPtr& a, const TermPtr& b) {
  if (a->op != "leaf" || b->op != "leaf") throw Unsupported("a matrix product of computed tensors");
  const size_t rank_a = a->shape.size(), rank_b = b->shape.size();
  if (rank_a < 2 || rank_b < 1) throw Unsupported("a dot product of vectors");
  const Dim& terms = b->shape[rank_b == 1 ? 0 : rank_b - 2];
  if (a->shape.back().size != terms.size) throw Unsupported("matrices whose sizes do not fit");
  const bool is_vector = rank_b == 1 || (rank_b == 2 && b->shape[1].size == 1);
  if (is_vector && rank_a == 2 && a->strides[1] <= 1) return MatVec(a, b);
  Term term;
  term.op = "matmul";
  term.args = {a, b};
  term.shape.assign(a->shape.begin(), a->shape.end() - 1);
  if (rank_b >= 2) term.shape.push_back(b->shape.back());
  return FinishTerm(std::move(term));
}

TermPtr Lowering::MatVec(const TermPtr& a, const TermPtr& b) {
  Term row = *b;
  row.shape = {b->shape[0]};
  row.strides = {b->strides[0]};
  return MakeReduction("sum", Mul(a, FinishTerm(std::move(row))), {1}, b->shape.size() == 2);
}

}  // namespace kevin::search
