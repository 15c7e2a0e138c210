#pragma once
// The tree of statements. Never changes once parsed; any thread may execute it.

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "policies/local/text/jinja/expression.h"

namespace kevin::local::jinja {

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

// What is assigned to: a name, a field of a namespace, or several of them.
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
// What a block prints, through filters. The first of `filters` has a null subject.
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
