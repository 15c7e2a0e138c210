#include <fmt/format.h>

#include "env/gpu/launch/parser.h"
#include "env/gpu/launch/parser_nesting.h"

namespace kevin::launch {

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
