// The normal form of integers: sums of distinct atoms, divisions and remainders that are as short as possible.

#include <algorithm>
#include <cstdlib>
#include <numeric>
#include <set>

#include "policies/search/expression_parts.h"

namespace kevin::search {
namespace {

int64_t Clamped(long double value) {
  if (value > kFar) return kFar;
  if (value < -kFar) return -kFar;
  return static_cast<int64_t>(value);
}

int64_t FloorDiv(int64_t a, int64_t b) { return a / b - (a % b != 0 && (a < 0) != (b < 0)); }

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
  sum.terms.reserve(e->args.size() + 1);
  sum.AddExpr(e, 1);
  return sum;
}

// d * (e / d) + e % d = e. Returns whether one such pair was joined.
bool JoinDivAndMod(Sum& sum) {
  for (size_t i = 0; i < sum.terms.size(); ++i) {
    if (sum.terms[i].atom->op != "mod" || sum.terms[i].coefficient == 0) continue;
    const Term mod = sum.terms[i];
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

// An order that depends on what the atoms are, so that equal stages have equal sums: variables by their numbers, which
// ascend in every stage alike, before divisions and the like. Keys alone would order them by chance.
int Ordered(const Expr& a, const Expr& b) {
  const auto compare = [](auto x, auto y) { return x < y ? -1 : x > y ? 1 : 0; };
  if (a.op != b.op) return compare(a.op.number(), b.op.number());
  if (a.id != b.id) return compare(a.id, b.id);
  if (a.integer != b.integer) return compare(a.integer, b.integer);
  if (a.args.size() != b.args.size()) return compare(a.args.size(), b.args.size());
  for (size_t i = 0; i < a.args.size(); ++i) {
    const int64_t x = i < a.coefficients.size() ? a.coefficients[i] : 1,
                  y = i < b.coefficients.size() ? b.coefficients[i] : 1;
    if (x != y) return compare(x, y);
    if (const int order = a.args[i] == b.args[i] ? 0 : Ordered(*a.args[i], *b.args[i])) return order;
  }
  return 0;
}

bool StandsBefore(const Term& a, const Term& b) {
  if (a.coefficient != b.coefficient) return a.coefficient > b.coefficient;
  const int order = Ordered(*a.atom, *b.atom);
  return order != 0 ? order < 0 : a.atom->key < b.atom->key;
}

ExprPtr FromSum(Sum sum) {
  sum.Clean();
  while (JoinDivAndMod(sum)) {
  }
  if (sum.terms.empty()) return Int(sum.constant);
  if (sum.terms.size() == 1 && sum.terms[0].coefficient == 1 && sum.constant == 0) return sum.terms[0].atom;
  std::sort(sum.terms.begin(), sum.terms.end(), StandsBefore);
  Expr expr;
  expr.op = "sum";
  expr.type = Type::kInt;
  expr.integer = sum.constant;
  expr.low = sum.Low();
  expr.high = sum.High();
  expr.args.reserve(sum.terms.size());
  expr.coefficients.reserve(sum.terms.size());
  for (Term& term : sum.terms) {
    expr.args.push_back(std::move(term.atom));
    expr.coefficients.push_back(term.coefficient);
  }
  return Finish(std::move(expr));
}

ExprPtr DivOrMod(Op op, const ExprPtr& a, int64_t divisor) {
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

ExprPtr AddInt(const ExprPtr& a, const ExprPtr& b) { return AddScaled(a, b, 1); }

ExprPtr AddScaled(const ExprPtr& a, const ExprPtr& b, int64_t factor) {
  Sum sum;
  sum.terms.reserve(a->args.size() + b->args.size() + 2);
  sum.AddExpr(a, 1);
  sum.AddExpr(b, factor);
  return FromSum(std::move(sum));
}

ExprPtr Scaled(const ExprPtr& a, int64_t factor) {
  Sum sum;
  sum.terms.reserve(a->args.size() + 1);
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
  if (a->op == "div" && a->integer < kFar / divisor) return DivInt(a->args[0], a->integer * divisor);
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
  sum.terms.reserve(2 * shape.size());
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

ExprPtr SumOfTerms(int64_t constant, const std::vector<ExprPtr>& args,
                   const std::vector<int64_t>& coefficients) {
  Sum sum;
  sum.constant = constant;
  sum.terms.reserve(2 * args.size());
  for (size_t i = 0; i < args.size(); ++i) sum.AddExpr(args[i], coefficients[i]);
  return FromSum(std::move(sum));
}

}  // namespace kevin::search
