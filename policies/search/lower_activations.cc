// Operations that map one float or two to one float: each becomes an expression.

#include <cmath>
#include <map>

#include "policies/search/element_parts.h"

namespace kevin::search {
namespace {

using MakeOfFloat = OfFloat (*)(const Lowering&, const GraphNode&);

// What the expressions of this language have by the same name or another one.
const std::map<std::string, const char*>& PlainFunctions() {
  static const std::map<std::string, const char*> kNames = {
      {"abs", "abs"},      {"exp", "exp"},     {"exp2", "exp2"},       {"expm1", "expm1"},
      {"log", "log"},      {"log2", "log2"},   {"log10", "log10"},     {"log1p", "log1p"},
      {"sqrt", "sqrt"},    {"rsqrt", "rsqrt"}, {"sin", "sin"},         {"cos", "cos"},
      {"tan", "tan"},      {"asin", "asin"},   {"acos", "acos"},       {"atan", "atan"},
      {"sinh", "sinh"},    {"cosh", "cosh"},   {"tanh", "tanh"},       {"erf", "erf"},
      {"floor", "floor"},  {"ceil", "ceil"},   {"trunc", "trunc"},     {"sgn", "sign"},
      {"sign", "sign"},    {"neg", "neg"},     {"sigmoid", "sigmoid"}, {"reciprocal", "reciprocal"},
      {"absolute", "abs"}, {"negative", "neg"}};
  return kNames;
}

OfFloat Elu(double alpha, double scale, double input_scale) {
  return [=](const ExprPtr& x) {
    const ExprPtr scaled = Times(x, Float(input_scale));
    const ExprPtr negative = Times(Float(alpha * scale), Unary("expm1", Smaller(scaled, Float(0))));
    return Select(IsLess(Float(0), x), Times(x, Float(scale)), negative);
  };
}

ExprPtr GeluOf(const ExprPtr& x, bool is_tanh) {
  if (!is_tanh) return Times(Times(Float(0.5), x), Plus(Float(1), Unary("erf", Times(x, Float(M_SQRT1_2)))));
  const ExprPtr cubic = Times(Times(x, x), x);
  // 0.5 * (1 + tanh(y)) is sigmoid(2 y).
  const ExprPtr inner = Times(Float(2 * 0.7978845608028654), Plus(x, Times(Float(0.044715), cubic)));
  return Times(x, Unary("sigmoid", inner));
}

ExprPtr MishOf(const ExprPtr& x) {
  // tanh(log(1 + e)) = (e * e + 2 e) / (e * e + 2 e + 2), e = exp(x); above 20 it is 1.
  const ExprPtr e = Unary("exp", Smaller(x, Float(20)));
  const ExprPtr n = Times(e, Plus(e, Float(2)));
  return Times(x, Over(n, Plus(n, Float(2))));
}

ExprPtr HardStep(const ExprPtr& x) { return Smaller(Ramp(Plus(x, Float(3))), Float(6)); }

ExprPtr AsinhOf(const ExprPtr& x) {
  const ExprPtr size = Magnitude(x), square = Times(x, x);
  const ExprPtr below = Plus(Float(1), Unary("sqrt", Plus(square, Float(1))));
  return Times(Unary("sign", x), Unary("log1p", Plus(size, Over(square, below))));
}

ExprPtr AcoshOf(const ExprPtr& x) {
  const ExprPtr over = Minus(x, Float(1));
  return Unary("log1p", Plus(over, Unary("sqrt", Times(over, Plus(x, Float(1))))));
}

ExprPtr AtanhOf(const ExprPtr& x) {
  return Times(Float(0.5), Minus(Unary("log1p", x), Unary("log1p", Minus(x))));
}

ExprPtr SincOf(const ExprPtr& x) {
  const ExprPtr angle = Times(x, Float(M_PI));
  return Select(IsEqual(x, Float(0)), Float(1), Over(Unary("sin", angle), angle));
}

ExprPtr EntropyOf(const ExprPtr& x) {
  const ExprPtr inside = Select(IsEqual(x, Float(0)), Float(0), Minus(Times(x, Unary("log", x))));
  return Select(IsLess(x, Float(0)), Float(-kInfinity), inside);
}

OfFloat Shrink(const Lowering& at, const GraphNode& node) {
  const double lambda = at.Number(node, "lambd", 0.5);
  if (node.op == "hardshrink") {  // NaN stays
    return [=](const ExprPtr& x) {
      return Select(Compare("less_equal", x, Float(lambda)),
                    Select(Compare("less_equal", Float(-lambda), x), Float(0), x), x);
    };
  }
  return [=](const ExprPtr& x) {
    const ExprPtr above = Minus(x, Float(lambda)), below = Plus(x, Float(lambda));
    return Select(IsLess(Float(lambda), x), above, Select(IsLess(x, Float(-lambda)), below, Float(0)));
  };
}

OfFloat Rounded(const Lowering& at, const GraphNode& node) {
  const double digits = at.Number(node, "decimals", 0);
  if (digits == 0) return [](const ExprPtr& x) { return Unary("round", x); };
  const double scale = std::pow(10, std::fabs(digits));
  return [=](const ExprPtr& x) {
    return digits > 0 ? Over(Unary("round", Times(x, Float(scale))), Float(scale))
                      : Times(Unary("round", Over(x, Float(scale))), Float(scale));
  };
}

OfFloat Logit(const Lowering& at, const GraphNode& node) {
  const double eps = at.Number(node, "eps", -1);
  return [eps](const ExprPtr& given) {
    const ExprPtr x = eps < 0 ? given : Smaller(Larger(given, Float(eps)), Float(1 - eps));
    return Unary("log", Over(x, Minus(Float(1), x)));
  };
}

// Without numbers.
const std::map<std::string, ExprPtr (*)(const ExprPtr&)>& SimpleFunctions() {
  static const std::map<std::string, ExprPtr (*)(const ExprPtr&)> kTable = {
      {"relu", [](const ExprPtr& x) { return Ramp(x); }},
      {"relu6", [](const ExprPtr& x) { return Smaller(Ramp(x), Float(6)); }},
      {"silu", [](const ExprPtr& x) { return Times(x, Unary("sigmoid", x)); }},
      {"mish", MishOf},
      {"hardsigmoid", [](const ExprPtr& x) { return Times(HardStep(x), Float(1.0 / 6)); }},
      {"hardswish", [](const ExprPtr& x) { return Times(Times(x, HardStep(x)), Float(1.0 / 6)); }},
      {"softsign", [](const ExprPtr& x) { return Over(x, Plus(Float(1), Magnitude(x))); }},
      {"log_sigmoid", [](const ExprPtr& x) { return Minus(SoftPlus(Minus(x))); }},
      {"tanhshrink", [](const ExprPtr& x) { return Minus(x, Unary("tanh", x)); }},
      {"square", [](const ExprPtr& x) { return Times(x, x); }},
      {"erfc", [](const ExprPtr& x) { return Minus(Float(1), Unary("erf", x)); }},
      {"special_ndtr",
       [](const ExprPtr& x) {
         return Times(Float(0.5), Plus(Float(1), Unary("erf", Times(x, Float(M_SQRT1_2)))));
       }},
      {"frac", [](const ExprPtr& x) { return Minus(x, Unary("trunc", x)); }},
      {"asinh", AsinhOf},
      {"acosh", AcoshOf},
      {"atanh", AtanhOf},
      {"sinc", SincOf},
      {"special_entr", EntropyOf},
      {"deg2rad", [](const ExprPtr& x) { return Times(x, Float(M_PI / 180)); }},
      {"rad2deg", [](const ExprPtr& x) { return Times(x, Float(180 / M_PI)); }},
      {"angle",
       [](const ExprPtr& x) {
         return Select(IsNan(x), x, Select(IsLess(x, Float(0)), Float(M_PI), Float(0)));
       }},
      {"isnan", IsNan},
      {"isinf", [](const ExprPtr& x) { return IsEqual(Magnitude(x), Float(kInfinity)); }},
      {"isposinf", [](const ExprPtr& x) { return IsEqual(x, Float(kInfinity)); }},
      {"isneginf", [](const ExprPtr& x) { return IsEqual(x, Float(-kInfinity)); }},
      {"isfinite", [](const ExprPtr& x) { return IsLess(Magnitude(x), Float(kInfinity)); }},
      {"isreal", [](const ExprPtr&) { return Bool(true); }},
      {"signbit", HasMinus}};
  return kTable;
}

// With numbers of the node.
const std::map<std::string, MakeOfFloat>& NumberedFunctions() {
  using L = const Lowering&;
  using N = const GraphNode&;
  static const std::map<std::string, MakeOfFloat> kTable = {
      {"leaky_relu",
       [](L at, N node) -> OfFloat {
         const double slope = at.Number(node, "negative_slope", 0.01);
         return [slope](const ExprPtr& x) { return Select(IsLess(Float(0), x), x, Times(x, Float(slope))); };
       }},
      {"gelu",
       [](L at, N node) -> OfFloat {
         const bool is_tanh = at.Word(node, "approximate", "none") == "tanh";
         return [is_tanh](const ExprPtr& x) { return GeluOf(x, is_tanh); };
       }},
      {"selu", [](L, N) { return Elu(1.6732632423543772, 1.0507009873554805, 1); }},
      {"elu",
       [](L at, N node) {
         return Elu(at.Number(node, "alpha", 1), at.Number(node, "scale", 1),
                    at.Number(node, "input_scale", 1));
       }},
      {"celu",
       [](L at, N node) {
         const double alpha = at.Number(node, "alpha", 1);
         return Elu(alpha, 1, 1 / alpha);
       }},
      {"hardtanh",
       [](L at, N node) -> OfFloat {
         const double low = at.Number(node, "min_val", -1), high = at.Number(node, "max_val", 1);
         return [=](const ExprPtr& x) { return Smaller(Larger(x, Float(low)), Float(high)); };
       }},
      {"softplus",
       [](L at, N node) -> OfFloat {
         const double beta = at.Number(node, "beta", 1), threshold = at.Number(node, "threshold", 20);
         return [=](const ExprPtr& x) {
           const ExprPtr scaled = Times(x, Float(beta));
           return Select(IsLess(Float(threshold), scaled), x, Times(SoftPlus(scaled), Float(1 / beta)));
         };
       }},
      {"hardshrink", Shrink},
      {"softshrink", Shrink},
      {"threshold",
       [](L at, N node) -> OfFloat {
         const double threshold = at.Number(node, "threshold", 0), value = at.Number(node, "value", 0);
         // As torch: NaN stays.
         return [=](const ExprPtr& x) {
           return Select(Compare("less_equal", x, Float(threshold)), Float(value), x);
         };
       }},
      {"round", Rounded},
      {"logit", Logit}};
  return kTable;
}

// --- Of two floats ---

ExprPtr LogAddExp(const ExprPtr& a, const ExprPtr& b) {
  const ExprPtr gap = Magnitude(Minus(a, b));
  return Select(IsEqual(a, b), Plus(a, Float(M_LN2)),
                Plus(Larger(a, b), Unary("log1p", Unary("exp", Minus(gap)))));
}

ExprPtr LogAddExp2(const ExprPtr& a, const ExprPtr& b) {
  const ExprPtr share = Unary("log1p", Unary("exp2", Minus(Magnitude(Minus(a, b)))));
  return Select(IsEqual(a, b), Plus(a, Float(1)), Plus(Larger(a, b), Times(share, Float(M_LOG2E))));
}

// Without overflow.
ExprPtr Hypot(const ExprPtr& a, const ExprPtr& b) {
  const ExprPtr x = Magnitude(a), y = Magnitude(b), large = Larger(x, y);
  const ExprPtr share = Over(Smaller(x, y), large);
  const ExprPtr length = Times(large, Unary("sqrt", Plus(Float(1), Times(share, share))));
  return Select(Or(IsEqual(large, Float(0)), IsEqual(large, Float(kInfinity))), large, length);
}

ExprPtr TimesLog(const ExprPtr& a, const ExprPtr& log_b, const ExprPtr& b) {
  return Select(IsNan(b), b, Select(IsEqual(a, Float(0)), Float(0), Times(a, log_b)));
}

const std::map<std::string, OfTwoFloats>& FloatFunctionsOfTwo() {
  static const std::map<std::string, OfTwoFloats> kTable = {
      {"fmin", [](const ExprPtr& a,
                  const ExprPtr& b) { return Select(IsNan(a), b, Select(IsNan(b), a, Smaller(a, b))); }},
      {"fmax", [](const ExprPtr& a,
                  const ExprPtr& b) { return Select(IsNan(a), b, Select(IsNan(b), a, Larger(a, b))); }},
      {"atan2", [](const ExprPtr& a, const ExprPtr& b) { return Binary("atan2", a, b); }},
      {"hypot", Hypot},
      {"copysign", [](const ExprPtr& a,
                      const ExprPtr& b) { return Select(HasMinus(b), Minus(Magnitude(a)), Magnitude(a)); }},
      {"ldexp", [](const ExprPtr& a, const ExprPtr& b) { return Times(a, Unary("exp2", b)); }},
      {"logaddexp", LogAddExp},
      {"logaddexp2", LogAddExp2},
      {"xlogy", [](const ExprPtr& a, const ExprPtr& b) { return TimesLog(a, Unary("log", b), b); }},
      {"special_xlog1py",
       [](const ExprPtr& a, const ExprPtr& b) { return TimesLog(a, Unary("log1p", b), b); }},
      {"heaviside", [](const ExprPtr& a, const ExprPtr& b) {
         const ExprPtr step = Select(IsLess(Float(0), a), Float(1), Select(IsNan(a), a, b));
         return Select(IsLess(a, Float(0)), Float(0), step);
       }}};
  return kTable;
}

}  // namespace

OfTwoFloats FloatFunctionOfTwo(const std::string& op) {
  const auto found = FloatFunctionsOfTwo().find(op);
  return found == FloatFunctionsOfTwo().end() ? nullptr : found->second;
}

OfFloat FloatFunction(const Lowering& at, const GraphNode& node) {
  if (const auto found = PlainFunctions().find(node.op); found != PlainFunctions().end())
    return [name = Op(std::string(found->second))](const ExprPtr& x) { return Unary(name, x); };
  if (const auto found = SimpleFunctions().find(node.op); found != SimpleFunctions().end())
    return found->second;
  if (const auto found = NumberedFunctions().find(node.op); found != NumberedFunctions().end())
    return found->second(at, node);
  return nullptr;
}

}  // namespace kevin::search
