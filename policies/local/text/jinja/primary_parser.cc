// Names, literals, displays, and what follows a value: fields, items, calls.

#include "policies/local/text/jinja/parser.h"

namespace kevin::local::jinja {

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
