#include <fmt/format.h>

#include "env/gpu/launch/parser.h"
#include "env/gpu/launch/parser_nesting.h"
#include "env/gpu/launch/types.h"

namespace kevin::launch {
namespace {

bool IsTemplateBuiltin(const std::string& name) {
  for (const char* builtin :
       {"workspace", "zeroed_workspace", "tensor_map", "min", "max", "std::min", "std::max", "ceil_div",
        "cdiv", "div_up", "std::is_same_v", "std::numeric_limits", "numeric_limits", "std::vector", "vector",
        "std::array"}) {
    if (name == builtin) return true;
  }
  return false;
}

}  // namespace

ExprPtr Parser::Primary() {
  const Token& token = Peek();
  if (token.kind == TokenKind::kNumber || token.kind == TokenKind::kCharacter ||
      token.kind == TokenKind::kString) {
    return Literal();
  }
  if (token.Is("(")) return ParenthesisOrCast();
  if (token.Is("[")) return LambdaExpression();
  if (token.Is("new"))
    Fail("launch cannot allocate with `new`; write workspace<float>(count) for device memory");
  for (const char* word : {"static_cast", "reinterpret_cast", "const_cast", "dynamic_cast"}) {
    if (token.Is(word)) return NamedCast();
  }
  if (token.Is("true") || token.Is("false")) {
    ExprPtr expr = NewExpr(ExprKind::kBool);
    expr->integer = Take().Is("true");
    return expr;
  }
  if (token.Is("nullptr") || token.Is("NULL")) {
    ExprPtr expr = NewExpr(ExprKind::kNull);
    Take();
    return expr;
  }
  if (token.Is("typename") || IsTypeWord(token.text)) return Construct();
  for (const char* word :
       {"else", "if", "for", "while", "do", "return", "case", "switch", "const", "struct"}) {
    if (token.Is(word)) FailExpected("an expression");
  }
  if (token.IsName() || token.Is("::")) return NamePath();
  FailExpected("an expression");
}

ExprPtr Parser::Literal() {
  const Token& token = Take();
  if (token.kind == TokenKind::kString) {
    ExprPtr expr = NewExpr(ExprKind::kString, token.begin, {});
    expr->text = token.text;
    while (Peek().kind == TokenKind::kString || (Peek().IsName() && Peek().text.starts_with("PRI"))) Take();
    return expr;
  }
  const Number number = token.kind == TokenKind::kNumber ? ReadNumber(token.text) : ReadCharacter(token.text);
  if (!number.error.empty()) source_.Fail(token.begin, number.error);
  ExprPtr expr = NewExpr(number.is_floating ? ExprKind::kFloating : ExprKind::kInteger, token.begin, {});
  expr->integer = number.integer;
  expr->floating = number.floating;
  expr->text = number.type;
  return expr;
}

ExprPtr Parser::ParenthesisOrCast() {
  const size_t open = at_;
  const size_t at = Take().begin;
  const size_t end = TypeEnd(at_);
  const size_t name_end = NameEnd(at_);
  std::string name;
  for (size_t i = at_; i < name_end && !outline_.tokens[i].Is("<"); ++i) name += outline_.tokens[i].text;
  const bool is_type = Next("const") || Next("unsigned") || IsTypeWord(Peek().text) || IsTypeName(name);
  if (is_type && end > at_ && end == PartnerWithin(open)) {
    ExprPtr cast = NewExpr(ExprKind::kCast, at, {});
    cast->text = "cast";
    cast->type = Type();
    Expect(")", "after the type");
    Adopt(cast.get(), Next("{") ? List() : Unary());
    return cast;
  }
  const int stop = stop_;
  stop_ = kNowhere;
  ExprPtr inside = Expression();
  stop_ = stop;
  Expect(")", "after the expression");
  return inside;
}

ExprPtr Parser::NamedCast() {
  ExprPtr cast = NewExpr(ExprKind::kCast);
  cast->text = Take().text;
  Expect("<", "before the type");
  cast->type = Type();
  Expect(">", "after the type");
  Expect("(", "before the value");
  std::vector<ExprPtr> values = Arguments(")");
  if (values.size() != 1) source_.Fail(cast->at, fmt::format("`{}` takes one value", cast->text));
  Adopt(cast.get(), std::move(values[0]));
  return cast;
}

ExprPtr Parser::Construct() {
  const size_t at = Peek().begin;
  TypeSyntax type = Type();
  if (!Next("(") && !Next("{")) FailExpected("`(` after the type, or a name");
  const char* close = Next("(") ? ")" : "}";
  Take();
  ExprPtr expr = NewExpr(ExprKind::kConstruct, at, Arguments(close));
  expr->type = std::move(type);
  expr->text = close;
  return expr;
}

ExprPtr Parser::Sizeof() {
  ExprPtr expr = NewExpr(ExprKind::kSizeofType);
  Take();
  const size_t open = at_;
  Expect("(", "after `sizeof`");
  const size_t end = TypeEnd(at_);
  std::string name;
  for (size_t i = at_; i < NameEnd(at_) && !outline_.tokens[i].Is("<"); ++i) name += outline_.tokens[i].text;
  const bool is_type = Next("const") || IsTypeWord(Peek().text) || IsTypeName(name);
  if (is_type && end == PartnerWithin(open)) {
    expr->type = Type();
  } else {
    expr->kind = ExprKind::kSizeofValue;
    Adopt(expr.get(), Expression());
  }
  Expect(")", "after the type");
  return expr;
}

ExprPtr Parser::NamePath() {
  const size_t begin = at_;
  ExprPtr expr = NewExpr(ExprKind::kName);
  Accept("::");
  while (true) {
    if (!Peek().IsName()) FailExpected("a name");
    expr->text += Take().text;
    if (Next("<") && TemplateArgumentsFollow(expr->text)) {
      const size_t arguments_begin = at_;
      expr->template_arguments = TemplateArguments();
      expr->has_template_arguments = true;
      if (Next("::")) {  // a member of a template's instance: keep it as written
        expr->text += Written(arguments_begin, at_);
        expr->template_arguments.clear();
        expr->has_template_arguments = false;
      }
    }
    if (!Next("::") || expr->has_template_arguments) break;
    Take();
    expr->text += "::";
  }
  const bool constructs = Next("{") || Next("(");
  if (constructs && !expr->has_template_arguments && IsTypeName(expr->text)) {
    at_ = begin;
    return Construct();
  }
  return expr;
}

bool Parser::TemplateArgumentsFollow(const std::string& path) const {
  const size_t close = ClosingAngle(outline_, at_, end_);
  if (close == std::string::npos) return false;
  if (IsTemplateBuiltin(path)) return true;
  const size_t colon = path.rfind("::");
  const std::string last = colon == std::string::npos ? path : path.substr(colon + 2);
  if (outline_.template_names.contains(last)) return true;
  // Not known to be a template: `a < b && c > (d)` compares.
  for (size_t i = at_; i < close; ++i) {
    if (outline_.tokens[i].Is("&&") || outline_.tokens[i].Is("||")) return false;
  }
  const size_t after = close + 1;
  return after < end_ && (outline_.tokens[after].Is("(") || outline_.tokens[after].Is("<<<") ||
                          outline_.tokens[after].Is("::"));
}

ExprPtr Parser::LambdaExpression() {
  Nesting nesting(this);
  ExprPtr expr = NewExpr(ExprKind::kLambda);
  auto lambda = std::make_shared<Lambda>();
  Take();
  while (!Next("]") && Peek().kind != TokenKind::kEnd) {
    lambda->by_reference |= Next("&");
    Take();
  }
  Expect("]", "after the captures");
  if (Accept("(")) {
    lambda->parameters = Parameters();
    Expect(")", "after the parameters");
  }
  while (Next("mutable") || Next("constexpr") || Next("noexcept")) Take();
  if (Accept("->")) Type();
  const int stop = stop_;
  stop_ = kNowhere;
  lambda->body = Block();
  stop_ = stop;
  expr->lambda = std::move(lambda);
  return expr;
}

}  // namespace kevin::launch
