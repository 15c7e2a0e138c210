#include "policies/search/lower.h"

#include <fmt/format.h>

#include <algorithm>

namespace kevin::search {
namespace {

// One call's arguments, by position or by name.
class Args {
 public:
  explicit Args(const Node& call) : call_(call) {}
  const Node* Get(size_t position, const char* name) const {
    if (position < call_.args.size()) return call_.args[position].get();
    const auto found = call_.named.find(name);
    return found == call_.named.end() || found->second->kind == Node::Kind::kNone ? nullptr
                                                                                  : found->second.get();
  }
  const Node& Need(size_t position, const char* name) const {
    const Node* node = Get(position, name);
    if (node == nullptr) throw Unsupported("`" + call_.text + "` lacks its argument `" + name + "`");
    return *node;
  }

 private:
  const Node& call_;
};

class Lowering {
 public:
  Lowering(const std::vector<TaskArgument>& arguments, const LowerOptions& options)
      : arguments_(arguments), options_(options) {}

  TermPtr Value(const Node& node) {
    switch (node.kind) {
      case Node::Kind::kNumber:
      case Node::Kind::kBool:
        return MakeConstant(node.number);
      case Node::Kind::kName:
        return Leaf(std::stoi(node.text));
      case Node::Kind::kCall:
        return CallValue(node);
      case Node::Kind::kList:
        throw Unsupported("the reference returns more than one tensor");
      default:
        throw Unsupported("the reference has `" + node.text + "` where a tensor was expected");
    }
  }

 private:
  TermPtr Leaf(int position) {
    if (position >= static_cast<int>(arguments_.size()) || arguments_[position].role == "output") {
      throw Unsupported("`forward` takes more arguments than the problem has tensors");
    }
    const TaskArgument& argument = arguments_[position];
    if (argument.cpp_type.find("float") == std::string::npos) {
      throw Unsupported("`" + argument.name + "` is not float32");
    }
    Term term;
    term.op = "leaf";
    term.input = position;
    for (size_t i = 0; i < argument.shape.size(); ++i) {
      Dim dim{argument.shape[i], std::to_string(argument.shape[i])};
      if (i < argument.shape_symbols.size() && !argument.shape_symbols[i].empty()) {
        dim.text = "(" + argument.shape_symbols[i] + ")";
      }
      term.shape.push_back(dim);
    }
    SetContiguous(term);
    return FinishTerm(std::move(term));
  }

  static void SetContiguous(Term& term) {
    term.strides.assign(term.shape.size(), 0);
    int64_t stride = 1;
    for (size_t i = term.shape.size(); i-- > 0;) {
      term.strides[i] = term.shape[i].size == 1 ? 0 : stride;
      stride *= term.shape[i].size;
    }
  }

  TermPtr Unary(const std::string& op, const Node& node) { return MakeTerm(op, {Value(node)}); }
  static TermPtr Add(const TermPtr& a, const TermPtr& b) { return MakeTerm("add", {a, b}); }
  static TermPtr Sub(const TermPtr& a, const TermPtr& b) { return MakeTerm("sub", {a, b}); }
  static TermPtr Mul(const TermPtr& a, const TermPtr& b) { return MakeTerm("mul", {a, b}); }
  static TermPtr Div(const TermPtr& a, const TermPtr& b) { return MakeTerm("div", {a, b}); }
  static TermPtr Number(double value) { return MakeConstant(value); }
  static TermPtr Scale(const TermPtr& a, double factor) { return factor == 1 ? a : Mul(a, Number(factor)); }
  static TermPtr Where(const TermPtr& condition, const TermPtr& yes, const TermPtr& no) {
    return MakeTerm("where", {condition, yes, no});
  }
  static TermPtr Positive(const TermPtr& x) { return MakeTerm("gt", {x, Number(0)}); }
  static TermPtr Clamp(TermPtr x, const TermPtr& low, const TermPtr& high) {
    if (low) x = MakeTerm("maximum", {x, low});
    return high ? MakeTerm("minimum", {x, high}) : x;
  }

  double Scalar(const Args& args, size_t position, const char* name, double fallback) {
    const Node* node = args.Get(position, name);
    if (node == nullptr || node->kind == Node::Kind::kNone) return fallback;
    const TermPtr value = Value(*node);
    if (value->op != "constant") throw Unsupported(std::string("`") + name + "` is not a number");
    return value->value;
  }
  bool Flag(const Args& args, size_t position, const char* name) {
    return Scalar(args, position, name, 0) != 0;
  }

  std::vector<int64_t> Integers(const Node& node) {
    std::vector<int64_t> values;
    if (node.kind == Node::Kind::kCall && (node.text == "shape" || node.text == "size")) {
      const TermPtr tensor = Value(*node.args.at(0));
      for (const Dim& dim : tensor->shape) values.push_back(dim.size);
      return values;
    }
    if (node.kind == Node::Kind::kCall && node.text == "index" && node.args.size() == 2 &&
        node.args[1]->text == "slice") {
      return Slice(Integers(*node.args[0]), *node.args[1]);
    }
    if (node.kind == Node::Kind::kList) {
      for (const NodePtr& item : node.args) values.push_back(Integers(*item).at(0));
      return values;
    }
    const TermPtr value = Value(node);
    if (value->op != "constant") throw Unsupported("a size or dimension is not a number");
    return {static_cast<int64_t>(value->value)};
  }

  std::vector<int64_t> Slice(const std::vector<int64_t>& from, const Node& slice) {
    const auto bound = [&](const Node& node, int64_t fallback) {
      const int64_t at = node.kind == Node::Kind::kNone ? fallback : Integers(node).at(0);
      return std::clamp<int64_t>(at < 0 ? at + static_cast<int64_t>(from.size()) : at, 0,
                                 static_cast<int64_t>(from.size()));
    };
    const int64_t begin = bound(*slice.args[0], 0);
    const int64_t end = bound(*slice.args[1], static_cast<int64_t>(from.size()));
    return {from.begin() + begin, from.begin() + std::max(begin, end)};
  }

  static int Wrap(int64_t dim, size_t rank) {
    const auto wrapped = static_cast<int>(dim < 0 ? dim + static_cast<int64_t>(rank) : dim);
    if (wrapped < 0 || wrapped >= static_cast<int>(rank)) throw Unsupported("a dimension is out of range");
    return wrapped;
  }

  std::vector<int> Dims(const Args& args, size_t position, const TermPtr& of) {
    const Node* node = args.Get(position, "dim");
    std::vector<int> dims;
    if (node == nullptr || node->kind == Node::Kind::kNone) {
      for (size_t i = 0; i < of->shape.size(); ++i) dims.push_back(static_cast<int>(i));
      return dims;
    }
    for (const int64_t dim : Integers(*node)) dims.push_back(Wrap(dim, of->shape.size()));
    return dims;
  }

  TermPtr CallValue(const Node& call) {
    using Method = TermPtr (Lowering::*)(const Node&, const Args&);
    for (const Method method :
         {&Lowering::Arithmetic, &Lowering::Activation, &Lowering::GatedActivation, &Lowering::Reduction,
          &Lowering::Statistic, &Lowering::Normalisation, &Lowering::View, &Lowering::Product}) {
      if (TermPtr term = (this->*method)(call, Args(call))) return term;
    }
    throw Unsupported("the reference uses `" + call.text + "`");
  }

  TermPtr Arithmetic(const Node& call, const Args& args) {
    static const char* const kSame[] = {"neg",  "abs", "exp", "expm1", "log",     "log1p",  "sqrt",
                                        "tanh", "erf", "gt",  "lt",    "ge",      "le",     "eq",
                                        "add",  "sub", "mul", "div",   "maximum", "minimum"};
    for (const char* name : kSame) {
      if (call.text != name) continue;
      std::vector<TermPtr> values;
      for (const NodePtr& arg : call.args) values.push_back(Value(*arg));
      if (!call.named.empty()) throw Unsupported("`" + call.text + "` has named arguments");
      return MakeTerm(name, std::move(values));
    }
    if (call.text == "floordiv") {
      return Number(static_cast<double>(Integers(*call.args[0]).at(0) / Integers(*call.args[1]).at(0)));
    }
    if (call.text == "rsqrt") return Div(Number(1), Unary("sqrt", args.Need(0, "input")));
    if (call.text == "reciprocal") return Div(Number(1), Value(args.Need(0, "input")));
    if (call.text == "square") return Power(Value(args.Need(0, "input")), 2);
    if (call.text == "where") {
      return Where(Value(args.Need(0, "condition")), Value(args.Need(1, "input")),
                   Value(args.Need(2, "other")));
    }
    if (call.text == "pow") {
      const TermPtr exponent = Value(args.Need(1, "exponent"));
      if (exponent->op != "constant") throw Unsupported("the exponent of `pow` is not a number");
      return Power(Value(args.Need(0, "input")), exponent->value);
    }
    return nullptr;
  }

  static TermPtr Power(const TermPtr& base, double exponent) {
    if (base->op == "constant") return MakeTerm("pow", {base, Number(exponent)});
    if (exponent == 0.5) return MakeTerm("sqrt", {base});
    if (exponent == -0.5) return Div(Number(1), MakeTerm("sqrt", {base}));
    if (exponent == -1) return Div(Number(1), base);
    if (exponent == 2) return Mul(base, base);
    if (exponent == 3) return Mul(Mul(base, base), base);
    if (exponent == 4) return Mul(Mul(base, base), Mul(base, base));
    throw Unsupported(fmt::format("a power of {}", exponent));
  }

  static TermPtr Sigmoid(const TermPtr& x) {
    return Div(Number(1), Add(Number(1), MakeTerm("exp", {MakeTerm("neg", {x})})));
  }
  // log(1 + exp(x)) without overflow.
  static TermPtr SoftPlus(const TermPtr& x) {
    const TermPtr small = MakeTerm("exp", {MakeTerm("neg", {MakeTerm("abs", {x})})});
    return Add(MakeTerm("maximum", {x, Number(0)}), MakeTerm("log1p_unit", {small}));
  }
  static TermPtr Elu(const TermPtr& x, double alpha, double scale) {
    return Where(Positive(x), Scale(x, scale), Scale(MakeTerm("expm1", {x}), alpha * scale));
  }

  TermPtr Activation(const Node& call, const Args& args) {
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

  static TermPtr HardSigmoid(const TermPtr& x) {
    return Scale(Clamp(Add(x, Number(3)), Number(0), Number(6)), 1.0 / 6.0);
  }

  TermPtr GatedActivation(const Node& call, const Args& args) {
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

  static TermPtr Gelu(const TermPtr& x, const Node* approximate) {
    TermPtr inner;
    if (approximate != nullptr && approximate->text == "tanh") {
      const TermPtr cubed = Mul(Mul(x, x), x);
      inner = MakeTerm("tanh", {Scale(Add(x, Scale(cubed, 0.044715)), 0.79788456080286535588)});
    } else {
      inner = MakeTerm("erf", {Scale(x, 0.70710678118654752440)});
    }
    return Mul(Scale(x, 0.5), Add(Number(1), inner));
  }

  // The call's `dim` argument is at position 1 and `keepdim` at 2 for all of these.
  TermPtr Reduction(const Node& call, const Args& args) {
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

  // max(x, dim)[0], .values, [1], .indices; x[:, None]; x.shape[1].
  TermPtr Indexed(const Node& call) {
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

  TermPtr NewAxes(const Node& call) {
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

  struct Moments {
    TermPtr mean, variance;
  };
  Moments MeanAndVariance(const TermPtr& x, const std::vector<int>& dims) {
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

  TermPtr Statistic(const Node& call, const Args& args) {
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

  TermPtr Normalisation(const Node& call, const Args& args) {
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
    for (size_t i = x->shape.size() - normalized; i < x->shape.size(); ++i)
      dims.push_back(static_cast<int>(i));
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

  TermPtr View(const Node& call, const Args& args) {
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

  static TermPtr Unsqueeze(const TermPtr& x, int at) {
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

  static TermPtr Swap(const TermPtr& x, size_t a, size_t b) {
    if (x->op != "leaf") throw Unsupported("a transposed intermediate result");
    Term term = *x;
    std::swap(term.shape[a], term.shape[b]);
    std::swap(term.strides[a], term.strides[b]);
    return FinishTerm(std::move(term));
  }

  TermPtr Reshape(const Node& call) {
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

  TermPtr Product(const Node& call, const Args& args) {
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

  static TermPtr MatMul(const TermPtr& a, const TermPtr& b) {
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

  // Each row of `a` times the vector, summed: a reduction.
  static TermPtr MatVec(const TermPtr& a, const TermPtr& b) {
    Term row = *b;
    row.shape = {b->shape[0]};
    row.strides = {b->strides[0]};
    return MakeReduction("sum", Mul(a, FinishTerm(std::move(row))), {1}, b->shape.size() == 2);
  }

  const std::vector<TaskArgument>& arguments_;
  const LowerOptions& options_;
};

}  // namespace

TermPtr Lower(const Node& node, const std::vector<TaskArgument>& arguments, const LowerOptions& options) {
  return Lowering(arguments, options).Value(node);
}

}  // namespace kevin::search
