#include "policies/search/expression.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>

#include "env/error.h"
#include "policies/search/expression_parts.h"

namespace kevin::search {
namespace {

// A digest of 128 bits, of which keys have 15 bytes (no more fits into a string without memory of its own): equal keys
// mean equal trees for all practical purposes.
class Digest {
 public:
  void Add(uint64_t word) {
    a_ = (a_ ^ word) * 0x9fb21c651e98df25ULL;
    a_ ^= a_ >> 32;
    b_ = (b_ + word) * 0x9e3779b97f4a7c15ULL;
    b_ ^= b_ >> 29;
  }
  void Add(std::string_view text) {
    Add(static_cast<uint64_t>(text.size()));
    for (size_t at = 0; at < text.size(); at += sizeof(uint64_t)) {
      uint64_t word = 0;
      std::memcpy(&word, text.data() + at, std::min(sizeof word, text.size() - at));
      Add(word);
    }
  }
  template <class Number>
  void AddNumber(Number number) {
    static_assert(sizeof number <= sizeof(uint64_t));
    uint64_t word = 0;
    std::memcpy(&word, &number, sizeof number);
    Add(word);
  }
  std::string Text() const {
    constexpr size_t kBytes = 15;
    uint64_t words[] = {a_ * 0xd6e8feb86659fd93ULL, b_ * 0xa0761d6478bd642fULL};
    words[0] ^= words[0] >> 32;
    words[1] ^= words[1] >> 32;
    return {reinterpret_cast<const char*>(words), kBytes};
  }

 private:
  uint64_t a_ = 0xcbf29ce484222325ULL, b_ = 0x2545f4914f6cdd1dULL;
};

}  // namespace

Op::Op(const std::string& name) : number_(static_cast<uint8_t>(Find(name))) {
  if (number_ == kOps) throw Error(ExitCode::kBroken, "expressions have no operation `" + name + "`");
}

ExprPtr Finish(Expr expr) {
  Digest digest;
  digest.Add(kOpNames[expr.op.number()]);
  digest.AddNumber(static_cast<int>(expr.type));
  digest.AddNumber(expr.number);
  digest.AddNumber(expr.integer);
  digest.AddNumber(expr.id);
  if (expr.op == "variable") digest.AddNumber(expr.high);
  int64_t size = 1;
  for (size_t i = 0; i < expr.args.size(); ++i) {
    digest.Add(expr.args[i]->key);
    if (i < expr.coefficients.size()) digest.AddNumber(expr.coefficients[i]);
    size += expr.args[i]->size;
  }
  expr.size = static_cast<int>(std::min<int64_t>(size, kMaxSize));
  if (expr.type == Type::kBool) expr.low = 0, expr.high = expr.op == "constant" ? expr.integer : 1;
  if (expr.type == Type::kBool && expr.op == "constant") expr.low = expr.integer;
  expr.key = digest.Text();
  return std::make_shared<const Expr>(std::move(expr));
}

ExprPtr Simple(Op op, Type type, std::vector<ExprPtr> args) {
  Expr expr;
  expr.op = op;
  expr.type = type;
  expr.args = std::move(args);
  if (type == Type::kInt) expr.low = -kFar, expr.high = kFar;
  return Finish(std::move(expr));
}

namespace {

bool IsNumber(const ExprPtr& e, double value) {
  return e->op == "constant" && e->type == Type::kFloat && e->number == value;
}

}  // namespace

ExprPtr Float(double value) {
  Expr expr;
  expr.op = "constant";
  expr.number = value;
  return Finish(std::move(expr));
}

namespace {

ExprPtr NewInt(int64_t value) {
  Expr expr;
  expr.op = "constant";
  expr.type = Type::kInt;
  expr.integer = expr.low = expr.high = value;
  return Finish(std::move(expr));
}

}  // namespace

ExprPtr Int(int64_t value) {
  // A third of all expressions. By thread, so that threads do not wait for one another to count their owners.
  thread_local const ExprPtr kCommon[] = {NewInt(-1), NewInt(0), NewInt(1)};
  return value >= -1 && value <= 1 ? kCommon[value + 1] : NewInt(value);
}

ExprPtr Bool(bool value) {
  Expr expr;
  expr.op = "constant";
  expr.type = Type::kBool;
  expr.integer = value;
  return Finish(std::move(expr));
}

ExprPtr Variable(int id, int64_t extent) {
  if (extent == 1) return Int(0);
  Expr expr;
  expr.op = "variable";
  expr.type = Type::kInt;
  expr.id = id;
  expr.high = extent - 1;
  return Finish(std::move(expr));
}

ExprPtr Load(int buffer, Type type, const ExprPtr& offset) {
  Expr expr;
  expr.op = "load";
  expr.type = type;
  expr.id = buffer;
  expr.args = {offset};
  if (type == Type::kInt) expr.low = -kFar, expr.high = kFar;
  return Finish(std::move(expr));
}

ExprPtr Result(int id, Type type) {
  Expr expr;
  expr.op = "result";
  expr.type = type;
  expr.id = id;
  if (type == Type::kInt) expr.low = -kFar, expr.high = kFar;
  return Finish(std::move(expr));
}

// --- Conditions ---

namespace {

bool IsChoiceOfConstants(const ExprPtr& e) {
  return e->op == "select" && IsConstant(e->args[1]) && IsConstant(e->args[2]);
}

}  // namespace

ExprPtr Compare(Op op, const ExprPtr& a, const ExprPtr& b) {
  // Masks: triu(ones) > 0.
  if (IsChoiceOfConstants(a) && IsConstant(b))
    return Select(a->args[0], Compare(op, a->args[1], b), Compare(op, a->args[2], b));
  if (IsChoiceOfConstants(b) && IsConstant(a))
    return Select(b->args[0], Compare(op, a, b->args[1]), Compare(op, a, b->args[2]));
  if (a->type == Type::kInt) {
    const ExprPtr difference = AddScaled(a, b, -1);
    const int64_t low = difference->low, high = difference->high;
    if (op == "less" && high < 0) return Bool(true);
    if (op == "less" && low >= 0) return Bool(false);
    if (op == "less_equal" && high <= 0) return Bool(true);
    if (op == "less_equal" && low > 0) return Bool(false);
    if ((op == "equal" || op == "not_equal") && (low > 0 || high < 0)) return Bool(op == "not_equal");
    if ((op == "equal" || op == "not_equal") && low == 0 && high == 0) return Bool(op == "equal");
  } else if (IsConstant(a) && IsConstant(b) && a->type == Type::kFloat) {
    const double x = a->number, y = b->number;
    return Bool(op == "less" ? x < y : op == "less_equal" ? x <= y : op == "equal" ? x == y : x != y);
  }
  return Simple(op, Type::kBool, {a, b});
}

ExprPtr And(const ExprPtr& a, const ExprPtr& b) {
  if (IsConstant(a)) return a->integer ? b : a;
  if (IsConstant(b)) return b->integer ? a : b;
  return a->key == b->key ? a : Simple("and", Type::kBool, {a, b});
}

ExprPtr Or(const ExprPtr& a, const ExprPtr& b) {
  if (IsConstant(a)) return a->integer ? a : b;
  if (IsConstant(b)) return b->integer ? b : a;
  return a->key == b->key ? a : Simple("or", Type::kBool, {a, b});
}

ExprPtr Not(const ExprPtr& a) {
  if (IsConstant(a)) return Bool(!a->integer);
  if (a->op == "not") return a->args[0];
  return Simple("not", Type::kBool, {a});
}

namespace {

ExprPtr Chosen(Op op, const ExprPtr& condition, const ExprPtr& yes, const ExprPtr& no) {
  if (IsConstant(condition)) return condition->integer ? yes : no;
  if (yes->key == no->key && !yes->args.size()) return yes;
  Expr expr;
  expr.op = op;
  expr.type = yes->type;
  expr.args = {condition, yes, no};
  expr.low = std::min(yes->low, no->low);
  expr.high = std::max(yes->high, no->high);
  return Finish(std::move(expr));
}

}  // namespace

ExprPtr Guard(const ExprPtr& condition, const ExprPtr& value, const ExprPtr& otherwise) {
  return Chosen("guard", condition, value, otherwise);
}

ExprPtr Select(const ExprPtr& condition, const ExprPtr& yes, const ExprPtr& no) {
  if (yes->type == Type::kBool && IsConstant(yes) && IsConstant(no) && yes->integer != no->integer)
    return yes->integer ? condition : Not(condition);
  return Chosen("select", condition, yes, no);
}

// --- Floats ---

namespace {

std::optional<double> FoldUnary(Op op, double x) {
  static const std::map<std::string, double (*)(double)> kFunctions = {
      {"neg", [](double v) { return -v; }},
      {"abs", [](double v) { return std::fabs(v); }},
      {"exp", [](double v) { return std::exp(v); }},
      {"exp2", [](double v) { return std::exp2(v); }},
      {"expm1", [](double v) { return std::expm1(v); }},
      {"log", [](double v) { return std::log(v); }},
      {"log2", [](double v) { return std::log2(v); }},
      {"log10", [](double v) { return std::log10(v); }},
      {"log1p", [](double v) { return std::log1p(v); }},
      {"sqrt", [](double v) { return std::sqrt(v); }},
      {"rsqrt", [](double v) { return 1 / std::sqrt(v); }},
      {"reciprocal", [](double v) { return 1 / v; }},
      {"sigmoid", [](double v) { return 1 / (1 + std::exp(-v)); }},
      {"tanh", [](double v) { return std::tanh(v); }},
      {"erf", [](double v) { return std::erf(v); }},
      {"sin", [](double v) { return std::sin(v); }},
      {"cos", [](double v) { return std::cos(v); }},
      {"floor", [](double v) { return std::floor(v); }},
      {"ceil", [](double v) { return std::ceil(v); }},
      {"trunc", [](double v) { return std::trunc(v); }},
      {"sign", [](double v) { return v > 0   ? 1.0
                                     : v < 0 ? -1.0
                                             : 0.0; }},
  };
  const auto found = kFunctions.find(op.Name());
  if (found == kFunctions.end()) return std::nullopt;
  return found->second(x);
}

std::optional<double> FoldBinary(Op op, double x, double y) {
  if (op == "add") return x + y;
  if (op == "sub") return x - y;
  if (op == "mul") return x * y;
  if (op == "div_float") return x / y;
  if (op == "minimum") return std::min(x, y);
  if (op == "maximum") return std::max(x, y);
  if (op == "pow") return std::pow(x, y);
  return std::nullopt;
}

}  // namespace

ExprPtr Unary(Op op, const ExprPtr& a) {
  if (IsConstant(a)) {
    if (const std::optional<double> value = FoldUnary(op, a->number)) return Float(*value);
  }
  if (op == "neg" && a->op == "neg") return a->args[0];
  return Simple(op, Type::kFloat, {a});
}

ExprPtr Binary(Op op, const ExprPtr& a, const ExprPtr& b) {
  if (IsConstant(a) && IsConstant(b)) {
    if (const std::optional<double> value = FoldBinary(op, a->number, b->number)) return Float(*value);
  }
  if ((op == "add" || op == "sub") && IsNumber(b, 0)) return a;
  if (op == "add" && IsNumber(a, 0)) return b;
  if ((op == "mul" || op == "div_float") && IsNumber(b, 1)) return a;
  if (op == "mul" && IsNumber(a, 1)) return b;
  if (op == "add" && b->op == "neg") return Binary("sub", a, b->args[0]);
  if (op == "div_float" && IsConstant(b) && b->number != 0 &&
      std::frexp(b->number, std::make_unique<int>().get()) == 0.5)
    return Binary("mul", a, Float(1 / b->number));  // a power of two: the same bits
  return Simple(op, Type::kFloat, {a, b});
}

ExprPtr ToType(const ExprPtr& a, Type type) {
  if (a->type == type) return a;
  if (type == Type::kBool && a->op == "select" && IsConstant(a->args[1]) && IsConstant(a->args[2]))
    return Select(a->args[0], ToType(a->args[1], type), ToType(a->args[2], type));
  if (IsConstant(a)) {
    const double value = a->type == Type::kFloat ? a->number : static_cast<double>(a->integer);
    if (type == Type::kFloat) return Float(value);
    if (type == Type::kBool) return Bool(value != 0);
    if (a->type == Type::kBool) return Int(a->integer);
    if (std::isfinite(value) && std::fabs(value) < 1e18) return Int(static_cast<int64_t>(value));
  }
  if (type == Type::kInt && a->type == Type::kBool) {
    Expr expr;
    expr.op = "to_int";
    expr.type = type;
    expr.args = {a};
    expr.high = 1;
    return Finish(std::move(expr));
  }
  return Simple(type == Type::kFloat ? Op("to_float")
                : type == Type::kInt ? Op("to_int")
                                     : Op("to_bool"),
                type, {a});
}

}  // namespace kevin::search
