#include "env/gpu/launch/parser.h"

#include <fmt/format.h>

#include <algorithm>

#include "env/gpu/launch/value.h"

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

StmtPtr Parser::NewStatement(StmtKind kind) const {
  auto statement = std::make_unique<Stmt>();
  statement->kind = kind;
  statement->at = Peek().begin;
  return statement;
}

StmtPtr Parser::Statement() {
  Nesting nesting(this);
  if (Next("{")) return Block();
  if (Next("if")) return If();
  if (Next("for")) return For();
  if (Next("while")) return While();
  if (Next("do")) return Do();
  if (Next("switch")) return Switch();
  if (Next("return")) return Return();
  if (Next("using") || Next("typedef")) return AliasStatement();
  if (Next("case") || Next("default")) {
    StmtPtr label = NewStatement(Next("case") ? StmtKind::kCase : StmtKind::kDefault);
    Take();
    if (label->kind == StmtKind::kCase) label->condition = Conditional();
    Expect(":", "after the label");
    return label;
  }
  for (const char* word : {"goto", "try", "asm", "struct", "class", "union", "delete", "co_await"}) {
    if (Next(word)) Fail(fmt::format("`{}` is not possible in launch; write plain loops and calls", word));
  }
  return SimpleStatement();
}

StmtPtr Parser::SimpleStatement() {
  StmtPtr statement = NewStatement(StmtKind::kEmpty);
  if (Accept(";")) return statement;
  if (Accept("break")) {
    statement->kind = StmtKind::kBreak;
  } else if (Accept("continue")) {
    statement->kind = StmtKind::kContinue;
  } else if (StartsDeclaration()) {
    return Declaration();
  } else {
    statement->kind = StmtKind::kExpression;
    statement->condition = Expression();
  }
  Expect(";", "after the statement");
  return statement;
}

StmtPtr Parser::Block() {
  StmtPtr block = NewStatement(StmtKind::kBlock);
  Expect("{", "before the statements");
  while (!Next("}") && Peek().kind != TokenKind::kEnd) block->body.push_back(Statement());
  Expect("}", "after the statements");
  return block;
}

StmtPtr Parser::If() {
  StmtPtr statement = NewStatement(StmtKind::kIf);
  Take();
  Accept("constexpr");
  Expect("(", "after `if`");
  if (StartsDeclaration()) statement->init = Declaration();
  statement->condition = Expression();
  Expect(")", "after the condition");
  statement->body.push_back(Statement());
  if (Accept("else")) statement->body.push_back(Statement());
  return statement;
}

StmtPtr Parser::For() {
  StmtPtr statement = NewStatement(StmtKind::kFor);
  Take();
  Expect("(", "after `for`");
  if (StartsDeclaration()) {
    const size_t end = TypeEnd(at_);
    if (end + 1 < end_ && outline_.tokens[end].IsName() && outline_.tokens[end + 1].Is(":")) {
      return RangeFor(std::move(statement));
    }
  }
  statement->init = SimpleStatement();
  if (!Next(";")) statement->condition = Expression();
  Expect(";", "after the loop's condition");
  if (!Next(")")) statement->step = Expression();
  Expect(")", "after the loop's step");
  statement->body.push_back(Statement());
  return statement;
}

StmtPtr Parser::RangeFor(StmtPtr statement) {
  statement->kind = StmtKind::kRangeFor;
  statement->type = Type();
  statement->text = Take().text;
  Expect(":", "before the array");
  statement->condition = Next("{") ? List() : Expression();
  Expect(")", "after the array");
  statement->body.push_back(Statement());
  return statement;
}

StmtPtr Parser::While() {
  StmtPtr statement = NewStatement(StmtKind::kWhile);
  Take();
  Expect("(", "after `while`");
  statement->condition = Expression();
  Expect(")", "after the condition");
  statement->body.push_back(Statement());
  return statement;
}

StmtPtr Parser::Do() {
  StmtPtr statement = NewStatement(StmtKind::kDo);
  Take();
  statement->body.push_back(Statement());
  Expect("while", "after the body of `do`");
  Expect("(", "after `while`");
  statement->condition = Expression();
  Expect(")", "after the condition");
  Expect(";", "after the statement");
  return statement;
}

StmtPtr Parser::Switch() {
  StmtPtr statement = NewStatement(StmtKind::kSwitch);
  Take();
  Expect("(", "after `switch`");
  if (StartsDeclaration()) statement->init = Declaration();
  statement->condition = Expression();
  Expect(")", "after the value");
  statement->body.push_back(Block());
  return statement;
}

StmtPtr Parser::Return() {
  StmtPtr statement = NewStatement(StmtKind::kReturn);
  Take();
  if (!Next(";")) statement->condition = Next("{") ? List() : Expression();
  Expect(";", "after the statement");
  return statement;
}

StmtPtr Parser::AliasStatement() {
  StmtPtr statement = NewStatement(StmtKind::kAlias);
  const bool is_typedef = Next("typedef");
  Take();
  if (Accept("namespace")) {
    while (Peek().IsName() || Next("::")) Take();
    statement->kind = StmtKind::kEmpty;
  } else {
    if (is_typedef) statement->type = Type();
    if (!Peek().IsName()) FailExpected("a name for the type");
    statement->text = Take().text;
    if (!is_typedef) {
      Expect("=", "before the type");
      statement->type = Type();
    }
    type_names_.insert(statement->text);
  }
  Expect(";", "after the statement");
  return statement;
}

StmtPtr Parser::Declaration() {
  StmtPtr statement = NewStatement(StmtKind::kDeclaration);
  TypeSyntax type = Type();
  do {
    statement->declarators.push_back(OneDeclarator(type));
    type.pointers = 0;  // `T *a, b`: the star is a's
    type.is_reference = type.pointer_is_const = false;
  } while (Accept(","));
  Expect(";", "after the declaration");
  return statement;
}

Declarator Parser::OneDeclarator(const TypeSyntax& type) {
  Declarator declarator;
  declarator.type = type;
  Pointers(&declarator.type);
  if (Next("(") && Next("*", 1)) {  // R (*name)(...)
    Take(), Take();
    declarator.type.name = "auto";
    declarator.type.pointers = 0;
    declarator.at = Peek().begin;
    if (!Peek().IsName()) FailExpected("a name");
    declarator.name = Take().text;
    Expect(")", "after the name");
    if (!Next("(") || PartnerWithin(at_) == std::string::npos) FailExpected("the parameter types");
    at_ = PartnerWithin(at_) + 1;
  } else {
    declarator.at = Peek().begin;
    if (!Peek().IsName()) FailExpected("a name");
    declarator.name = Take().text;
  }
  declarator.is_const =
      declarator.type.pointers > 0 ? declarator.type.pointer_is_const : declarator.type.is_const;
  if (Accept("[")) {
    declarator.is_array = true;
    if (!Next("]")) declarator.array_size = Conditional();
    Expect("]", "after the array's size");
    if (Next("[")) Fail("arrays have one dimension here; write one array of rows * columns elements");
  }
  Initialiser(&declarator);
  return declarator;
}

void Parser::Initialiser(Declarator* declarator) {
  if (Accept("=")) {
    declarator->form = Declarator::kEquals;
    declarator->initialiser.push_back(Next("{") ? List() : Assignment());
  } else if (Next("{")) {
    declarator->form = Declarator::kBraces;
    declarator->initialiser.push_back(List());
  } else if (Accept("(")) {
    declarator->form = Declarator::kParentheses;
    declarator->initialiser = Arguments(")");
  }
}

}  // namespace kevin::launch
