// Elementwise operations: each becomes an expression over its operands.

#include <cmath>
#include <map>

#include "policies/search/lowering.h"

namespace kevin::search {
namespace {

using Args = std::vector<ExprPtr>;

ExprPtr Plus(const ExprPtr& a, const ExprPtr& b) { return Binary("add", a, b); }
ExprPtr Sub(const ExprPtr& a, const ExprPtr& b) { return Binary("sub", a, b); }
ExprPtr Mul(const ExprPtr& a, const ExprPtr& b) { return Binary("mul", a, b); }
ExprPtr Div(const ExprPtr& a, const ExprPtr& b) { return Binary("div_float", a, b); }
ExprPtr Less(const ExprPtr& a, const ExprPtr& b) { return Compare("less", a, b); }
ExprPtr Min(const ExprPtr& a, const ExprPtr& b) { return Binary("minimum", a, b); }
ExprPtr Max(const ExprPtr& a, const ExprPtr& b) { return Binary("maximum", a, b); }

ExprPtr Relu(const ExprPtr& x) { return Max(x, Float(0)); }

// log(1 + exp(x)) without overflow.
ExprPtr SoftPlusOf(const ExprPtr& x) {
  return Plus(Relu(x), Unary("log1p", Unary("exp", Unary("neg", Unary("abs", x)))));
}

ExprPtr EluOf(const ExprPtr& x, double alpha, double scale, double input_scale) {
  const ExprPtr scaled = Mul(x, Float(input_scale));
  const ExprPtr negative = Mul(Float(alpha * scale), Unary("expm1", Min(scaled, Float(0))));
  return Select(Less(Float(0), x), Mul(x, Float(scale)), negative);
}

ExprPtr GeluOf(const ExprPtr& x, bool is_tanh) {
  if (!is_tanh) return Mul(Mul(Float(0.5), x), Plus(Float(1), Unary("erf", Mul(x, Float(M_SQRT1_2)))));
  const ExprPtr cubic = Mul(Mul(x, x), x);
  // 0.5 * (1 + tanh(y)) is sigmoid(2 y).
  const ExprPtr inner = Mul(Float(2 * 0.7978845608028654), Plus(x, Mul(Float(0.044715), cubic)));
  return Mul(x, Unary("sigmoid", inner));
}

ExprPtr Power(const ExprPtr& x, double exponent) {
  if (exponent == 0) return Float(1);
  if (exponent == 0.5) return Unary("sqrt", x);
  if (exponent == -0.5) return Unary("rsqrt", x);
  if (exponent == -1) return Unary("reciprocal", x);
  if (exponent == -2) return Unary("reciprocal", Mul(x, x));
  if (exponent == std::floor(exponent) && exponent >= 1 && exponent <= 8) {
    ExprPtr power = x;
    for (int i = 1; i < static_cast<int>(exponent); ++i) power = Mul(power, x);
    return power;
  }
  return Binary("pow", x, Float(exponent));
}

ExprPtr Remainder(const ExprPtr& a, const ExprPtr& b) { return Sub(a, Mul(Unary("floor", Div(a, b)), b)); }

const std::map<std::string, const char*>& PlainUnary() {
  static const std::map<std::string, const char*> kNames = {
      {"abs", "abs"},      {"exp", "exp"},     {"exp2", "exp2"},       {"expm1", "expm1"},
      {"log", "log"},      {"log2", "log2"},   {"log10", "log10"},     {"log1p", "log1p"},
      {"sqrt", "sqrt"},    {"rsqrt", "rsqrt"}, {"sin", "sin"},         {"cos", "cos"},
      {"tan", "tan"},      {"asin", "asin"},   {"acos", "acos"},       {"atan", "atan"},
      {"sinh", "sinh"},    {"cosh", "cosh"},   {"tanh", "tanh"},       {"erf", "erf"},
      {"floor", "floor"},  {"ceil", "ceil"},   {"trunc", "trunc"},     {"round", "round"},
      {"sign", "sign"},    {"neg", "neg"},     {"sigmoid", "sigmoid"}, {"reciprocal", "reciprocal"},
      {"absolute", "abs"}, {"negative", "neg"}};
  return kNames;
}

// Functions of one float and numbers of the node.
std::optional<std::function<ExprPtr(const ExprPtr&)>> Activation(const Lowering& at, const GraphNode& node) {
  const std::string& op = node.op;
  const auto number = [&](const char* name, double fallback) { return at.Number(node, name, fallback); };
  if (op == "relu") return Relu;
  if (op == "relu6") return [](const ExprPtr& x) { return Min(Relu(x), Float(6)); };
  if (op == "leaky_relu") {
    const double slope = number("negative_slope", 0.01);
    return [slope](const ExprPtr& x) { return Select(Less(Float(0), x), x, Mul(x, Float(slope))); };
  }
  if (op == "gelu") {
    const bool is_tanh = at.Word(node, "approximate", "none") == "tanh";
    return [is_tanh](const ExprPtr& x) { return GeluOf(x, is_tanh); };
  }
  if (op == "silu") return [](const ExprPtr& x) { return Mul(x, Unary("sigmoid", x)); };
  if (op == "mish")
    return [](const ExprPtr& x) {
      // tanh(log(1 + e)) = (e * e + 2 e) / (e * e + 2 e + 2), e = exp(x); above 20 it is 1.
      const ExprPtr e = Unary("exp", Min(x, Float(20)));
      const ExprPtr n = Mul(e, Plus(e, Float(2)));
      return Mul(x, Div(n, Plus(n, Float(2))));
    };
  if (op == "selu")
    return [](const ExprPtr& x) { return EluOf(x, 1.6732632423543772, 1.0507009873554805, 1); };
  if (op == "elu") {
    const double alpha = number("alpha", 1), scale = number("scale", 1), input = number("input_scale", 1);
    return [=](const ExprPtr& x) { return EluOf(x, alpha, scale, input); };
  }
  if (op == "celu") {
    const double alpha = number("alpha", 1);
    return [=](const ExprPtr& x) { return EluOf(x, alpha, 1, 1 / alpha); };
  }
  if (op == "hardsigmoid")
    return [](const ExprPtr& x) { return Mul(Min(Relu(Plus(x, Float(3))), Float(6)), Float(1.0 / 6)); };
  if (op == "hardswish")
    return
        [](const ExprPtr& x) { return Mul(Mul(x, Min(Relu(Plus(x, Float(3))), Float(6))), Float(1.0 / 6)); };
  if (op == "hardtanh") {
    const double low = number("min_val", -1), high = number("max_val", 1);
    return [=](const ExprPtr& x) { return Min(Max(x, Float(low)), Float(high)); };
  }
  if (op == "softplus") {
    const double beta = number("beta", 1), threshold = number("threshold", 20);
    return [=](const ExprPtr& x) {
      const ExprPtr scaled = Mul(x, Float(beta));
      return Select(Less(Float(threshold), scaled), x, Mul(SoftPlusOf(scaled), Float(1 / beta)));
    };
  }
  if (op == "softsign") return [](const ExprPtr& x) { return Div(x, Plus(Float(1), Unary("abs", x))); };
  if (op == "log_sigmoid") return [](const ExprPtr& x) { return Unary("neg", SoftPlusOf(Unary("neg", x))); };
  if (op == "tanhshrink") return [](const ExprPtr& x) { return Sub(x, Unary("tanh", x)); };
  if (op == "hardshrink" || op == "softshrink") {
    const double lambda = number("lambd", 0.5);
    const bool hard = op == "hardshrink";
    return [=](const ExprPtr& x) {
      const ExprPtr above = hard ? x : Sub(x, Float(lambda)), below = hard ? x : Plus(x, Float(lambda));
      return Select(Less(Float(lambda), x), above, Select(Less(x, Float(-lambda)), below, Float(0)));
    };
  }
  if (op == "threshold") {
    const double threshold = number("threshold", 0), value = number("value", 0);
    return [=](const ExprPtr& x) { return Select(Less(Float(threshold), x), x, Float(value)); };
  }
  if (op == "square") return [](const ExprPtr& x) { return Mul(x, x); };
  if (op == "erfc") return [](const ExprPtr& x) { return Sub(Float(1), Unary("erf", x)); };
  if (op == "frac") return [](const ExprPtr& x) { return Sub(x, Unary("trunc", x)); };
  if (op == "logit") return [](const ExprPtr& x) { return Unary("log", Div(x, Sub(Float(1), x))); };
  return std::nullopt;
}

// Of two operands, computed as floats or as integers.
ExprPtr Arithmetic(const std::string& op, Type type, const ExprPtr& a, const ExprPtr& b) {
  if (type == Type::kInt) {
    if (op == "add") return AddInt(a, b);
    if (op == "sub") return AddInt(a, Scaled(b, -1));
    if (op == "mul") return MulInt(a, b);
    if ((op == "minimum" || op == "maximum")) {
      const ExprPtr less = Compare("less", a, b);
      return op == "minimum" ? Select(less, a, b) : Select(less, b, a);
    }
    if (b->op == "constant" && b->integer > 0 && (op == "floor_divide" || op == "remainder"))
      return op == "floor_divide" ? DivInt(a, b->integer) : ModInt(a, b->integer);
    throw Unsupported("`" + op + "` of integers has no stage");
  }
  if (op == "floor_divide") return Unary("floor", Div(a, b));
  if (op == "remainder") return Remainder(a, b);
  if (op == "div") return Div(a, b);
  return Binary(op, a, b);
}

const std::map<std::string, std::string>& Comparisons() {
  static const std::map<std::string, std::string> kNames = {{"lt", "less"},
                                                            {"le", "less_equal"},
                                                            {"eq", "equal"},
                                                            {"ne", "not_equal"},
                                                            {"gt", "greater"},
                                                            {"ge", "greater_equal"},
                                                            {"less", "less"},
                                                            {"less_equal", "less_equal"},
                                                            {"greater", "greater"},
                                                            {"greater_equal", "greater_equal"},
                                                            {"not_equal", "not_equal"}};
  return kNames;
}

ExprPtr Compared(const std::string& op, const ExprPtr& a, const ExprPtr& b) {
  if (op == "greater") return Compare("less", b, a);
  if (op == "greater_equal") return Compare("less_equal", b, a);
  return Compare(op, a, b);
}

Type Common(const std::vector<ValuePtr>& values) {
  Type type = Type::kBool;
  for (const ValuePtr& value : values) {
    const Type one = TypeOf(value->dtype);
    if (one == Type::kFloat || (one == Type::kInt && type == Type::kBool)) type = one;
  }
  return type;
}

}  // namespace

bool Lowering::Elementwise(const GraphNode& node) {
  const std::string op = node.op.ends_with("_") && node.op.size() > 1 && !node.op.starts_with("_")
                             ? node.op.substr(0, node.op.size() - 1)
                             : node.op;
  if (node.results.empty()) return false;
  const std::string dtype = ResultOf(node).dtype;
  const auto set = [&](const std::vector<ValuePtr>& values, Type type, const ElementFunction& f) {
    Set(node, Map(values, dtype, type, f));
    return true;
  };
  if (const auto found = PlainUnary().find(op); found != PlainUnary().end()) {
    const ValuePtr x = Tensor(node, "self");
    if (TypeOf(x->dtype) == Type::kInt && (op == "neg" || op == "abs" || op == "sign" || op == "negative")) {
      return set({x}, Type::kInt, [op](const Args& a) {
        if (op == "neg" || op == "negative") return Scaled(a[0], -1);
        const ExprPtr negative = Compare("less", a[0], Int(0));
        if (op == "abs") return Select(negative, Scaled(a[0], -1), a[0]);
        return Select(negative, Int(-1), ToType(Compare("less", Int(0), a[0]), Type::kInt));
      });
    }
    return set({x}, Type::kFloat, [name = found->second](const Args& a) { return Unary(name, a[0]); });
  }
  if (const auto f = Activation(*this, node)) {
    const ValuePtr x = Tensor(node, "self");
    const Type type = TypeOf(x->dtype);
    if (type == Type::kFloat || TypeOf(dtype) == Type::kFloat)
      return set({x}, Type::kFloat, [f = *f](const Args& a) { return f(a[0]); });
    if (op == "square") return set({x}, Type::kInt, [](const Args& a) { return MulInt(a[0], a[0]); });
    if (op == "relu")
      return set({x}, Type::kInt,
                 [](const Args& a) { return Select(Compare("less", a[0], Int(0)), Int(0), a[0]); });
    return false;
  }
  if (op == "add" || op == "sub" || op == "rsub" || op == "subtract") {
    std::vector<ValuePtr> both = {Tensor(node, "self"), Tensor(node, "other")};
    if (op == "rsub") std::swap(both[0], both[1]);
    // `alpha` scales what torch calls other.
    const double alpha = Number(node, "alpha", 1);
    const bool scales_first = op == "rsub";
    const Type type = TypeOf(dtype) == Type::kFloat ? Type::kFloat : Type::kInt;
    const std::string plain = op == "add" ? "add" : "sub";
    return set(both, type, [=](const Args& a) {
      const auto scaled = [&](const ExprPtr& e) {
        if (alpha == 1) return e;
        return type == Type::kInt ? Scaled(e, static_cast<int64_t>(alpha)) : Mul(e, Float(alpha));
      };
      return scales_first ? Arithmetic(plain, type, a[0], scaled(a[1]))
                          : Arithmetic(plain, type, a[0], scaled(a[1]));
    });
  }
  if (op == "mul" || op == "multiply" || op == "div" || op == "divide" || op == "true_divide" ||
      op == "minimum" || op == "maximum" || op == "fmod" || op == "atan2" || op == "remainder" ||
      op == "floor_divide" || op == "fmin" || op == "fmax") {
    const std::vector<ValuePtr> both = {Tensor(node, "self"), Tensor(node, "other")};
    std::string plain = op == "multiply" ? "mul" : op == "divide" || op == "true_divide" ? "div" : op;
    if (op == "fmin") plain = "minimum";
    if (op == "fmax") plain = "maximum";
    const std::string rounding = Word(node, "rounding_mode", "");
    if (plain == "div" && rounding == "floor") plain = "floor_divide";
    const Type type = TypeOf(dtype) == Type::kFloat  ? Type::kFloat
                      : TypeOf(dtype) == Type::kBool ? Type::kBool
                                                     : Type::kInt;
    if (type == Type::kBool) return set(both, type, [](const Args& a) { return And(a[0], a[1]); });
    return set(both, type, [=](const Args& a) {
      const ExprPtr e = Arithmetic(plain, type, a[0], a[1]);
      return rounding == "trunc" ? Unary("trunc", e) : e;
    });
  }
  if (op == "max" || op == "min") {
    if (!node.args.contains("other")) return false;
    return set({Tensor(node, "self"), Tensor(node, "other")}, TypeOf(dtype),
               [op, type = TypeOf(dtype)](const Args& a) {
                 return Arithmetic(op == "max" ? "maximum" : "minimum", type, a[0], a[1]);
               });
  }
  if (op == "pow") {
    const ValuePtr base = Tensor(node, "self");
    if (!node.args["exponent"].is_object()) {
      const double exponent = Number(node, "exponent", 1);
      if (TypeOf(dtype) == Type::kInt && exponent != 2) return false;
      if (TypeOf(dtype) == Type::kInt)
        return set({base}, Type::kInt, [](const Args& a) { return MulInt(a[0], a[0]); });
      return set({base}, Type::kFloat, [exponent](const Args& a) { return Power(a[0], exponent); });
    }
    return set({base, Tensor(node, "exponent")}, Type::kFloat,
               [](const Args& a) { return Binary("pow", a[0], a[1]); });
  }
  if (const auto found = Comparisons().find(op); found != Comparisons().end() && dtype == "bool") {
    const std::vector<ValuePtr> both = {Tensor(node, "self"), Tensor(node, "other")};
    const Type type = Common(both) == Type::kBool ? Type::kInt : Common(both);
    return set(both, type, [name = found->second](const Args& a) { return Compared(name, a[0], a[1]); });
  }
  if (op == "clamp" || op == "clip" || op == "clamp_min" || op == "clamp_max") {
    std::vector<ValuePtr> values = {Tensor(node, "self")};
    const bool has_low = Has(node, "min"), has_high = Has(node, "max");
    if (has_low) values.push_back(Tensor(node, "min"));
    if (has_high) values.push_back(Tensor(node, "max"));
    const Type type = TypeOf(dtype);
    return set(values, type, [=](const Args& a) {
      ExprPtr x = a[0];
      if (has_low) x = Arithmetic("maximum", type, x, a[1]);
      return has_high ? Arithmetic("minimum", type, x, a.back()) : x;
    });
  }
  if (op == "where") {
    const ValuePtr condition = Tensor(node, "condition");
    const ValuePtr yes = Tensor(node, "self"), no = Tensor(node, "other");
    const Type type = TypeOf(dtype);
    Set(node, Lazy(
                  dtype, BroadcastShape({condition, yes, no}),
                  [=](const Index& index) {
                    return Select(ToType(AtBroadcast(condition, index), Type::kBool),
                                  ToType(AtBroadcast(yes, index), type),
                                  ToType(AtBroadcast(no, index), type));
                  },
                  condition->cost + yes->cost + no->cost + 1));
    return true;
  }
  if (op == "masked_fill") {
    const ValuePtr x = Tensor(node, "self"), mask = Tensor(node, "mask"), value = Tensor(node, "value");
    const Type type = TypeOf(dtype);
    Set(node, Lazy(
                  dtype, BroadcastShape({x, mask}),
                  [=](const Index& index) {
                    return Select(ToType(AtBroadcast(mask, index), Type::kBool),
                                  ToType(AtBroadcast(value, index), type),
                                  ToType(AtBroadcast(x, index), type));
                  },
                  x->cost + mask->cost + 1));
    return true;
  }
  if (op.starts_with("logical_") || op.starts_with("bitwise_") || op.starts_with("__")) {
    if (dtype != "bool") return false;
    const bool negates = op == "logical_not" || op == "bitwise_not";
    const bool is_and = op == "logical_and" || op == "bitwise_and" || op == "__and__";
    const bool is_or = op == "logical_or" || op == "bitwise_or" || op == "__or__";
    const bool is_xor = op == "logical_xor" || op == "bitwise_xor" || op == "__xor__";
    if (negates) return set({Tensor(node, "self")}, Type::kBool, [](const Args& a) { return Not(a[0]); });
    if (!is_and && !is_or && !is_xor) return false;
    return set({Tensor(node, "self"), Tensor(node, "other")}, Type::kBool, [=](const Args& a) {
      return is_and  ? And(a[0], a[1])
             : is_or ? Or(a[0], a[1])
                     : Or(And(a[0], Not(a[1])), And(Not(a[0]), a[1]));
    });
  }
  if (op == "isnan")
    return set({Tensor(node, "self")}, Type::kFloat,
               [](const Args& a) { return Compare("not_equal", a[0], a[0]); });
  if (op == "prelu") {
    const ValuePtr x = Tensor(node, "self");
    ValuePtr weight = Tensor(node, "weight");
    if (Count(weight->shape) > 1) {
      Shape shape(x->shape.size(), 1);
      if (shape.size() > 1) shape[1] = Count(weight->shape);
      weight = Reshape(weight, shape);
    } else {
      weight = Reshape(weight, {});
    }
    return set({x, weight}, Type::kFloat,
               [](const Args& a) { return Select(Less(Float(0), a[0]), a[0], Mul(a[0], a[1])); });
  }
  if (op == "xlogy")
    return set({Tensor(node, "self"), Tensor(node, "other")}, Type::kFloat, [](const Args& a) {
      return Select(Compare("equal", a[0], Float(0)), Float(0), Mul(a[0], Unary("log", a[1])));
    });
  if (op == "lerp")
    return set({Tensor(node, "self"), Tensor(node, "end"), Tensor(node, "weight")}, Type::kFloat,
               [](const Args& a) { return Plus(a[0], Mul(a[2], Sub(a[1], a[0]))); });
  if (op == "addcmul" || op == "addcdiv") {
    const double value = Number(node, "value", 1);
    const bool divides = op == "addcdiv";
    return set({Tensor(node, "self"), Tensor(node, "tensor1"), Tensor(node, "tensor2")}, Type::kFloat,
               [=](const Args& a) {
                 return Plus(a[0], Mul(Float(value), divides ? Div(a[1], a[2]) : Mul(a[1], a[2])));
               });
  }
  if (op == "logaddexp")
    return set({Tensor(node, "self"), Tensor(node, "other")}, Type::kFloat, [](const Args& a) {
      return Plus(Max(a[0], a[1]), Unary("log1p", Unary("exp", Unary("neg", Unary("abs", Sub(a[0], a[1]))))));
    });
  if (op == "glu") {
    const ValuePtr x = Tensor(node, "self");
    const int64_t given = Integer(node, "dim", -1);
    const size_t dim = static_cast<size_t>(given < 0 ? given + static_cast<int64_t>(x->shape.size()) : given);
    const int64_t half = x->shape[dim] / 2;
    return set({Sliced(x, dim, 0, half), Sliced(x, dim, half, half)}, Type::kFloat,
               [](const Args& a) { return Mul(a[0], Unary("sigmoid", a[1])); });
  }
  if (op == "to" || op == "_to_copy" || op == "type_as" || op == "float" || op == "clone" ||
      op == "contiguous" || op == "detach" || op == "alias" || op == "lift_fresh" || op == "Float" ||
      op == "positive" || op == "dropout" || op == "alpha_dropout" || op == "feature_dropout" ||
      op == "native_dropout") {
    if (op.ends_with("dropout") && Flag(node, "train", false))
      throw Unsupported("`" + op + "` in training draws random numbers");
    Set(node, Tensor(node, node.args.contains("self") ? "self" : "input"));
    return true;
  }
  return false;
}

}  // namespace kevin::search
