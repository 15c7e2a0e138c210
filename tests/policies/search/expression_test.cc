// The normal form of integers: expressions made at random have the values, and keep within the bounds, of what they were made
// from, also after a substitution.

#include "policies/search/expression.h"

#include <functional>
#include <map>
#include <vector>

#include "tests/catch.h"
#include "tests/policies/search/random_programs.h"

namespace kevin::search {
namespace {

using Point = std::map<int, int64_t>;  // the values of variables

int64_t FloorDivide(int64_t a, int64_t b) { return (a - ((a % b) + b) % b) / b; }

int64_t ValueOf(const ExprPtr& e, const Point& at) {
  const auto arg = [&](size_t i) { return ValueOf(e->args[i], at); };
  if (e->op == "constant") return e->integer;
  if (e->op == "variable") return at.at(e->id);
  if (e->op == "div") return FloorDivide(arg(0), e->integer);
  if (e->op == "mod") return arg(0) - FloorDivide(arg(0), e->integer) * e->integer;
  if (e->op == "product") return arg(0) * arg(1);
  if (e->op == "select") return arg(arg(0) != 0 ? 1 : 2);
  if (e->op == "less") return arg(0) < arg(1);
  if (e->op == "less_equal") return arg(0) <= arg(1);
  if (e->op == "equal") return arg(0) == arg(1);
  if (e->op == "not_equal") return arg(0) != arg(1);
  if (e->op == "and") return arg(0) != 0 && arg(1) != 0;
  if (e->op == "or") return arg(0) != 0 || arg(1) != 0;
  if (e->op == "not") return arg(0) == 0;
  REQUIRE((e->op == "sum"));
  int64_t sum = e->integer;
  for (size_t i = 0; i < e->args.size(); ++i) sum += e->coefficients[i] * arg(i);
  return sum;
}

// An expression as it is written, and simplified.
struct Both {
  ExprPtr expr;
  std::function<int64_t(const Point&)> value;
};

class Generator {
 public:
  explicit Generator(uint64_t seed) : random_(seed) {
    for (int id = 1; id <= 4; ++id) extents_.push_back(kExtents[static_cast<size_t>(random_.Below(6))]);
  }

  Both Integer(int depth) {
    if (depth == 0 || random_.OneIn(8)) {
      if (random_.OneIn(4)) return Constant(random_.Below(30) - 8);
      const int id = 1 + static_cast<int>(random_.Below(4));
      return {Variable(id, Extent(id)), [id](const Point& at) { return at.at(id); }};
    }
    const Both a = Integer(depth - 1);
    const int64_t number = kExtents[static_cast<size_t>(random_.Below(6))], factor = random_.Below(17) - 4;
    switch (random_.Below(8)) {
      case 0:
        return {Scaled(a.expr, factor), [=](const Point& at) { return factor * a.value(at); }};
      case 1:
        return {DivInt(a.expr, number), [=](const Point& at) { return FloorDivide(a.value(at), number); }};
      case 2:
        return {ModInt(a.expr, number),
                [=](const Point& at) { return a.value(at) - FloorDivide(a.value(at), number) * number; }};
      case 3: {
        const Both b = Integer(1);
        return {MulInt(a.expr, b.expr), [=](const Point& at) { return a.value(at) * b.value(at); }};
      }
      case 4: {
        const Both condition = Condition(depth - 1), b = Integer(depth - 1);
        return {Select(condition.expr, a.expr, b.expr),
                [=](const Point& at) { return condition.value(at) != 0 ? a.value(at) : b.value(at); }};
      }
      default: {
        const Both b = Integer(depth - 1);
        const int64_t times = number * (random_.OneIn(4) ? -1 : 1);
        return {AddScaled(a.expr, b.expr, times),
                [=](const Point& at) { return a.value(at) + times * b.value(at); }};
      }
    }
  }

  // What may stand for a variable.
  Both InRangeOf(int id) {
    const Both any = Integer(3);
    const int64_t extent = Extent(id);
    return {ModInt(any.expr, extent), [=](const Point& at) {
              const int64_t value = any.value(at);
              return value - FloorDivide(value, extent) * extent;
            }};
  }
  Point AnyPoint() {
    Point point;
    for (int id = 1; id <= 4; ++id) point[id] = random_.Below(Extent(id));
    return point;
  }

 private:
  static constexpr int64_t kExtents[] = {1, 2, 3, 4, 6, 12};

  int64_t Extent(int id) const { return extents_[static_cast<size_t>(id) - 1]; }
  static Both Constant(int64_t value) {
    return {Int(value), [value](const Point&) { return value; }};
  }
  Both Condition(int depth) {
    const Both a = Integer(depth), b = random_.OneIn(2) ? Constant(random_.Below(12)) : Integer(depth);
    switch (random_.Below(7)) {
      case 0:
        return {Compare("equal", a.expr, b.expr),
                [=](const Point& at) { return a.value(at) == b.value(at); }};
      case 1:
        return {Compare("not_equal", a.expr, b.expr),
                [=](const Point& at) { return a.value(at) != b.value(at); }};
      case 2:
        return {Compare("less_equal", a.expr, b.expr),
                [=](const Point& at) { return a.value(at) <= b.value(at); }};
      case 3: {
        if (depth == 0) return {Bool(true), [](const Point&) { return 1; }};
        const Both x = Condition(depth - 1), y = Condition(depth - 1);
        return {And(x.expr, Not(y.expr)),
                [=](const Point& at) { return x.value(at) != 0 && y.value(at) == 0; }};
      }
      case 4: {
        if (depth == 0) return {Bool(false), [](const Point&) { return 0; }};
        const Both x = Condition(depth - 1), y = Condition(depth - 1);
        return {Or(x.expr, y.expr), [=](const Point& at) { return x.value(at) != 0 || y.value(at) != 0; }};
      }
      default:
        return {Compare("less", a.expr, b.expr), [=](const Point& at) { return a.value(at) < b.value(at); }};
    }
  }

  test::Random random_;
  std::vector<int64_t> extents_;
};

}  // namespace

TEST_CASE("simplified integers have the values and keep within the bounds of what they were made from") {
  for (uint64_t seed = 1; seed <= 4000; ++seed) {
    Generator generator(seed);
    const Both one = generator.Integer(4);
    const std::vector<Both> others = {generator.InRangeOf(1), generator.InRangeOf(2)};
    const ExprPtr replaced = Substitute(one.expr, [&](const Expr& e) {
      return e.op == "variable" && e.id <= 2 ? others[static_cast<size_t>(e.id) - 1].expr : nullptr;
    });
    for (int i = 0; i < 12; ++i) {
      const Point at = generator.AnyPoint();
      const int64_t value = one.value(at);
      Point moved = at;
      for (const int id : {1, 2}) moved[id] = others[static_cast<size_t>(id) - 1].value(at);
      const int64_t after = one.value(moved);
      const bool is_within = one.expr->low <= value && value <= one.expr->high && replaced->low <= after &&
                             after <= replaced->high;
      if (is_within && ValueOf(one.expr, at) == value && ValueOf(replaced, at) == after) continue;
      FAIL_CHECK("seed " << seed << ": " << ValueOf(one.expr, at) << " for " << value << ", replaced "
                         << ValueOf(replaced, at) << " for " << after << ", within bounds: " << is_within);
      break;
    }
  }
}

}  // namespace kevin::search
