#pragma once
// The syntax tree of host functions. `at` is a place in the candidate's text.

#include <memory>
#include <string>
#include <vector>

#include "env/gpu/launch/numbers.h"

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
  bool is_reference = false, is_const = false;  // const: of the pointee, or of the value where no pointer is
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
  kRefused  // text: what is wrong, if it is ever evaluated
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

}  // namespace kevin::launch
