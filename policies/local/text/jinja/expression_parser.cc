#include <algorithm>

#include "policies/local/text/jinja/parser.h"

namespace kevin::local::jinja {

namespace {

constexpr int kTallest = 300;  // trees are walked by recursion

int HeightOf(const ExpressionPtr& node) { return node == nullptr ? 0 : node->height; }

}  // namespace

// Adds a subtree of that height to `node`.
void ExpressionParser::Grow(Expression& node, int height) {
  node.height = std::max(node.height, height + 1);
  if (node.height > kTallest) reader_.Fail("an expression is too long");
}

ExpressionPtr ExpressionParser::Parse(bool with_condition) {
  const TokenReader::Deeper deeper(reader_);
  return with_condition ? ParseCondition() : ParseOr();
}

ExpressionPtr ExpressionParser::ParseTuple(bool with_condition) {
  ExpressionPtr first = Parse(with_condition);
  if (!reader_.IsOperator(",")) return first;
  auto tuple = New<ListDisplay>();
  tuple->tuple = true;
  Grow(*tuple, HeightOf(first));
  tuple->items.push_back(std::move(first));
  while (reader_.SkipOperator(",")) {
    if (reader_.Is(TokenKind::kBlockEnd) || reader_.Is(TokenKind::kVariableEnd) || reader_.IsOperator(")"))
      break;
    tuple->items.push_back(Parse(with_condition));
    Grow(*tuple, HeightOf(tuple->items.back()));
  }
  return tuple;
}

ExpressionPtr ExpressionParser::ParseCondition() {
  ExpressionPtr value = ParseOr();
  while (reader_.IsName("if")) {
    auto node = New<Conditional>();
    reader_.Next();
    node->then = std::move(value);
    node->test = ParseOr();
    if (reader_.SkipName("else")) node->otherwise = Parse();
    Grow(*node, std::max({HeightOf(node->then), HeightOf(node->test), HeightOf(node->otherwise)}));
    value = std::move(node);
  }
  return value;
}

ExpressionPtr ExpressionParser::ParseOr() {
  ExpressionPtr left = ParseAnd();
  while (reader_.IsName("or")) {
    auto node = New<Junction>();
    reader_.Next();
    node->both = false;
    node->left = std::move(left);
    node->right = ParseAnd();
    Grow(*node, std::max(HeightOf(node->left), HeightOf(node->right)));
    left = std::move(node);
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseAnd() {
  ExpressionPtr left = ParseNot();
  while (reader_.IsName("and")) {
    auto node = New<Junction>();
    reader_.Next();
    node->left = std::move(left);
    node->right = ParseNot();
    Grow(*node, std::max(HeightOf(node->left), HeightOf(node->right)));
    left = std::move(node);
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseNot() {
  if (!reader_.IsName("not")) return ParseComparison();
  const TokenReader::Deeper deeper(reader_);
  auto node = New<Not>();
  reader_.Next();
  node->operand = ParseNot();
  Grow(*node, HeightOf(node->operand));
  return node;
}

ExpressionPtr ExpressionParser::ParseComparison() {
  static const std::pair<std::string_view, Operator> kOperators[] = {
      {"==", Operator::kEqual},     {"!=", Operator::kNotEqual}, {"<", Operator::kLess},
      {"<=", Operator::kLessEqual}, {">", Operator::kGreater},   {">=", Operator::kGreaterEqual}};
  auto node = New<Comparison>();
  node->first = ParseSum();
  while (true) {
    const Operator* op = nullptr;
    static constexpr Operator kIn = Operator::kIn, kNotIn = Operator::kNotIn;
    for (const auto& [text, meaning] : kOperators) {
      if (reader_.IsOperator(text)) op = &meaning;
    }
    if (reader_.IsName("in")) op = &kIn;
    if (reader_.IsName("not") && reader_.Ahead().kind == TokenKind::kName && reader_.Ahead().text == "in") {
      reader_.Next();
      op = &kNotIn;
    }
    if (op == nullptr) break;
    reader_.Next();
    node->others.emplace_back(*op, ParseSum());
    Grow(*node, HeightOf(node->others.back().second));
  }
  if (node->others.empty()) return std::move(node->first);
  Grow(*node, HeightOf(node->first));
  return node;
}

ExpressionPtr ExpressionParser::Infix(Operator op, ExpressionPtr left, ExpressionPtr right) {
  auto node = New<Binary>();
  node->op = op;
  node->line = left->line;
  Grow(*node, std::max(left->height, right->height));
  node->left = std::move(left);
  node->right = std::move(right);
  return node;
}

ExpressionPtr ExpressionParser::ParseSum() {
  ExpressionPtr left = ParseConcatenation();
  while (reader_.IsOperator("+") || reader_.IsOperator("-")) {
    const Operator op = reader_.Next().text == "+" ? Operator::kAdd : Operator::kSubtract;
    left = Infix(op, std::move(left), ParseConcatenation());
  }
  return left;
}

ExpressionPtr ExpressionParser::ParseConcatenation() {
  ExpressionPtr first = ParseProduct();
  if (!reader_.IsOperator("~")) return first;
  auto node = New<Concatenation>();
  Grow(*node, HeightOf(first));
  node->parts.push_back(std::move(first));
  while (reader_.SkipOperator("~")) {
    node->parts.push_back(ParseProduct());
    Grow(*node, HeightOf(node->parts.back()));
  }
  return node;
}

ExpressionPtr ExpressionParser::ParseProduct() {
  static const std::pair<std::string_view, Operator> kOperators[] = {{"*", Operator::kMultiply},
                                                                     {"/", Operator::kDivide},
                                                                     {"//", Operator::kFloorDivide},
                                                                     {"%", Operator::kModulo}};
  ExpressionPtr left = ParsePower();
  while (true) {
    const auto* found = std::find_if(std::begin(kOperators), std::end(kOperators),
                                     [&](const auto& entry) { return reader_.IsOperator(entry.first); });
    if (found == std::end(kOperators)) return left;
    reader_.Next();
    left = Infix(found->second, std::move(left), ParsePower());
  }
}

ExpressionPtr ExpressionParser::ParsePower() {
  ExpressionPtr left = ParseUnary();
  while (reader_.SkipOperator("**")) left = Infix(Operator::kPower, std::move(left), ParseUnary());
  return left;
}

ExpressionPtr ExpressionParser::ParseUnary(bool with_filters) {
  ExpressionPtr node;
  if (reader_.IsOperator("-") || reader_.IsOperator("+")) {
    const TokenReader::Deeper deeper(reader_);
    auto sign = New<Sign>();
    sign->minus = reader_.Next().text == "-";
    sign->operand = ParseUnary(false);
    Grow(*sign, HeightOf(sign->operand));
    node = std::move(sign);
  } else {
    node = ParsePrimary();
  }
  node = ParsePostfix(std::move(node));
  while (with_filters) {
    if (reader_.IsOperator("|")) {
      node = ParseFilter(std::move(node));
    } else if (reader_.IsName("is")) {
      node = ParseTest(std::move(node));
    } else if (reader_.IsOperator("(")) {
      node = ParseCall(std::move(node));
    } else {
      break;
    }
  }
  return node;
}

ExpressionPtr ExpressionParser::ParsePostfix(ExpressionPtr node) {
  while (true) {
    if (reader_.IsOperator(".")) {
      node = ParseField(std::move(node));
    } else if (reader_.IsOperator("[")) {
      node = ParseItem(std::move(node));
    } else if (reader_.IsOperator("(")) {
      node = ParseCall(std::move(node));
    } else {
      return node;
    }
  }
}

ExpressionPtr ExpressionParser::ParseFilter(ExpressionPtr subject) {
  auto node = New<FilterExpression>();
  reader_.ExpectOperator("|");
  node->name = reader_.Expect(TokenKind::kName).text;
  int height = HeightOf(subject);
  node->subject = std::move(subject);
  if (reader_.IsOperator("(")) node->arguments = ParseArguments(height);
  Grow(*node, height);
  return node;
}

ExpressionPtr ExpressionParser::ParseTest(ExpressionPtr subject) {
  auto node = New<TestExpression>();
  reader_.Next();
  const bool negated = reader_.SkipName("not");
  node->name = reader_.Expect(TokenKind::kName).text;
  int height = HeightOf(subject);
  node->subject = std::move(subject);
  const TokenKind kind = reader_.Current().kind;
  const std::string& text = reader_.Current().text;
  if (reader_.IsOperator("(")) {
    node->arguments = ParseArguments(height);
  } else if (kind == TokenKind::kString || kind == TokenKind::kInteger || kind == TokenKind::kFloat ||
             reader_.IsOperator("[") || reader_.IsOperator("{") ||
             (kind == TokenKind::kName && text != "else" && text != "or" && text != "and" && text != "if")) {
    if (text == "is") reader_.Fail("tests cannot be chained with 'is'");
    node->arguments.positional.push_back(ParsePostfix(ParsePrimary()));
    height = std::max(height, HeightOf(node->arguments.positional.back()));
  }
  Grow(*node, height);
  if (!negated) return node;
  auto inverse = New<Not>();
  Grow(*inverse, node->height);
  inverse->operand = std::move(node);
  return inverse;
}

}  // namespace kevin::local::jinja
