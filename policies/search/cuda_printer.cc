// Expressions as C++ for the device.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <map>

#include "policies/search/cuda_text.h"

namespace kevin::search {
namespace {

constexpr int64_t kIntHigh = std::numeric_limits<int32_t>::max();
constexpr size_t kLongText = 120;  // a longer operand gets a name

bool IsIn32(int64_t low, int64_t high) { return low >= -kIntHigh && high <= kIntHigh; }

const std::map<std::string, const char*>& CudaUnary() {
  static const std::map<std::string, const char*> kTexts = {
      {"neg", "(-{})"},
      {"abs", "fabsf({})"},
      {"exp", "expf({})"},
      {"exp2", "exp2f({})"},
      {"expm1", "expm1f({})"},
      {"log", "logf({})"},
      {"log2", "log2f({})"},
      {"log10", "log10f({})"},
      {"log1p", "log1pf({})"},
      {"sqrt", "sqrtf({})"},
      {"rsqrt", "rsqrtf({})"},
      {"reciprocal", "(1.0f / {})"},
      {"sigmoid", "Sigmoid({})"},
      {"tanh", "tanhf({})"},
      {"erf", "erff({})"},
      {"sin", "sinf({})"},
      {"cos", "cosf({})"},
      {"tan", "tanf({})"},
      {"asin", "asinf({})"},
      {"acos", "acosf({})"},
      {"atan", "atanf({})"},
      {"sinh", "sinhf({})"},
      {"cosh", "coshf({})"},
      {"floor", "floorf({})"},
      {"ceil", "ceilf({})"},
      {"round", "rintf({})"},
      {"trunc", "truncf({})"},
      {"sign", "Sign({})"},
      {"to_bool", "({} != 0)"},
      {"as_float16", "Widen(Narrow<__half>({}))"},
      {"as_bfloat16", "Widen(Narrow<__nv_bfloat16>({}))"}};
  return kTexts;
}

const std::map<std::string, const char*>& CudaBinary() {
  static const std::map<std::string, const char*> kTexts = {
      {"add", "({} + {})"},        {"sub", "({} - {})"},          {"mul", "({} * {})"},
      {"div_float", "({} / {})"},  {"minimum", "NanMin({}, {})"}, {"maximum", "NanMax({}, {})"},
      {"fmod", "fmodf({}, {})"},   {"atan2", "atan2f({}, {})"},   {"pow", "powf({}, {})"},
      {"less", "({} < {})"},       {"less_equal", "({} <= {})"},  {"equal", "({} == {})"},
      {"not_equal", "({} != {})"}, {"and", "({} && {})"},         {"or", "({} || {})"}};
  return kTexts;
}

// x to a small constant power, with a name for x; empty: powf.
std::string PowerText(const std::string& x, double power) {
  if (power == 2) return fmt::format("({0} * {0})", x);
  if (power == 3) return fmt::format("({0} * {0} * {0})", x);
  if (power == 4) return fmt::format("(({0} * {0}) * ({0} * {0}))", x);
  if (power == 0.5) return fmt::format("sqrtf({})", x);
  if (power == -0.5) return fmt::format("rsqrtf({})", x);
  if (power == -1) return fmt::format("(1.0f / {})", x);
  if (power == -2) return fmt::format("(1.0f / ({0} * {0}))", x);
  return "";
}

}  // namespace

bool FitsInt(const Expr& expr) {
  if (!IsIn32(expr.low, expr.high)) return false;
  if (expr.op != "sum") return true;
  for (size_t i = 0; i < expr.args.size(); ++i) {
    const double c = std::fabs(static_cast<double>(expr.coefficients[i]));
    const double most =
        c * static_cast<double>(std::max(std::abs(expr.args[i]->low), std::abs(expr.args[i]->high)));
    if (most > kIntHigh || c > kIntHigh) return false;
  }
  return true;
}

std::string CudaTypeOf(const Expr& expr) {
  if (expr.type == Type::kFloat) return "float";
  if (expr.type == Type::kBool) return "bool";
  return expr.op != "load" && expr.op != "result" && FitsInt(expr) ? "int" : "long";
}

std::string CudaFloat(double value) {
  if (std::isnan(value)) return "NotANumber()";
  if (std::isinf(value)) return value > 0 ? "Infinity()" : "(-Infinity())";
  const auto narrow = static_cast<float>(value);
  if (std::isinf(narrow)) return narrow > 0 ? "Infinity()" : "(-Infinity())";
  std::string text = fmt::format("{}", narrow);
  if (text.find_first_of(".e") == std::string::npos) text += ".0";
  text += "f";
  return text[0] == '-' ? "(" + text + ")" : text;
}

std::string CudaPrinter::Value(const ExprPtr& expr) {
  std::unordered_map<std::string, int> uses;
  for (const Expr* node : Nodes(expr)) {
    for (const ExprPtr& arg : node->args) ++uses[arg->key];
  }
  for (const auto& [key, count] : uses) uses_[key] = std::max(uses_[key], count);
  return Node(*expr);
}

std::string CudaPrinter::Named(const Expr& e, const std::string& text) {
  const std::string name = kernel_->Fresh();
  lines_ += fmt::format("const {} {} = {};\n", CudaTypeOf(e), name, text);
  known_[e.key] = name;
  return name;
}

// Whether the value needs a load that is not done.
bool CudaPrinter::HasOpenLoad(const ExprPtr& e) const {
  const std::vector<const Expr*> nodes = Nodes(e);
  return std::any_of(nodes.begin(), nodes.end(),
                     [&](const Expr* n) { return n->op == "load" && !loads_.count(n->key); });
}

std::string CudaPrinter::Node(const Expr& e) {
  if (const auto known = known_.find(e.key); known != known_.end()) return known->second;
  if (const auto done = loads_.find(e.key); done != loads_.end()) return done->second;
  if (e.op == "constant") {
    if (e.type == Type::kFloat) return kernel_->Float(e.number);
    if (e.type == Type::kBool) return e.integer ? "true" : "false";
    return kernel_->Number(e.integer);
  }
  if (e.op == "variable") {
    const auto found = variables_.find(e.id);
    return found != variables_.end() ? found->second : kernel_->RepeatVariable(e.id);
  }
  if (e.op == "result") {
    const auto found = results_.find(e.id);
    if (found == results_.end())
      throw Error(ExitCode::kBroken, fmt::format("result {} has no value here", e.id));
    return found->second;
  }
  std::string text;
  if (e.op == "load") {
    text = LoadText(e);
  } else if (e.op == "sum" || e.op == "div" || e.op == "mod" || e.op == "product") {
    text = IntegerText(e);
  } else if (e.op == "guard") {
    text = GuardText(e);
  } else if (e.op == "select") {
    const std::string condition = Node(*e.args[0]), yes = Node(*e.args[1]), no = Node(*e.args[2]);
    text = fmt::format("({} ? {} : {})", condition, yes, no);
  } else if (e.op == "not") {
    text = "!" + Node(*e.args[0]);
  } else if (e.op == "to_float" || e.op == "to_int") {
    text = fmt::format("{}({})", CudaTypeOf(e), Node(*e.args[0]));
  } else if (e.op == "pow" && e.args[1]->op == "constant" && !PowerText("x", e.args[1]->number).empty()) {
    std::string base = Node(*e.args[0]);
    if (base.size() > 12) base = Named(*e.args[0], base);
    text = PowerText(base, e.args[1]->number);
  } else if (const auto unary = CudaUnary().find(e.op.Name()); unary != CudaUnary().end()) {
    text = fmt::format(fmt::runtime(unary->second), Node(*e.args[0]));
  } else if (const auto binary = CudaBinary().find(e.op.Name()); binary != CudaBinary().end()) {
    const std::string a = Node(*e.args[0]), b = Node(*e.args[1]);
    text = fmt::format(fmt::runtime(binary->second), a, b);
  } else {
    throw Unsupported("`" + e.op.Name() + "` has no text in CUDA");
  }
  const auto uses = uses_.find(e.key);
  const bool again = uses != uses_.end() && uses->second > 1;
  return again || text.size() > kLongText ? Named(e, text) : text;
}

std::string CudaPrinter::IntegerText(const Expr& e) {
  const bool is_int = FitsInt(e);
  const std::string type = is_int ? "int" : "long";
  if (e.op == "product") {
    const std::string a = Node(*e.args[0]), b = Node(*e.args[1]);
    return is_int ? fmt::format("int({} * {})", a, b) : fmt::format("(long({}) * {})", a, b);
  }
  if (e.op == "div" || e.op == "mod") {
    const std::string a = Node(*e.args[0]), by = kernel_->Number(e.integer);
    const bool is_narrow = CudaTypeOf(*e.args[0]) == "int" && e.integer <= kIntHigh;
    const char* name = e.op == "div" ? "/" : "%";
    if (e.args[0]->low < 0)
      return fmt::format("{}(Floor{}({}, {}))", type, e.op == "div" ? "Div" : "Mod", a, by);
    const char* wide = is_narrow ? "unsigned" : "(unsigned long)";
    return fmt::format("{}({}({}) {} {}({}))", type, wide, a, name, wide, by);
  }
  std::string text;
  for (size_t i = 0; i < e.args.size(); ++i) {
    const int64_t c = e.coefficients[i];
    const std::string arg = Node(*e.args[i]);
    if (!text.empty()) text += " + ";
    if (c == 1 && kernel_->text().sharing() != CudaSharing::kForms) {
      text += is_int ? arg : fmt::format("long({})", arg);
    } else {
      text += fmt::format("{}{} * {}", is_int ? "" : "(long)", kernel_->Number(c), arg);
    }
  }
  if (e.integer != 0) text += " + " + kernel_->Number(e.integer);
  return "(" + text + ")";
}

std::string CudaPrinter::LoadText(const Expr& e) {
  const std::string offset = Node(*e.args[0]);
  return fmt::format("Widen({}[{}])", kernel_->Buffer(e.id), offset);
}

std::string CudaPrinter::GuardText(const Expr& e) {
  const std::string condition = Node(*e.args[0]), otherwise = Node(*e.args[2]);
  if (!HasOpenLoad(e.args[1])) return fmt::format("({} ? {} : {})", condition, Node(*e.args[1]), otherwise);
  CudaPrinter inside = *this;
  inside.lines_.clear();
  const std::string value = inside.Node(*e.args[1]);
  if (inside.lines_.empty()) return fmt::format("({} ? {} : {})", condition, value, otherwise);
  const std::string name = kernel_->Fresh();
  lines_ += fmt::format("{} {} = {};\nif ({}) {{\n{}{} = {};\n}}\n", CudaTypeOf(e), name, otherwise,
                        condition, inside.lines_, name, value);
  return name;
}

// --- Loops ---

int64_t Points(const std::vector<Loop>& loops) {
  int64_t points = 1;
  for (const Loop& loop : loops) points *= loop.extent;
  return points;
}

std::string DecodeLoops(CudaPrinter& printer, const std::vector<Loop>& loops, const std::string& linear) {
  CudaKernel& kernel = printer.kernel();
  std::vector<const Loop*> real;
  for (const Loop& loop : loops) {
    if (loop.extent > 1) real.push_back(&loop);
  }
  std::string text, left = linear;
  const char* type = CudaCountType(Points(loops));
  for (size_t i = real.size(); i-- > 0;) {
    const std::string name = kernel.Fresh("i");
    const char* integer = real[i]->extent > kIntHigh ? "long" : "int";
    if (i == 0) {
      text += fmt::format("const {0} {1} = {0}({2});\n", integer, name, left);
    } else {
      const std::string rest = kernel.Fresh("d"),
                        extent = fmt::format("({})({})", type, kernel.Number(real[i]->extent));
      text += fmt::format("const {} {} = {} / {};\nconst {} {} = {}({} - {} * {});\n", type, rest, left,
                          extent, integer, name, integer, left, rest, extent);
      left = rest;
    }
    printer.SetVariable(real[i]->variable, name);
  }
  return text;
}

}  // namespace kevin::search
