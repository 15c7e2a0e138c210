#include "env/gpu/launch/parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "env/gpu/launch/types.h"

namespace kevin::launch {

Parser::Parser(const SourceText& source, const Outline& outline, TokenRange range)
    : source_(source), outline_(outline), at_(range.begin), end_(range.end) {
  const size_t last = outline.tokens.size() - 1;
  closing_.begin = closing_.end = outline.tokens[std::min(end_, last)].begin;
}

FunctionSyntax Parser::ReadFunction(const SourceText& source, const Outline& outline,
                                    const Function& function) {
  FunctionSyntax syntax;
  std::set<std::string> types;
  if (function.is_template) {
    Parser parser(source, outline, function.template_parameters);
    syntax.template_parameters = parser.TemplateParameters();
    for (const TemplateParameter& parameter : syntax.template_parameters) {
      if (parameter.is_type) types.insert(parameter.name);
    }
  }
  Parser parameters(source, outline, function.parameters);
  parameters.type_names_.insert(types.begin(), types.end());
  syntax.parameters = parameters.Parameters();
  if (!function.OnHost()) return syntax;
  Parser body(source, outline, function.body);
  body.type_names_.insert(types.begin(), types.end());
  syntax.body = body.NewStatement(StmtKind::kBlock);
  while (body.Peek().kind != TokenKind::kEnd) syntax.body->body.push_back(body.Statement());
  return syntax;
}

StmtPtr Parser::ReadConstants(const SourceText& source, const Outline& outline, TokenRange range) {
  Parser parser(source, outline, range);
  return parser.Declaration();
}

TypeSyntax Parser::ReadType(const SourceText& source, const Outline& outline, TokenRange range) {
  Parser parser(source, outline, range);
  return parser.Type();
}

std::vector<Parser::Enumerator> Parser::ReadEnumerators(const SourceText& source, const Outline& outline,
                                                        TokenRange range) {
  Parser parser(source, outline, range);
  std::vector<Enumerator> enumerators;
  while (parser.Peek().IsName()) {
    const Token& name = parser.Take();
    enumerators.push_back({name.text, nullptr, name.begin});
    if (parser.Accept("=")) enumerators.back().value = parser.Conditional();
    if (!parser.Accept(",")) break;
  }
  if (parser.Peek().kind != TokenKind::kEnd) parser.FailExpected("`,`");
  return enumerators;
}

const Token& Parser::Peek(size_t ahead) const {
  return at_ + ahead < end_ ? outline_.tokens[at_ + ahead] : closing_;
}

bool Parser::Accept(const char* text) {
  if (!Next(text)) return false;
  ++at_;
  return true;
}

const Token& Parser::Take() {
  const Token& token = Peek();
  if (at_ < end_) ++at_;
  return token;
}

void Parser::Expect(const char* text, const char* where) {
  if (!Accept(text)) FailExpected(fmt::format("`{}` {}", text, where));
}

void Parser::Fail(const std::string& what) const { source_.Fail(Peek().begin, what); }

void Parser::FailExpected(const std::string& what) const {
  const Token& token = Peek();
  if (token.kind == TokenKind::kBroken) Fail(token.text);
  if (token.kind == TokenKind::kEnd) Fail(fmt::format("the text ends here; write {}", what));
  Fail(fmt::format("`{}` is not expected here; write {}", token.text, what));
}

std::string Parser::Written(size_t begin, size_t end) const {
  std::string text;
  for (size_t i = begin; i < end; ++i) {
    const Token& token = outline_.tokens[i];
    const Token* before = i > begin ? &outline_.tokens[i - 1] : nullptr;
    const auto is_word = [](const Token& t) { return t.IsName() || t.kind == TokenKind::kNumber; };
    const bool words = before && is_word(*before) && is_word(token);
    const bool after_comma = before && before->Is(",");
    const bool after_pointer = before && (before->Is("*") || before->Is("&")) && token.IsName();
    if (words || after_comma || after_pointer) text += ' ';
    text += token.text;
  }
  return text;
}

size_t Parser::Greaters() const {
  size_t count = 0;
  while (Next(">", count) && (count == 0 || Peek(count).glued)) ++count;
  return count;
}

size_t Parser::PartnerWithin(size_t open) const {
  const size_t partner = outline_.partner[open];
  return partner < end_ ? partner : std::string::npos;
}

}  // namespace kevin::launch
