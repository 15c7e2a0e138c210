#pragma once
// The syntax tree of host functions, and the parser that reads functions, constants and types of an outline
// into it. `at` is a place in the text of the candidate. Throws LaunchException.

#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "env/gpu/launch/lexer.h"
#include "env/gpu/launch/outline.h"

namespace kevin::launch {

struct Expr;
struct Stmt;
struct TypeSyntax;
using ExprPtr = std::unique_ptr<Expr>;
using StmtPtr = std::unique_ptr<Stmt>;

// `float`, `256` or a name that may be either.
struct TemplateArgument {
  std::shared_ptr<TypeSyntax> type;  // either this
  std::shared_ptr<Expr> value;       // or this
  std::string text;                  // as written, with single spaces
  size_t at = 0;
};

struct TypeSyntax {
  std::string name;  // "unsigned long", "ns::T", "auto"; empty: none was written
  std::vector<TemplateArgument> arguments;
  bool has_arguments = false;
  int pointers = 0;
  bool is_reference = false, is_const = false;  // const: of the pointee, or of a value
  bool pointer_is_const = false;
  std::string text;
  size_t at = 0;
};

struct Parameter {
  TypeSyntax type;
  std::string name;                 // may be empty
  bool is_pack = false;             // T... values
  std::shared_ptr<Expr> otherwise;  // default argument
  size_t at = 0;
};

struct TemplateParameter {
  std::string name;
  bool is_type = false, is_pack = false;
  std::shared_ptr<TemplateArgument> otherwise;
};

enum class ExprKind {
  kInteger,
  kFloating,
  kString,
  kBool,
  kNull,
  kName,     // text, template_arguments
  kUnary,    // text; children[0]
  kPostfix,  // text: ++ or --
  kBinary,   // text; two children
  kAssign,   // text: = += ...
  kConditional,
  kComma,
  kCall,    // children[0] called with the others
  kLaunch,  // children[0] <<< configuration >>> ( arguments )
  kIndex,
  kMember,      // text; of children[0]
  kCast,        // text: how; type; children[0]
  kConstruct,   // type(children) or type{children}
  kList,        // { children }
  kDesignated,  // .text = children[0], in a list
  kSizeofType,
  kSizeofValue,
  kLambda,
  kRefused  // text: the error, if it is ever evaluated
};

struct Lambda {
  std::vector<Parameter> parameters;
  StmtPtr body;
  bool by_reference = false;
};

struct Expr {
  ExprKind kind = ExprKind::kNull;
  size_t at = 0;
  int depth = 1;  // of the tree below
  std::string text;
  Integer integer = 0;
  double floating = 0;
  std::vector<TemplateArgument> template_arguments;
  bool has_template_arguments = false;
  TypeSyntax type;
  std::vector<ExprPtr> children;
  size_t configuration = 0;  // kLaunch: how many children after the first stand between <<< and >>>
  std::shared_ptr<const Lambda> lambda;
};

enum class StmtKind {
  kBlock,
  kDeclaration,
  kAlias,  // using text = type
  kExpression,
  kIf,
  kFor,
  kRangeFor,
  kWhile,
  kDo,
  kSwitch,
  kCase,
  kDefault,
  kBreak,
  kContinue,
  kReturn,
  kEmpty
};

struct Declarator {
  TypeSyntax type;
  std::string name;
  size_t at = 0;
  bool is_array = false;
  ExprPtr array_size;  // null: as many as the initialiser has
  enum { kNone, kEquals, kParentheses, kBraces } form = kNone;
  std::vector<ExprPtr> initialiser;
  bool is_const = false;
};

struct Stmt {
  StmtKind kind = StmtKind::kEmpty;
  size_t at = 0;
  std::string text;
  TypeSyntax type;
  // kIf: [init] condition; kFor: condition, step (null where missing); others: the one expression.
  ExprPtr condition, step;
  StmtPtr init;               // of if, for and switch
  std::vector<StmtPtr> body;  // kIf: then, else
  std::vector<Declarator> declarators;
};

// Everything about one function, read when it is first needed.
struct FunctionSyntax {
  std::vector<TemplateParameter> template_parameters;
  std::vector<Parameter> parameters;
  StmtPtr body;  // null for a kernel
};

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
  enum Stop { kNowhere = 0, kAtGreater = 1, kAtLaunchEnd = 2 };  // the token that ends an expression early
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
  Token closing_;                     // returned for every place after the range
  std::set<std::string> type_names_;  // of this function; the outline knows the others
  int stop_ = kNowhere;
  int nesting_ = 0;
};

constexpr int kMaxNesting = 200;

struct Parser::Nesting {
  explicit Nesting(Parser* parser) : parser_(parser) {
    if (++parser_->nesting_ > kMaxNesting) {
      parser_->nesting_ = 0;
      parser_->Fail("this is nested too deeply; split it into several statements");
    }
  }
  ~Nesting() { --parser_->nesting_; }
  Nesting(const Nesting&) = delete;
  Nesting& operator=(const Nesting&) = delete;

 private:
  Parser* parser_;
};

}  // namespace kevin::launch
