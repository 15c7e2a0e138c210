#pragma once
// The tree of a parsed template: expressions, which have a value, and statements, which print. Immutable once
// parsed; any thread may evaluate it, each with a Run of its own.

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "policies/local/text/jinja/value.h"

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

// Statements. Execute says whether a loop goes on.

enum class Flow { kNext, kBreak, kContinue };

struct Statement {
  int line = 0;
  virtual ~Statement() = default;
  virtual Flow Execute(Run& run) const = 0;
};
using StatementPtr = std::unique_ptr<const Statement>;

struct Body {
  std::vector<StatementPtr> statements;
  Flow Execute(Run& run) const;
};

// The left side of an assignment: a name, a field of a namespace, or several of them.
struct Target {
  std::string name, field;
  std::vector<Target> several;
  int line = 0;
  void Assign(Run& run, const Value& value) const;
};

struct Data : Statement {
  std::string text;
  Flow Execute(Run& run) const override;
};
struct Print : Statement {
  ExpressionPtr value;
  Flow Execute(Run& run) const override;
};
struct If : Statement {
  std::vector<std::pair<ExpressionPtr, Body>> branches;
  Body otherwise;
  Flow Execute(Run& run) const override;
};
struct For : Statement {
  Target target;
  ExpressionPtr items, filter;  // filter: may be null
  Body body, otherwise;
  Flow Execute(Run& run) const override;
};
struct Jump : Statement {
  Flow flow = Flow::kBreak;
  Flow Execute(Run&) const override { return flow; }
};
struct Set : Statement {
  Target target;
  ExpressionPtr value;
  Flow Execute(Run& run) const override;
};
// Filters of a block: its output goes through them in this order.
struct Filters {
  std::vector<std::pair<std::string, ArgumentList>> list;
  Value Apply(Run& run, Value value) const;
};
struct SetBlock : Statement {
  Target target;
  Filters filters;
  Body body;
  Flow Execute(Run& run) const override;
};
struct FilterBlock : Statement {
  Filters filters;
  Body body;
  Flow Execute(Run& run) const override;
};
struct With : Statement {
  std::vector<std::pair<Target, ExpressionPtr>> variables;
  Body body;
  Flow Execute(Run& run) const override;
};
struct Group : Statement {  // {% generation %}, which only marks
  Body body;
  Flow Execute(Run& run) const override { return body.Execute(run); }
};
struct MacroDefinition : Statement {
  std::string name;
  std::vector<std::pair<std::string, ExpressionPtr>> parameters;  // with their defaults, which may be null
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;
  Body body;
  Flow Execute(Run& run) const override;
  Value Function(Run& run) const;
};
struct CallBlock : Statement {  // {% call(x) macro() %}
  ExpressionPtr call;           // a CallExpression
  MacroDefinition caller;
  Flow Execute(Run& run) const override;
};

}  // namespace kevin::local::jinja
