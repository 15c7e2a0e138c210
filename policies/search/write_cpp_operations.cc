// CppPrinter: leaves, integers and operations on elements.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "policies/search/cpp_text.h"

namespace kevin::search {
namespace {

// Operations that are a function of the prelude under this name, for float and Vec.
const std::map<std::string, const char*>& CppFunctions() {
  static const std::map<std::string, const char*> kFunctions = {{"abs", "Abs"},
                                                                {"exp", "Exp"},
                                                                {"exp2", "Exp2"},
                                                                {"expm1", "Expm1"},
                                                                {"log", "Log"},
                                                                {"log2", "Log2"},
                                                                {"log10", "Log10"},
                                                                {"log1p", "Log1p"},
                                                                {"sqrt", "Sqrt"},
                                                                {"sigmoid", "Sigmoid"},
                                                                {"tanh", "Tanh"},
                                                                {"erf", "Erf"},
                                                                {"sin", "Sin"},
                                                                {"cos", "Cos"},
                                                                {"tan", "Tan"},
                                                                {"asin", "Asin"},
                                                                {"acos", "Acos"},
                                                                {"atan", "Atan"},
                                                                {"sinh", "Sinh"},
                                                                {"cosh", "Cosh"},
                                                                {"floor", "Floor"},
                                                                {"ceil", "Ceil"},
                                                                {"round", "Round"},
                                                                {"trunc", "Trunc"},
                                                                {"sign", "Sign"},
                                                                {"pow", "Pow"},
                                                                {"fmod", "Fmod"},
                                                                {"atan2", "Atan2"},
                                                                {"minimum", "NanMin"},
                                                                {"maximum", "NanMax"},
                                                                {"as_float16", "AsFloat16"},
                                                                {"as_bfloat16", "AsBfloat16"}};
  return kFunctions;
}

const std::map<std::string, const char*>& CppOperators() {
  static const std::map<std::string, const char*> kOperators = {
      {"add", "+"},  {"sub", "-"},         {"mul", "*"},    {"div_float", "/"}, {"product", "*"},
      {"less", "<"}, {"less_equal", "<="}, {"equal", "=="}, {"not_equal", "!="}};
  return kOperators;
}

std::string CppFloat(double number) {
  const float value = static_cast<float>(number);
  if (std::isnan(value)) return "__builtin_nanf(\"\")";
  if (std::isinf(value)) return value > 0 ? "__builtin_inff()" : "(-__builtin_inff())";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  return value < 0 || std::signbit(value) ? "(" + text + "f)" : text + "f";
}

std::string CppDivision(const Expr& expr, const std::string& a, const std::string& divisor) {
  const bool is_div = expr.op == "div";
  if (expr.args[0]->low >= 0) return fmt::format("({} {} {})", a, is_div ? "/" : "%", divisor);
  return fmt::format("{}({}, {})", is_div ? "FloorDiv" : "FloorMod", a, divisor);
}

}  // namespace

std::string CppStage::Float(double value) const {
  return sharing != CppSharing::kNone && !IsCommonFloat(value) ? FloatHole(CppFloat(value)) : CppFloat(value);
}

CppPrinter::Value CppPrinter::EmitLeaf(const ExprPtr& expr) {
  Value value;
  if (expr->op == "constant") {
    value.constant = true;
    value.text = expr->type == Type::kFloat  ? stage_.Float(expr->number)
                 : expr->type == Type::kBool ? (expr->integer ? "true" : "false")
                                             : stage_.Number(expr->integer);
    return value;
  }
  value.named = true;
  if (expr->op == "variable" && expr->id == lanes_variable_ && lane_.empty()) {
    value.depth = lanes_depth_;
    value.lanes = !first_lane_;
    value.text = first_lane_ ? lanes_name_ : fmt::format("(int({}) + Iota())", lanes_name_);
    return value;
  }
  const auto& names = expr->op == "result" ? results_ : variables_;
  const Binding& binding = names.at(expr->id);
  value.text = binding.name;
  value.depth = binding.depth;
  value.lanes = binding.lanes;
  if (value.lanes && !lane_.empty()) {
    value.text = fmt::format(fmt::runtime(expr->type == Type::kBool ? "({}[{}] != 0)" : "{}[{}]"),
                             binding.name, lane_);
    value.lanes = false;
    value.depth = Depth();
  }
  return value;
}

// Terms that are known further out are added there.
CppPrinter::Value CppPrinter::EmitSum(const Expr& expr, bool lanes) {
  struct Part {
    Value value;
    size_t index;
  };
  std::vector<Part> parts;
  for (size_t i = 0; i < expr.args.size(); ++i) parts.push_back({Emit(expr.args[i]), i});
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& a, const Part& b) { return a.value.depth < b.value.depth; });
  std::stable_sort(parts.begin(), parts.end(),
                   [](const Part& a, const Part& b) { return a.value.lanes < b.value.lanes; });
  Value sum;
  sum.constant = true;
  if (expr.integer != 0) sum.text = stage_.Number(expr.integer);
  for (const Part& part : parts) {
    const int64_t coefficient = expr.coefficients[part.index];
    const bool is_int = lanes && part.value.lanes;
    std::string term = part.value.text;
    const std::string factor = stage_.Number(coefficient);
    if (coefficient == -1) term = "-" + term;
    if (coefficient != 1 && coefficient != -1)
      term = fmt::format(fmt::runtime(is_int ? "{} * int({})" : "{} * {}"), term, factor);
    const bool deeper = part.value.depth > sum.depth || is_int != sum.lanes;
    if (deeper && !sum.constant) {
      sum.text = NamedText(sum.depth, sum.lanes ? "IntVec" : "long", sum.text);
    }
    if (is_int && !sum.lanes && !sum.text.empty()) sum.text = fmt::format("int({})", sum.text);
    sum.text = sum.text.empty() ? term : sum.text + " + " + term;
    sum.depth = std::max(sum.depth, part.value.depth);
    sum.lanes = sum.lanes || is_int;
    sum.constant = false;
  }
  sum.text = "(" + sum.text + ")";
  return sum;
}

// Lanes over a number that they share: one division, outside.
CppPrinter::Value CppPrinter::EmitTimesInverse(Value lanes, const Value& divisor, const Expr& expr,
                                               Value value) {
  Value inverse = divisor;
  inverse.named = false;
  inverse.text = fmt::format("1.0f / {}", divisor.text);
  const std::string name = NamedText(inverse.depth, "float", inverse.text);
  const std::string splat = NamedText(inverse.depth, "Vec", fmt::format("Splat({})", name));
  if (lanes.depth < value.depth) lanes = Named(lanes, expr.args[0]);
  value.text = fmt::format("({} * {})", lanes.text, splat);
  return value;
}

CppPrinter::Value CppPrinter::EmitOperation(const ExprPtr& expr) {
  Value value;
  value.lanes = IsLanes(expr);
  std::vector<Value> args;
  for (const ExprPtr& arg : expr->args) {
    args.push_back(Emit(arg));
    value.depth = std::max(value.depth, args.back().depth);
  }
  if (value.lanes) value.depth = std::max(value.depth, lanes_depth_);
  const bool is_inverse = expr->op == "div_float" && value.lanes && !args[1].lanes && !args[1].constant;
  if (is_inverse) return EmitTimesInverse(args[0], args[1], *expr, value);
  std::vector<std::string> a;
  for (size_t i = 0; i < args.size(); ++i) {
    if (args[i].depth < value.depth) args[i] = Named(args[i], expr->args[i]);
    if (value.lanes) args[i] = Splat(args[i], expr->args[i]);
    a.push_back(args[i].text);
  }
  const std::string op = expr->op.Name();
  const bool from_bool = !expr->args.empty() && expr->args[0]->type == Type::kBool;
  const auto function = CppFunctions().find(op);
  const auto sign = CppOperators().find(op);
  if (op == "pow" && expr->args[1]->op == "constant") {
    const double power = expr->args[1]->number;
    const std::string x = Named(args[0], expr->args[0]).text;
    value.text = power == 2      ? fmt::format("({0} * {0})", x)
                 : power == 3    ? fmt::format("({0} * {0} * {0})", x)
                 : power == 4    ? fmt::format("(({0} * {0}) * ({0} * {0}))", x)
                 : power == 0.5  ? fmt::format("Sqrt({})", x)
                 : power == -1   ? fmt::format("(1.0f / {})", x)
                 : power == -0.5 ? fmt::format("(1.0f / Sqrt({}))", x)
                                 : fmt::format("Pow({}, {})", x, a[1]);
  } else if (function != CppFunctions().end()) {
    value.text = fmt::format(fmt::runtime(a.size() == 1 ? "{}({})" : "{}({}, {})"), function->second, a[0],
                             a.size() > 1 ? a[1] : "");
  } else if (sign != CppOperators().end()) {
    value.text = fmt::format("({} {} {})", a[0], sign->second, a[1]);
  } else if (op == "div" || op == "mod") {
    const std::string divisor = stage_.Number(expr->integer);
    value.text = CppDivision(*expr, a[0], value.lanes ? fmt::format("int({})", divisor) : divisor);
  } else if (op == "neg") {
    value.text = fmt::format("(-{})", a[0]);
  } else if (op == "rsqrt") {
    value.text = fmt::format("(1.0f / Sqrt({}))", a[0]);
  } else if (op == "reciprocal") {
    value.text = fmt::format("(1.0f / {})", a[0]);
  } else if (op == "select") {
    value.text =
        fmt::format(fmt::runtime(value.lanes ? "Select({}, {}, {})" : "({} ? {} : {})"), a[0], a[1], a[2]);
  } else if (op == "and" || op == "or") {
    value.text = fmt::format("({} {} {})", a[0], op == "and" ? "&" : "|", a[1]);
  } else if (op == "not") {
    value.text = fmt::format("({}{})", value.lanes ? "~" : "!", a[0]);
  } else if (op == "to_bool") {
    value.text = fmt::format("({} != 0)", a[0]);
  } else if (op == "to_float") {
    value.text = !value.lanes ? fmt::format("float({})", a[0])
                              : fmt::format("ToFloat({}{})", from_bool ? "-" : "", a[0]);
  } else if (op == "to_int") {
    value.text = value.lanes ? fmt::format("(-{})", a[0]) : fmt::format("long({})", a[0]);
  } else {
    throw Unsupported(fmt::format("the operation {} in C++", op));
  }
  return value;
}

}  // namespace kevin::search
