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

ExpressionPtr ExpressionParser::ParsePrimary() {
  const TokenReader::Deeper deeper(reader_);
  switch (reader_.Current().kind) {
    case TokenKind::kName:
      return ParseName();
    case TokenKind::kString: {
      auto node = New<Literal>();
      std::string text;
      while (reader_.Is(TokenKind::kString)) text += reader_.Next().text;
      node->value = std::move(text);
      return node;
    }
    case TokenKind::kInteger:
    case TokenKind::kFloat: {
      auto node = New<Literal>();
      const Token token = reader_.Next();
      node->value = token.kind == TokenKind::kInteger ? Value(token.integer) : Value(token.number);
      return node;
    }
    default:
      break;
  }
  if (reader_.IsOperator("(")) return ParseParenthesis();
  if (reader_.IsOperator("[")) return ParseListDisplay();
  if (reader_.IsOperator("{")) return ParseDictDisplay();
  reader_.Fail("unexpected " + reader_.Describe());
}

ExpressionPtr ExpressionParser::ParseName() {
  auto constant = New<Literal>();
  auto name = New<Name>();
  name->name = reader_.Next().text;
  const std::string& text = name->name;
  if (text == "true" || text == "True") {
    constant->value = true;
  } else if (text == "false" || text == "False") {
    constant->value = false;
  } else if (text != "none" && text != "None") {
    names_seen.insert(text);
    return name;
  }
  return constant;
}

ExpressionPtr ExpressionParser::ParseParenthesis() {
  reader_.ExpectOperator("(");
  if (reader_.IsOperator(")")) {
    auto empty = New<ListDisplay>();
    empty->tuple = true;
    reader_.Next();
    return empty;
  }
  ExpressionPtr inner = ParseTuple();
  reader_.ExpectOperator(")");
  return inner;
}

ExpressionPtr ExpressionParser::ParseListDisplay() {
  auto node = New<ListDisplay>();
  reader_.ExpectOperator("[");
  while (!reader_.IsOperator("]")) {
    if (!node->items.empty()) reader_.ExpectOperator(",");
    if (reader_.IsOperator("]")) break;
    node->items.push_back(Parse());
    Grow(*node, node->items.back()->height);
  }
  reader_.ExpectOperator("]");
  return node;
}

ExpressionPtr ExpressionParser::ParseDictDisplay() {
  auto node = New<DictDisplay>();
  reader_.ExpectOperator("{");
  while (!reader_.IsOperator("}")) {
    if (!node->items.empty()) reader_.ExpectOperator(",");
    if (reader_.IsOperator("}")) break;
    ExpressionPtr key = Parse();
    reader_.ExpectOperator(":");
    ExpressionPtr value = Parse();
    Grow(*node, std::max(key->height, value->height));
    node->items.emplace_back(std::move(key), std::move(value));
  }
  reader_.ExpectOperator("}");
  return node;
}

ExpressionPtr ExpressionParser::ParseField(ExpressionPtr object) {
  reader_.ExpectOperator(".");
  if (reader_.Is(TokenKind::kInteger)) {  // x.0
    auto node = New<Item>();
    auto index = New<Literal>();
    index->value = reader_.Next().integer;
    Grow(*node, object->height);
    node->object = std::move(object);
    node->index = std::move(index);
    return node;
  }
  auto node = New<Field>();
  node->name = reader_.Expect(TokenKind::kName).text;
  Grow(*node, object->height);
  node->object = std::move(object);
  return node;
}

ExpressionPtr ExpressionParser::ParseItem(ExpressionPtr object) {
  auto slice = New<Slice>();
  auto item = New<Item>();
  reader_.ExpectOperator("[");
  const auto bound = [&]() -> ExpressionPtr {
    if (reader_.IsOperator(":") || reader_.IsOperator("]")) return nullptr;
    ExpressionPtr value = Parse();
    Grow(*slice, value->height);
    return value;
  };
  ExpressionPtr first = bound();
  if (!reader_.IsOperator(":")) {
    if (first == nullptr) reader_.Fail("an index is missing");
    reader_.ExpectOperator("]");
    Grow(*item, std::max(object->height, first->height));
    item->object = std::move(object);
    item->index = std::move(first);
    return item;
  }
  slice->from = std::move(first);
  reader_.ExpectOperator(":");
  slice->to = bound();
  if (reader_.SkipOperator(":")) slice->step = bound();
  reader_.ExpectOperator("]");
  Grow(*slice, object->height);
  slice->object = std::move(object);
  return slice;
}

ExpressionPtr ExpressionParser::ParseCall(ExpressionPtr callee) {
  auto node = New<CallExpression>();
  int height = callee->height;
  node->callee = std::move(callee);
  node->arguments = ParseArguments(height);
  Grow(*node, height);
  return node;
}

ArgumentList ExpressionParser::ParseArguments(int& height) {
  ArgumentList list;
  const auto add = [&](ExpressionPtr value) {
    height = std::max(height, value->height);
    return value;
  };
  reader_.ExpectOperator("(");
  bool first = true;
  while (!reader_.IsOperator(")")) {
    if (!first) reader_.ExpectOperator(",");
    first = false;
    if (reader_.IsOperator(")")) break;
    if (reader_.SkipOperator("**")) {
      list.named_rest = add(Parse());
    } else if (reader_.SkipOperator("*")) {
      list.rest = add(Parse());
    } else if (reader_.Is(TokenKind::kName) && reader_.Ahead().kind == TokenKind::kOperator &&
               reader_.Ahead().text == "=") {
      std::string name = reader_.Next().text;
      reader_.Next();
      list.named.emplace_back(std::move(name), add(Parse()));
    } else {
      if (!list.named.empty()) reader_.Fail("a positional argument after named ones");
      list.positional.push_back(add(Parse()));
    }
  }
  reader_.ExpectOperator(")");
  return list;
}

}  // namespace kevin::local::jinja
