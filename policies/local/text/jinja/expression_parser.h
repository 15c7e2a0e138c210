#pragma once
// Expressions, in Jinja's order of precedence.

#include <set>
#include <string>

#include "policies/local/text/jinja/expression.h"
#include "policies/local/text/jinja/token_reader.h"

namespace kevin::local::jinja {

class ExpressionParser {
 public:
  explicit ExpressionParser(TokenReader& reader) : reader_(reader) {}

  ExpressionPtr Parse(bool with_condition = true);       // one
  ExpressionPtr ParseTuple(bool with_condition = true);  // one, or several with commas
  ExpressionPtr ParsePostfix(ExpressionPtr node);        // .name [index] (arguments) after it
  ExpressionPtr ParsePrimary();
  ArgumentList ParseArguments(int& height);  // at a parenthesis

  // All names that were read since it was last emptied.
  std::set<std::string> names_seen;

 private:
  ExpressionPtr ParseCondition();
  ExpressionPtr ParseOr();
  ExpressionPtr ParseAnd();
  ExpressionPtr ParseNot();
  ExpressionPtr ParseComparison();
  ExpressionPtr ParseSum();
  ExpressionPtr ParseConcatenation();
  ExpressionPtr ParseProduct();
  ExpressionPtr ParsePower();
  ExpressionPtr ParseUnary(bool with_filters = true);
  ExpressionPtr ParseName();
  ExpressionPtr ParseParenthesis();
  ExpressionPtr ParseListDisplay();
  ExpressionPtr ParseDictDisplay();
  ExpressionPtr ParseField(ExpressionPtr object);
  ExpressionPtr ParseItem(ExpressionPtr object);
  ExpressionPtr ParseFilter(ExpressionPtr subject);
  ExpressionPtr ParseTest(ExpressionPtr subject);
  ExpressionPtr ParseCall(ExpressionPtr callee);
  ExpressionPtr Infix(Operator op, ExpressionPtr left, ExpressionPtr right);
  void Grow(Expression& node, int height);

  template <typename Node>
  std::unique_ptr<Node> New() {
    auto node = std::make_unique<Node>();
    node->line = reader_.Now().line;
    return node;
  }

  TokenReader& reader_;
};

}  // namespace kevin::local::jinja
