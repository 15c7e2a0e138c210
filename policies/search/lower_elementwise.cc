// Elementwise operations: each becomes an expression over its operands.

#include <cmath>
#include <map>
#include <optional>

#include "policies/search/element_parts.h"

namespace kevin::search {
namespace {

using ElementwiseFunction = bool (*)(Lowering&, const GraphNode&);  // false: not these types

bool SetMap(Lowering& at, const GraphNode& node, const std::vector<ValuePtr>& values, Type type,
            const Lowering::ElementFunction& f) {
  at.Set(node, at.Map(values, at.ResultOf(node).dtype, type, f));
  return true;
}

Type ResultType(Lowering& at, const GraphNode& node) { return TypeOf(at.ResultOf(node).dtype); }

std::vector<ValuePtr> BothOf(Lowering& at, const GraphNode& node) {
  return {at.Tensor(node, "self"), at.Tensor(node, "other")};
}

// Of an operand that is one constant.
std::optional<int64_t> NumberOf(const ValuePtr& value) {
  if (!value->shape.empty()) return std::nullopt;
  const ExprPtr number = ToType(value->at({}), Type::kInt);
  if (number->op != "constant") return std::nullopt;
  return number->integer;
}

// --- Of one operand ---

// Of an integer to an integer; null for an operation that has none.
Lowering::ElementFunction IntegerFunction(const std::string& op) {
  const auto negative = [](const ExprPtr& x) { return Compare("less", x, Int(0)); };
  if (op == "neg") return [](const ElementArgs& a) { return Scaled(a[0], -1); };
  if (op == "abs")
    return [=](const ElementArgs& a) { return Select(negative(a[0]), Scaled(a[0], -1), a[0]); };
  if (op == "relu") return [=](const ElementArgs& a) { return Select(negative(a[0]), Int(0), a[0]); };
  if (op == "square") return [](const ElementArgs& a) { return MulInt(a[0], a[0]); };
  if (op == "sign" || op == "sgn") {
    return [=](const ElementArgs& a) {
      return Select(negative(a[0]), Int(-1), ToType(Compare("less", Int(0), a[0]), Type::kInt));
    };
  }
  if (op == "floor" || op == "ceil" || op == "round" || op == "trunc")
    return [](const ElementArgs& a) { return a[0]; };
  return nullptr;
}

bool OfOne(Lowering& at, const GraphNode& node, const OfFloat& f) {
  const ValuePtr x = at.Tensor(node, "self");
  if (TypeOf(x->dtype) == Type::kInt && ResultType(at, node) == Type::kInt) {
    const Lowering::ElementFunction integer = IntegerFunction(node.op);
    return integer && SetMap(at, node, {x}, Type::kInt, integer);
  }
  return SetMap(at, node, {x}, Type::kFloat, [f](const ElementArgs& a) { return f(a[0]); });
}

// --- Arithmetic of two operands ---

// `yes` where the remainder `m` of a division by `b` is not zero and has the other sign, else `no`.
ExprPtr WhereSignsDiffer(const ExprPtr& m, const ExprPtr& b, const ExprPtr& yes, const ExprPtr& no) {
  const ExprPtr zero = Float(0);
  return Select(IsLess(m, zero), Select(IsLess(zero, b), yes, no),
                Select(IsLess(zero, m), Select(IsLess(b, zero), yes, no), no));
}

// As torch: from the exact remainder, since a quotient just below an integer may round to it.
ExprPtr Remainder(const ExprPtr& a, const ExprPtr& b) {
  const ExprPtr m = Binary("fmod", a, b);
  return WhereSignsDiffer(m, b, Plus(m, b), m);
}

ExprPtr FloorDivide(const ExprPtr& a, const ExprPtr& b) {
  const ExprPtr m = Binary("fmod", a, b), truncated = Over(Minus(a, m), b);
  const ExprPtr quotient = WhereSignsDiffer(m, b, Minus(truncated, Float(1)), truncated);
  const ExprPtr below = Unary("floor", quotient);
  const ExprPtr nearest = Select(IsLess(Float(0.5), Minus(quotient, below)), Plus(below, Float(1)), below);
  return Select(Compare("equal", b, Float(0)), Over(a, b), nearest);
}

ExprPtr IntegerArithmetic(const std::string& op, const ExprPtr& a, const ExprPtr& b) {
  if (op == "add") return AddInt(a, b);
  if (op == "sub") return AddInt(a, Scaled(b, -1));
  if (op == "mul") return MulInt(a, b);
  if (op == "minimum" || op == "maximum") {
    const ExprPtr less = Compare("less", a, b);
    return op == "minimum" ? Select(less, a, b) : Select(less, b, a);
  }
  throw Unsupported("`" + op + "` of integers has no stage");
}

// Computed as floats or as integers.
ExprPtr Arithmetic(const std::string& op, Type type, const ExprPtr& a, const ExprPtr& b) {
  if (type == Type::kInt) return IntegerArithmetic(op, a, b);
  if (op == "floor_divide") return FloorDivide(a, b);
  if (op == "remainder") return Remainder(a, b);
  if (op == "div") return Over(a, b);
  return Binary(op, a, b);
}

bool AddOrSubtract(Lowering& at, const GraphNode& node) {
  std::vector<ValuePtr> both = BothOf(at, node);
  if (node.op == "rsub") std::swap(both[0], both[1]);
  const double alpha = at.Number(node, "alpha", 1);
  const Type type = ResultType(at, node) == Type::kFloat ? Type::kFloat : Type::kInt;
  const std::string plain = node.op == "add" ? "add" : "sub";
  return SetMap(at, node, both, type, [=](const ElementArgs& a) {
    if (alpha == 1) return Arithmetic(plain, type, a[0], a[1]);
    const ExprPtr scaled =
        type == Type::kInt ? Scaled(a[1], static_cast<int64_t>(alpha)) : Times(a[1], Float(alpha));
    return Arithmetic(plain, type, a[0], scaled);
  });
}

bool ArithmeticOfTwo(Lowering& at, const GraphNode& node) {
  static const std::map<std::string, std::string> kNames = {
      {"multiply", "mul"}, {"divide", "div"}, {"true_divide", "div"}, {"max", "maximum"}, {"min", "minimum"}};
  if (!node.args.contains("other")) return false;  // the reduction
  const std::string rounding = at.Word(node, "rounding_mode", "");
  const auto found = kNames.find(node.op);
  std::string op = found == kNames.end() ? node.op : found->second;
  if (op == "div" && rounding == "floor") op = "floor_divide";
  const Type type = ResultType(at, node);
  if (type == Type::kBool)
    return SetMap(at, node, BothOf(at, node), type,
                  [op](const ElementArgs& a) { return op == "maximum" ? Or(a[0], a[1]) : And(a[0], a[1]); });
  const std::vector<ValuePtr> both = BothOf(at, node);
  if (type == Type::kInt && (op == "floor_divide" || op == "remainder")) {
    const std::optional<int64_t> divisor = NumberOf(both[1]);
    if (!divisor || *divisor <= 0)
      throw Unsupported("`" + node.op +
                        "` of integers by another operand than a positive number has no stage");
    return SetMap(at, node, {both[0]}, type,
                  [is_division = op == "floor_divide", n = *divisor](const ElementArgs& a) {
                    return is_division ? DivInt(a[0], n) : ModInt(a[0], n);
                  });
  }
  return SetMap(at, node, both, type, [=](const ElementArgs& a) {
    const ExprPtr e = Arithmetic(op, type, a[0], a[1]);
    return rounding == "trunc" && type == Type::kFloat ? Unary("trunc", e) : e;
  });
}

bool OfTwoAsFloats(Lowering& at, const GraphNode& node, OfTwoFloats f) {
  if (ResultType(at, node) != Type::kFloat) return false;
  const char* second = at.Has(node, "values") ? "values" : "other";
  return SetMap(at, node, {at.Tensor(node, "self"), at.Tensor(node, second)}, Type::kFloat,
                [f](const ElementArgs& a) { return f(a[0], a[1]); });
}

// --- Powers ---

ExprPtr PowerOf(const ExprPtr& x, double exponent) {
  if (exponent == 0) return Float(1);
  if (exponent == 0.5) return Unary("sqrt", x);
  if (exponent == -0.5) return Unary("rsqrt", x);
  if (exponent == -1) return Unary("reciprocal", x);
  if (exponent == -2) return Unary("reciprocal", Times(x, x));
  if (exponent == std::floor(exponent) && exponent >= 1 && exponent <= 8) {
    ExprPtr power = x;
    for (int i = 1; i < static_cast<int>(exponent); ++i) power = Times(power, x);
    return power;
  }
  return Binary("pow", x, Float(exponent));
}

bool Power(Lowering& at, const GraphNode& node) {
  const ValuePtr base = at.Tensor(node, "self");
  const Type type = ResultType(at, node);
  const nlohmann::json& given = node.args["exponent"];
  const bool is_number = !given.is_object() || !given.contains("tensor");
  if (type == Type::kInt) {
    const double exponent = is_number ? at.Number(node, "exponent", 1) : -1;
    if (exponent < 1 || exponent > 8 || exponent != std::floor(exponent)) return false;
    return SetMap(at, node, {base}, Type::kInt, [exponent](const ElementArgs& a) {
      ExprPtr power = a[0];
      for (int i = 1; i < static_cast<int>(exponent); ++i) power = MulInt(power, a[0]);
      return power;
    });
  }
  if (is_number) {
    const double exponent = at.Number(node, "exponent", 1);
    return SetMap(at, node, {base}, Type::kFloat,
                  [exponent](const ElementArgs& a) { return PowerOf(a[0], exponent); });
  }
  return SetMap(at, node, {base, at.Tensor(node, "exponent")}, Type::kFloat,
                [](const ElementArgs& a) { return Binary("pow", a[0], a[1]); });
}

// --- Comparisons and logic ---

Type CommonType(const std::vector<ValuePtr>& values) {
  Type type = Type::kBool;
  for (const ValuePtr& value : values) {
    const Type one = TypeOf(value->dtype);
    if (one == Type::kFloat || (one == Type::kInt && type == Type::kBool)) type = one;
  }
  return type;
}

bool Comparison(Lowering& at, const GraphNode& node) {
  if (at.ResultOf(node).dtype != "bool") return false;
  static const std::map<std::string, const char*> kNames = {{"lt", "less"},
                                                            {"le", "less_equal"},
                                                            {"eq", "equal"},
                                                            {"ne", "not_equal"},
                                                            {"gt", "less"},
                                                            {"ge", "less_equal"},
                                                            {"less", "less"},
                                                            {"less_equal", "less_equal"},
                                                            {"greater", "less"},
                                                            {"greater_equal", "less_equal"},
                                                            {"not_equal", "not_equal"}};
  const Op name = std::string(kNames.at(node.op));
  const bool swaps = node.op.starts_with("g");
  const std::vector<ValuePtr> both = BothOf(at, node);
  const Type common = CommonType(both);
  return SetMap(at, node, both, common == Type::kBool ? Type::kInt : common, [=](const ElementArgs& a) {
    return swaps ? Compare(name, a[1], a[0]) : Compare(name, a[0], a[1]);
  });
}

bool IsClose(Lowering& at, const GraphNode& node) {
  const double rtol = at.Number(node, "rtol", 1e-5), atol = at.Number(node, "atol", 1e-8);
  const bool equal_nan = at.Flag(node, "equal_nan", false);
  return SetMap(at, node, BothOf(at, node), Type::kFloat, [=](const ElementArgs& a) {
    const ExprPtr allowed = Plus(Float(atol), Times(Float(rtol), Magnitude(a[1])));
    const ExprPtr gap = Magnitude(Minus(a[0], a[1]));
    const ExprPtr near = And(Compare("less_equal", gap, allowed), IsLess(gap, Float(kInfinity)));
    const ExprPtr close = Or(IsEqual(a[0], a[1]), near);
    return equal_nan ? Or(close, And(IsNan(a[0]), IsNan(a[1]))) : close;
  });
}

bool OfBits(Lowering& at, const GraphNode& node) {
  std::vector<ValuePtr> both = BothOf(at, node);
  if (node.op.find("shift") != std::string::npos) {
    const bool is_left = node.op == "bitwise_left_shift" || node.op == "__lshift__";
    return SetMap(at, node, both, Type::kInt,
                  [is_left](const ElementArgs& a) { return ShiftedBits(a[0], a[1], is_left); });
  }
  if (!NumberOf(both[1])) std::swap(both[0], both[1]);
  const std::optional<int64_t> mask = NumberOf(both[1]);
  if (!mask) throw Unsupported("`" + node.op + "` of integers has no stage where neither is a number");
  return SetMap(at, node, {both[0]}, Type::kInt,
                [op = node.op, mask = *mask](const ElementArgs& a) { return MaskedBits(op, a[0], mask); });
}

bool Logical(Lowering& at, const GraphNode& node) {
  if (at.ResultOf(node).dtype != "bool") {
    if (node.op == "bitwise_not")
      return SetMap(at, node, {at.Tensor(node, "self")}, Type::kInt,
                    [](const ElementArgs& a) { return AddInt(Int(-1), Scaled(a[0], -1)); });
    return OfBits(at, node);
  }
  if (node.op.ends_with("_not"))
    return SetMap(at, node, {at.Tensor(node, "self")}, Type::kBool,
                  [](const ElementArgs& a) { return Not(a[0]); });
  const bool is_xor = node.op.find("xor") != std::string::npos;
  const bool is_and = node.op.find("and") != std::string::npos;
  return SetMap(at, node, BothOf(at, node), Type::kBool, [=](const ElementArgs& a) {
    if (is_xor) return Or(And(a[0], Not(a[1])), And(Not(a[0]), a[1]));
    return is_and ? And(a[0], a[1]) : Or(a[0], a[1]);
  });
}

// --- Choices ---

bool Clamp(Lowering& at, const GraphNode& node) {
  std::vector<ValuePtr> values = {at.Tensor(node, "self")};
  const bool has_low = at.Has(node, "min"), has_high = at.Has(node, "max");
  if (has_low) values.push_back(at.Tensor(node, "min"));
  if (has_high) values.push_back(at.Tensor(node, "max"));
  const Type type = ResultType(at, node);
  return SetMap(at, node, values, type, [=](const ElementArgs& a) {
    ExprPtr x = a[0];
    if (has_low) x = Arithmetic("maximum", type, x, a[1]);
    return has_high ? Arithmetic("minimum", type, x, a.back()) : x;
  });
}

// condition ? yes : no, where all three may broadcast.
bool Choose(Lowering& at, const GraphNode& node, const ValuePtr& condition, const ValuePtr& yes,
            const ValuePtr& no) {
  const Type type = ResultType(at, node);
  at.Set(node, at.Lazy(
                   at.ResultOf(node).dtype, Lowering::BroadcastShape({condition, yes, no}),
                   [=](const Index& index) {
                     return Select(ToType(Lowering::AtBroadcast(condition, index), Type::kBool),
                                   ToType(Lowering::AtBroadcast(yes, index), type),
                                   ToType(Lowering::AtBroadcast(no, index), type));
                   },
                   condition->cost + yes->cost + no->cost + 1));
  return true;
}

bool Where(Lowering& at, const GraphNode& node) {
  return Choose(at, node, at.Tensor(node, "condition"), at.Tensor(node, "self"), at.Tensor(node, "other"));
}

bool MaskedFill(Lowering& at, const GraphNode& node) {
  return Choose(at, node, at.Tensor(node, "mask"), at.Tensor(node, "value"), at.Tensor(node, "self"));
}

// --- Of three operands, and others ---

bool Prelu(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, "self");
  const ValuePtr given = at.Tensor(node, "weight");
  Shape shape;
  if (Count(given->shape) > 1) shape.assign(x->shape.size(), 1);
  if (shape.size() > 1) shape[1] = Count(given->shape);
  const ValuePtr weight = at.Reshape(given, shape);
  return SetMap(at, node, {x, weight}, Type::kFloat,
                [](const ElementArgs& a) { return Select(IsLess(Float(0), a[0]), a[0], Times(a[0], a[1])); });
}

bool Lerp(Lowering& at, const GraphNode& node) {
  return SetMap(at, node, {at.Tensor(node, "self"), at.Tensor(node, "end"), at.Tensor(node, "weight")},
                Type::kFloat,
                [](const ElementArgs& a) { return Plus(a[0], Times(a[2], Minus(a[1], a[0]))); });
}

bool AddProduct(Lowering& at, const GraphNode& node) {
  const double value = at.Number(node, "value", 1);
  const bool divides = node.op == "addcdiv";
  return SetMap(at, node, {at.Tensor(node, "self"), at.Tensor(node, "tensor1"), at.Tensor(node, "tensor2")},
                Type::kFloat, [=](const ElementArgs& a) {
                  return Plus(a[0], Times(Float(value), divides ? Over(a[1], a[2]) : Times(a[1], a[2])));
                });
}

bool Glu(Lowering& at, const GraphNode& node) {
  const ValuePtr x = at.Tensor(node, "self");
  const int64_t given = at.Integer(node, "dim", -1);
  const size_t dim = static_cast<size_t>(given < 0 ? given + static_cast<int64_t>(x->shape.size()) : given);
  const int64_t half = x->shape[dim] / 2;
  return SetMap(at, node, {at.Sliced(x, dim, 0, half), at.Sliced(x, dim, half, half)}, Type::kFloat,
                [](const ElementArgs& a) { return Times(a[0], Unary("sigmoid", a[1])); });
}

bool Unchanged(Lowering& at, const GraphNode& node) {
  if (node.op.ends_with("dropout") && at.Flag(node, "train", false))
    throw Unsupported("`" + node.op + "` in training draws random numbers");
  at.Set(node, at.Tensor(node, node.args.contains("self") ? "self" : "input"));
  return true;
}

const std::map<std::string, ElementwiseFunction>& ElementwiseTable() {
  static const std::map<std::string, ElementwiseFunction> kTable = [] {
    std::map<std::string, ElementwiseFunction> table = {
        {"pow", Power},   {"float_power", Power},      {"isclose", IsClose},
        {"where", Where}, {"masked_fill", MaskedFill}, {"prelu", Prelu},
        {"lerp", Lerp},   {"addcmul", AddProduct},     {"addcdiv", AddProduct},
        {"glu", Glu}};
    const auto add = [&](ElementwiseFunction f, const std::vector<const char*>& names) {
      for (const char* name : names) table[name] = f;
    };
    add(AddOrSubtract, {"add", "sub", "rsub", "subtract"});
    add(ArithmeticOfTwo, {"mul", "multiply", "div", "divide", "true_divide", "minimum", "maximum", "max",
                          "min", "fmod", "remainder", "floor_divide"});
    add(Comparison,
        {"lt", "le", "eq", "ne", "gt", "ge", "less", "less_equal", "greater", "greater_equal", "not_equal"});
    add(Logical, {"logical_and", "logical_or", "logical_xor", "logical_not", "bitwise_and", "bitwise_or",
                  "bitwise_xor", "bitwise_not", "bitwise_left_shift", "bitwise_right_shift", "__and__",
                  "__or__", "__xor__", "__lshift__", "__rshift__"});
    add(Clamp, {"clamp", "clip", "clamp_min", "clamp_max"});
    add(Unchanged, {"to",
                    "_to_copy",
                    "type_as",
                    "float",
                    "clone",
                    "contiguous",
                    "detach",
                    "alias",
                    "lift_fresh",
                    "Float",
                    "positive",
                    "real",
                    "conj",
                    "conj_physical",
                    "resolve_conj",
                    "resolve_neg",
                    "dropout",
                    "alpha_dropout",
                    "feature_dropout",
                    "feature_alpha_dropout",
                    "native_dropout"});
    return table;
  }();
  return kTable;
}

}  // namespace

bool Lowering::Elementwise(const GraphNode& node) {
  if (node.results.empty()) return false;
  if (const OfFloat f = FloatFunction(*this, node)) return OfOne(*this, node, f);
  if (const OfTwoFloats f = FloatFunctionOfTwo(node.op)) return OfTwoAsFloats(*this, node, f);
  const auto found = ElementwiseTable().find(node.op);
  return found != ElementwiseTable().end() && found->second(*this, node);
}

}  // namespace kevin::search
