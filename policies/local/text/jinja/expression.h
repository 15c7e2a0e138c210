#pragma once
// The tree of an expression. Never changes once parsed; any thread may evaluate it.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "policies/local/text/jinja/run.h"

namespace kevin::local::jinja {

struct Expression {
  int line = 0;
  int height = 1;  // of the tree under it
  virtual ~Expression() = default;
  // Within the run's limits on steps and depth. Throws TemplateError with the line of the innermost
  // expression that failed.
  Value Evaluate(Run& run) const;

 protected:
  virtual Value Make(Run& run) const = 0;
};
using ExpressionPtr = std::unique_ptr<const Expression>;

struct ArgumentList {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr rest, named_rest;  // *rest, **named_rest; may be null
  Arguments Evaluate(Run& run) const;
};

struct Literal : Expression {
  Value value;
  Value Make(Run&) const override { return value; }
};
struct Name : Expression {
  std::string name;
  Value Make(Run& run) const override;
};
struct ListDisplay : Expression {
  std::vector<ExpressionPtr> items;
  bool tuple = false;
  Value Make(Run& run) const override;
};
struct DictDisplay : Expression {
  std::vector<std::pair<ExpressionPtr, ExpressionPtr>> items;
  Value Make(Run& run) const override;
};
struct Field : Expression {  // object.name
  ExpressionPtr object;
  std::string name;
  Value Make(Run& run) const override;
};
struct Item : Expression {  // object[index]
  ExpressionPtr object, index;
  Value Make(Run& run) const override;
};
struct Slice : Expression {  // object[from:to:step]; each may be null
  ExpressionPtr object, from, to, step;
  Value Make(Run& run) const override;
};
struct CallExpression : Expression {
  ExpressionPtr callee;
  ArgumentList arguments;
  Value Make(Run& run) const override;
};
struct FilterExpression : Expression {
  ExpressionPtr subject;
  std::string name;
  ArgumentList arguments;
  Value Make(Run& run) const override;
};
struct TestExpression : Expression {
  ExpressionPtr subject;
  std::string name;
  ArgumentList arguments;
  Value Make(Run& run) const override;
};
enum class Operator {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,  //
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};
struct Binary : Expression {
  Operator op = Operator::kAdd;
  ExpressionPtr left, right;
  Value Make(Run& run) const override;
};
struct Comparison : Expression {  // a < b <= c
  ExpressionPtr first;
  std::vector<std::pair<Operator, ExpressionPtr>> others;
  Value Make(Run& run) const override;
};
struct Junction : Expression {  // the operand that decides, as in Python
  bool both = true;             // and; else or
  ExpressionPtr left, right;
  Value Make(Run& run) const override;
};
struct Not : Expression {
  ExpressionPtr operand;
  Value Make(Run& run) const override;
};
struct Sign : Expression {
  bool minus = true;
  ExpressionPtr operand;
  Value Make(Run& run) const override;
};
struct Concatenation : Expression {  // a ~ b
  std::vector<ExpressionPtr> parts;
  Value Make(Run& run) const override;
};
struct Conditional : Expression {       // then if test else otherwise
  ExpressionPtr test, then, otherwise;  // otherwise: may be null
  Value Make(Run& run) const override;
};

}  // namespace kevin::local::jinja
