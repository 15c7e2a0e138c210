#include "policies/search/expression.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <set>
#include <string_view>
#include <unordered_map>
#include <unordered_set>

namespace kevin::search {
namespace {

constexpr int64_t kFar = int64_t{1} << 60;

int64_t Clamped(long double value) {
  if (value > kFar) return kFar;
  if (value < -kFar) return -kFar;
  return static_cast<int64_t>(value);
}

int64_t FloorDiv(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

// A digest of 128 bits: keys of trees stay short, and equal keys mean equal trees for all practical purposes.
class Digest {
 public:
  void Add(const void* data, size_t bytes) {
    for (size_t i = 0; i < bytes; ++i) {
      const uint64_t c = static_cast<const unsigned char*>(data)[i];
      a_ = (a_ ^ c) * 0x100000001b3ULL;
      b_ = (b_ + c + 1) * 0x9e3779b97f4a7c15ULL;
      b_ ^= b_ >> 29;
    }
  }
  void Add(const std::string& text) {
    Add(text.data(), text.size());
    const char end = '\0';
    Add(&end, 1);
  }
  template <class Number>
  void AddNumber(Number number) {
    Add(&number, sizeof number);
  }
  std::string Text() const { return fmt::format("{:016x}{:016x}", a_, b_); }

 private:
  uint64_t a_ = 0xcbf29ce484222325ULL, b_ = 0x2545f4914f6cdd1dULL;
};

ExprPtr Finish(Expr expr) {
  Digest digest;
  digest.Add(expr.op);
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

ExprPtr Simple(const std::string& op, Type type, std::vector<ExprPtr> args) {
  Expr expr;
  expr.op = op;
  expr.type = type;
  expr.args = std::move(args);
  if (type == Type::kInt) expr.low = -kFar, expr.high = kFar;
  return Finish(std::move(expr));
}

bool IsConstant(const ExprPtr& e) { return e->op == "constant"; }
bool IsNumber(const ExprPtr& e, double value) {
  return e->op == "constant" && e->type == Type::kFloat && e->number == value;
}

// --- The normal form of integers ---

struct Term {
  int64_t coefficient;
  ExprPtr atom;
};

struct Sum {
  int64_t constant = 0;
  std::vector<Term> terms;  // of distinct atoms

  void Add(const ExprPtr& atom, int64_t coefficient) {
    for (Term& term : terms) {
      if (term.atom->key != atom->key) continue;
      term.coefficient += coefficient;
      return;
    }
    terms.push_back({coefficient, atom});
  }
  void AddExpr(const ExprPtr& e, int64_t factor) {
    if (IsConstant(e)) {
      constant += e->integer * factor;
    } else if (e->op == "sum") {
      constant += e->integer * factor;
      for (size_t i = 0; i < e->args.size(); ++i) Add(e->args[i], e->coefficients[i] * factor);
    } else {
      Add(e, factor);
    }
  }
  void Clean() {
    std::erase_if(terms, [](const Term& term) { return term.coefficient == 0; });
  }
  int64_t Low() const {
    long double low = constant;
    for (const Term& t : terms)
      low += static_cast<long double>(t.coefficient) * (t.coefficient > 0 ? t.atom->low : t.atom->high);
    return Clamped(low);
  }
  int64_t High() const {
    long double high = constant;
    for (const Term& t : terms)
      high += static_cast<long double>(t.coefficient) * (t.coefficient > 0 ? t.atom->high : t.atom->low);
    return Clamped(high);
  }
};

Sum SumOf(const ExprPtr& e) {
  Sum sum;
  sum.AddExpr(e, 1);
  return sum;
}

// d * (e / d) + e % d = e. Returns whether one such pair was joined.
bool JoinDivAndMod(Sum& sum) {
  for (size_t i = 0; i < sum.terms.size(); ++i) {
    const Term mod = sum.terms[i];
    if (mod.atom->op != "mod" || mod.coefficient == 0) continue;
    const ExprPtr quotient = DivInt(mod.atom->args[0], mod.atom->integer);
    // The quotient may itself be a sum: all of its terms must be there.
    const Sum wanted = SumOf(quotient);
    const int64_t factor = mod.coefficient * mod.atom->integer;
    if (wanted.terms.empty()) continue;
    const bool all = std::all_of(wanted.terms.begin(), wanted.terms.end(), [&](const Term& part) {
      return std::any_of(sum.terms.begin(), sum.terms.end(), [&](const Term& term) {
        return term.atom->key == part.atom->key && term.coefficient == part.coefficient * factor;
      });
    });
    if (!all) continue;
    sum.AddExpr(quotient, -factor);
    sum.AddExpr(mod.atom, -mod.coefficient);
    sum.AddExpr(mod.atom->args[0], mod.coefficient);
    sum.Clean();
    return true;
  }
  return false;
}

ExprPtr FromSum(Sum sum) {
  sum.Clean();
  while (JoinDivAndMod(sum)) {
  }
  if (sum.terms.empty()) return Int(sum.constant);
  if (sum.terms.size() == 1 && sum.terms[0].coefficient == 1 && sum.constant == 0) return sum.terms[0].atom;
  std::sort(sum.terms.begin(), sum.terms.end(), [](const Term& a, const Term& b) {
    return a.coefficient != b.coefficient ? a.coefficient > b.coefficient : a.atom->key < b.atom->key;
  });
  Expr expr;
  expr.op = "sum";
  expr.type = Type::kInt;
  expr.integer = sum.constant;
  for (const Term& term : sum.terms) {
    expr.args.push_back(term.atom);
    expr.coefficients.push_back(term.coefficient);
  }
  expr.low = sum.Low();
  expr.high = sum.High();
  return Finish(std::move(expr));
}

ExprPtr DivOrMod(const char* op, const ExprPtr& a, int64_t divisor) {
  Expr expr;
  expr.op = op;
  expr.type = Type::kInt;
  expr.integer = divisor;
  expr.args = {a};
  const bool is_div = expr.op == "div";
  expr.low = is_div ? FloorDiv(a->low, divisor) : 0;
  expr.high = is_div ? FloorDiv(a->high, divisor) : divisor - 1;
  if (!is_div && a->low >= 0) expr.high = std::min(expr.high, a->high);
  return Finish(std::move(expr));
}

// e = multiple * divisor + rest, where `rest` has no term that `divisor` divides.
void SplitByDivisor(const Sum& e, int64_t divisor, Sum& multiple, Sum& rest) {
  multiple.constant = FloorDiv(e.constant, divisor);
  rest.constant = e.constant - multiple.constant * divisor;
  for (const Term& term : e.terms) {
    if (term.coefficient % divisor == 0) {
      multiple.Add(term.atom, term.coefficient / divisor);
    } else {
      rest.Add(term.atom, term.coefficient);
    }
  }
  // A negative coefficient next to a small constant: take the constant that keeps the rest from being negative.
  const int64_t shift = FloorDiv(rest.Low(), divisor);
  if (shift != 0 && rest.Low() > -kFar && rest.High() - shift * divisor < divisor) {
    rest.constant -= shift * divisor;
    multiple.constant += shift;
  }
}

// A step g that divides `divisor` and splits `e` into g * coarse + fine with 0 <= fine < g; 0: none.
int64_t FindStep(const Sum& e, int64_t divisor, Sum& coarse, Sum& fine) {
  std::set<int64_t, std::greater<>> steps;
  for (const Term& term : e.terms) steps.insert(std::gcd(std::abs(term.coefficient), divisor));
  for (const int64_t step : steps) {
    if (step <= 1 || step >= divisor) continue;
    Sum multiple, rest;
    SplitByDivisor(e, step, multiple, rest);
    if (rest.Low() < 0 || rest.High() >= step) continue;
    coarse = multiple;
    fine = rest;
    return step;
  }
  return 0;
}

}  // namespace

ExprPtr Float(double value) {
  Expr expr;
  expr.op = "constant";
  expr.number = value;
  return Finish(std::move(expr));
}

ExprPtr Int(int64_t value) {
  Expr expr;
  expr.op = "constant";
  expr.type = Type::kInt;
  expr.integer = expr.low = expr.high = value;
  return Finish(std::move(expr));
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
  if (type == Type::kInt) expr.low = 0, expr.high = kFar;
  return Finish(std::move(expr));
}

ExprPtr AddInt(const ExprPtr& a, const ExprPtr& b) {
  Sum sum = SumOf(a);
  sum.AddExpr(b, 1);
  return FromSum(std::move(sum));
}

ExprPtr Scaled(const ExprPtr& a, int64_t factor) {
  Sum sum;
  sum.AddExpr(a, factor);
  return FromSum(std::move(sum));
}

ExprPtr MulInt(const ExprPtr& a, const ExprPtr& b) {
  if (IsConstant(a)) return Scaled(b, a->integer);
  if (IsConstant(b)) return Scaled(a, b->integer);
  return Simple("product", Type::kInt, {a, b});
}

ExprPtr DivInt(const ExprPtr& a, int64_t divisor) {
  if (divisor == 1) return a;
  if (a->low > -kFar && a->high < kFar && FloorDiv(a->low, divisor) == FloorDiv(a->high, divisor))
    return Int(FloorDiv(a->low, divisor));
  if (a->op == "div") return DivInt(a->args[0], a->integer * divisor);
  if (a->op == "mod" && a->integer % divisor == 0)
    return ModInt(DivInt(a->args[0], divisor), a->integer / divisor);
  Sum multiple, rest;
  SplitByDivisor(SumOf(a), divisor, multiple, rest);
  if (rest.Low() >= 0 && rest.High() < divisor) return FromSum(multiple);
  Sum coarse, fine;
  if (const int64_t step = FindStep(rest, divisor, coarse, fine))
    return AddInt(FromSum(multiple), DivInt(FromSum(coarse), divisor / step));
  const ExprPtr left = FromSum(rest);
  return AddInt(FromSum(multiple), DivOrMod("div", left, divisor));
}

ExprPtr ModInt(const ExprPtr& a, int64_t divisor) {
  if (divisor == 1) return Int(0);
  if (a->op == "mod" && a->integer % divisor == 0) return ModInt(a->args[0], divisor);
  Sum multiple, rest;
  SplitByDivisor(SumOf(a), divisor, multiple, rest);
  if (rest.Low() >= 0 && rest.High() < divisor) return FromSum(rest);
  Sum coarse, fine;
  if (const int64_t step = FindStep(rest, divisor, coarse, fine))
    return AddInt(Scaled(ModInt(FromSum(coarse), divisor / step), step), FromSum(fine));
  return DivOrMod("mod", FromSum(rest), divisor);
}

ExprPtr OffsetOf(const std::vector<ExprPtr>& index, const std::vector<int64_t>& shape) {
  Sum sum;
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    sum.AddExpr(index[i], stride);
    stride *= shape[i];
  }
  return FromSum(std::move(sum));
}

std::vector<ExprPtr> IndexOf(const ExprPtr& offset, const std::vector<int64_t>& shape) {
  std::vector<ExprPtr> index(shape.size());
  int64_t stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    const ExprPtr above = DivInt(offset, stride);
    index[i] = i == 0 ? above : ModInt(above, shape[i]);
    if (shape[i] == 1) index[i] = Int(0);
    stride *= shape[i];
  }
  return index;
}

// --- Conditions ---

namespace {

bool IsChoiceOfConstants(const ExprPtr& e) {
  return e->op == "select" && IsConstant(e->args[1]) && IsConstant(e->args[2]);
}

}  // namespace

ExprPtr Compare(const std::string& op, const ExprPtr& a, const ExprPtr& b) {
  // Masks: triu(ones) > 0.
  if (IsChoiceOfConstants(a) && IsConstant(b))
    return Select(a->args[0], Compare(op, a->args[1], b), Compare(op, a->args[2], b));
  if (IsChoiceOfConstants(b) && IsConstant(a))
    return Select(b->args[0], Compare(op, a, b->args[1]), Compare(op, a, b->args[2]));
  if (a->type == Type::kInt) {
    const ExprPtr difference = AddInt(a, Scaled(b, -1));
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

ExprPtr Chosen(const char* op, const ExprPtr& condition, const ExprPtr& yes, const ExprPtr& no) {
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

std::optional<double> FoldUnary(const std::string& op, double x) {
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
  const auto found = kFunctions.find(op);
  if (found == kFunctions.end()) return std::nullopt;
  return found->second(x);
}

std::optional<double> FoldBinary(const std::string& op, double x, double y) {
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

ExprPtr Unary(const std::string& op, const ExprPtr& a) {
  if (IsConstant(a)) {
    if (const std::optional<double> value = FoldUnary(op, a->number)) return Float(*value);
  }
  if (op == "neg" && a->op == "neg") return a->args[0];
  return Simple(op, Type::kFloat, {a});
}

ExprPtr Binary(const std::string& op, const ExprPtr& a, const ExprPtr& b) {
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
  return Simple(type == Type::kFloat ? "to_float" : type == Type::kInt ? "to_int" : "to_bool", type, {a});
}

// --- Questions ---

namespace {

ExprPtr Rebuild(const Expr& e, const std::vector<ExprPtr>& args) {
  if (e.op == "sum") {
    Sum sum;
    sum.constant = e.integer;
    for (size_t i = 0; i < args.size(); ++i) sum.AddExpr(args[i], e.coefficients[i]);
    return FromSum(std::move(sum));
  }
  if (e.op == "div") return DivInt(args[0], e.integer);
  if (e.op == "mod") return ModInt(args[0], e.integer);
  if (e.op == "product") return MulInt(args[0], args[1]);
  if (e.op == "load") return Load(e.id, e.type, args[0]);
  if (e.op == "guard") return Guard(args[0], args[1], args[2]);
  if (e.op == "select") return Select(args[0], args[1], args[2]);
  if (e.op == "and") return And(args[0], args[1]);
  if (e.op == "or") return Or(args[0], args[1]);
  if (e.op == "not") return Not(args[0]);
  if (e.op == "to_float" || e.op == "to_int" || e.op == "to_bool") return ToType(args[0], e.type);
  if (e.type == Type::kBool) return Compare(e.op, args[0], args[1]);
  return args.size() == 1 ? Unary(e.op, args[0]) : Binary(e.op, args[0], args[1]);
}

class Substitution {
 public:
  explicit Substitution(const std::function<ExprPtr(const Expr&)>& replace) : replace_(replace) {}
  ExprPtr Of(const ExprPtr& e) {
    const auto known = done_.find(e.get());
    if (known != done_.end()) return known->second;
    ExprPtr result = replace_(*e);
    if (!result && e->args.empty()) result = e;
    if (!result) {
      std::vector<ExprPtr> args;
      bool changed = false;
      for (const ExprPtr& arg : e->args) {
        args.push_back(Of(arg));
        changed |= args.back() != arg;
      }
      result = changed ? Rebuild(*e, args) : e;
    }
    done_[e.get()] = result;
    return result;
  }

 private:
  const std::function<ExprPtr(const Expr&)>& replace_;
  std::unordered_map<const Expr*, ExprPtr> done_;
};

// The keys are digests: their first bytes are a hash.
struct KeyHash {
  size_t operator()(const std::string_view key) const {
    size_t hash = 0;
    std::memcpy(&hash, key.data(), std::min(sizeof hash, key.size()));
    return hash * 0x9e3779b97f4a7c15ULL;
  }
};

class Collection {
 public:
  void Add(const ExprPtr& e) {
    if (!pointers_.insert(e.get()).second || !keys_.insert(e->key).second) return;
    for (const ExprPtr& arg : e->args) Add(arg);
    nodes.push_back(e.get());
  }
  std::vector<const Expr*> nodes;

 private:
  std::unordered_set<const Expr*> pointers_;
  std::unordered_set<std::string_view, KeyHash> keys_;
};

}  // namespace

ExprPtr Substitute(const ExprPtr& expr, const std::function<ExprPtr(const Expr&)>& replace) {
  if (!expr) return nullptr;
  return Substitution(replace).Of(expr);
}

std::vector<const Expr*> Nodes(const ExprPtr& expr) {
  Collection collection;
  if (expr) collection.Add(expr);
  return std::move(collection.nodes);
}

bool Uses(const ExprPtr& expr, int variable) {
  const std::vector<const Expr*> nodes = Nodes(expr);
  return std::any_of(nodes.begin(), nodes.end(),
                     [&](const Expr* e) { return e->op == "variable" && e->id == variable; });
}

std::optional<int64_t> StrideOf(const ExprPtr& expr, int variable) {
  if (expr->op == "variable") return expr->id == variable ? 1 : 0;
  if (expr->op == "sum") {
    int64_t stride = 0;
    for (size_t i = 0; i < expr->args.size(); ++i) {
      const std::optional<int64_t> part = StrideOf(expr->args[i], variable);
      if (!part) return std::nullopt;
      stride += *part * expr->coefficients[i];
    }
    return stride;
  }
  if (Uses(expr, variable)) return std::nullopt;
  return 0;
}

int CostOf(const ExprPtr& expr) {
  static const std::set<std::string> kFree = {"constant", "variable", "load",  "result",   "sum",   "div",
                                              "mod",      "product",  "guard", "to_float", "to_int"};
  static const std::set<std::string> kCheap = {"add",     "sub",        "mul",    "neg",  "abs",
                                               "minimum", "maximum",    "select", "less", "not",
                                               "and",     "less_equal", "equal",  "or",   "not_equal"};
  int cost = 0;
  for (const Expr* e : Nodes(expr)) {
    if (kFree.count(e->op)) continue;
    cost += kCheap.count(e->op) ? 1 : 8;
  }
  return cost;
}

}  // namespace kevin::search
