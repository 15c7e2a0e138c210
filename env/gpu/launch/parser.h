#pragma once
// Reads functions, constants and types of an outline into syntax trees. Throws LaunchException.

#include <functional>
#include <set>
#include <string>
#include <vector>

#include "env/gpu/launch/outline.h"
#include "env/gpu/launch/syntax.h"

namespace kevin::launch {

class Parser {
 public:
  // Reads tokens of `range` only.
  Parser(const SourceText& source, const Outline& outline, TokenRange range);

  static FunctionSyntax ReadFunction(const SourceText& source, const Outline& outline,
                                     const Function& function);
  static StmtPtr ReadConstants(const SourceText& source, const Outline& outline, TokenRange range);
  static TypeSyntax ReadType(const SourceText& source, const Outline& outline, TokenRange range);
  struct Enumerator {
    std::string name;
    ExprPtr value;  // null: one more than the last
    size_t at;
  };
  static std::vector<Enumerator> ReadEnumerators(const SourceText& source, const Outline& outline,
                                                 TokenRange range);

 private:
  enum Stop { kNowhere = 0, kAtGreater = 1, kAtLaunchEnd = 2 };  // what ends an expression early
  struct Nesting;

  // Tokens.
  const Token& Peek(size_t ahead = 0) const;
  bool Next(const char* text, size_t ahead = 0) const { return Peek(ahead).Is(text); }
  bool Accept(const char* text);
  const Token& Take();
  void Expect(const char* text, const char* where);
  [[noreturn]] void Fail(const std::string& what) const;
  [[noreturn]] void FailExpected(const std::string& what) const;
  std::string Written(size_t begin, size_t end) const;
  size_t Greaters() const;  // how many '>' follow one another without a gap
  size_t PartnerWithin(size_t open) const;

  // Types.
  bool IsTypeName(const std::string& name) const;
  size_t TypeEnd(size_t begin) const;  // one past the type at token `begin`; `begin` when there is none
  size_t NameEnd(size_t begin) const;  // one past `ns::name<...>`
  bool StartsDeclaration() const;
  TypeSyntax Type();
  void Pointers(TypeSyntax* type);
  std::vector<TemplateArgument> TemplateArguments();
  TemplateArgument OneTemplateArgument();
  std::vector<Parameter> Parameters();
  std::vector<TemplateParameter> TemplateParameters();

  // Statements.
  StmtPtr Statement();
  StmtPtr Block();
  StmtPtr If();
  StmtPtr For();
  StmtPtr RangeFor(StmtPtr statement);
  StmtPtr While();
  StmtPtr Do();
  StmtPtr Switch();
  StmtPtr Return();
  StmtPtr AliasStatement();
  StmtPtr SimpleStatement();
  StmtPtr Declaration();
  Declarator OneDeclarator(const TypeSyntax& type);
  void Initialiser(Declarator* declarator);
  StmtPtr NewStatement(StmtKind kind) const;

  // Expressions.
  ExprPtr Expression();
  ExprPtr Assignment();
  ExprPtr Conditional();
  ExprPtr Binary(int lowest);
  ExprPtr Unary();
  ExprPtr Postfix();
  ExprPtr Primary();
  ExprPtr NamePath();
  ExprPtr NamedCast();
  ExprPtr ParenthesisOrCast();
  ExprPtr Construct();
  ExprPtr Sizeof();
  ExprPtr List();
  ExprPtr Literal();
  ExprPtr LambdaExpression();
  ExprPtr Launch(ExprPtr callee);
  std::vector<ExprPtr> Arguments(const char* close);
  bool TemplateArgumentsFollow(const std::string& path) const;
  ExprPtr NewExpr(ExprKind kind) const;
  ExprPtr NewExpr(ExprKind kind, size_t at, std::vector<ExprPtr> children) const;
  void Adopt(Expr* parent, ExprPtr child) const;

  const SourceText& source_;
  const Outline& outline_;
  size_t at_, end_;
  Token closing_;                     // stands for everything after the range
  std::set<std::string> type_names_;  // of this function; the outline knows the others
  int stop_ = kNowhere;
  int nesting_ = 0;
};

}  // namespace kevin::launch
