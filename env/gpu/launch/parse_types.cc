#include <fmt/format.h>

#include <algorithm>

#include "env/gpu/launch/parser.h"
#include "env/gpu/launch/value.h"

namespace kevin::launch {
namespace {

bool IsQualifier(const Token& token) {
  for (const char* word :
       {"const",        "volatile",     "constexpr", "static",   "register",   "typename",
        "inline",       "thread_local", "struct",    "enum",     "class",      "__grid_constant__",
        "consteval",    "constinit",    "extern",    "__host__", "__device__", "__constant__",
        "__restrict__", "__restrict"}) {
    if (token.Is(word)) return true;
  }
  return false;
}

bool IsPointerWord(const Token& token) {
  for (const char* word : {"*", "&", "&&", "const", "volatile", "__restrict__", "__restrict", "restrict"}) {
    if (token.Is(word)) return true;
  }
  return false;
}

}  // namespace

bool Parser::IsTypeName(const std::string& name) const {
  if (FindTypeInfo(name) || type_names_.contains(name)) return true;
  const size_t colon = name.rfind("::");
  return outline_.type_names.contains(colon == std::string::npos ? name : name.substr(colon + 2));
}

size_t Parser::NameEnd(size_t begin) const {
  const auto is = [this](size_t i, const char* text) { return i < end_ && outline_.tokens[i].Is(text); };
  const auto is_name = [this](size_t i) { return i < end_ && outline_.tokens[i].IsName(); };
  size_t i = is(begin, "::") ? begin + 1 : begin;
  if (!is_name(i)) return begin;
  for (++i; is(i, "::") && is_name(i + 1); i += 2) {
  }
  if (is(i, "<")) {
    const size_t close = ClosingAngle(outline_, i, end_);
    if (close != std::string::npos) i = close + 1;
  }
  return i;
}

size_t Parser::TypeEnd(size_t begin) const {
  size_t i = begin;
  while (i < end_ && IsQualifier(outline_.tokens[i])) ++i;
  if (i >= end_ || !(outline_.tokens[i].IsName() || outline_.tokens[i].Is("::"))) return begin;
  if (IsTypeWord(outline_.tokens[i].text)) {
    while (i < end_ && (IsTypeWord(outline_.tokens[i].text) || outline_.tokens[i].Is("const"))) ++i;
  } else {
    i = NameEnd(i);
  }
  while (i < end_ && IsPointerWord(outline_.tokens[i])) ++i;
  return i;
}

bool Parser::StartsDeclaration() const {
  for (const char* word : {"const", "constexpr", "static", "auto", "volatile", "register", "typename"}) {
    if (Next(word)) return true;
  }
  if (!Peek().IsName() && !Next("::")) return false;
  const size_t end = TypeEnd(at_);
  if (end == at_ || end >= end_) return false;
  const Token& after = outline_.tokens[end];
  size_t name_end = NameEnd(at_);
  if (IsTypeWord(Peek().text))
    return after.IsName() || (after.Is("(") && end + 1 < end_ && outline_.tokens[end + 1].Is("*"));
  std::string name;
  for (size_t i = at_; i < name_end && !outline_.tokens[i].Is("<"); ++i) name += outline_.tokens[i].text;
  if (after.Is("(") && end + 1 < end_ && outline_.tokens[end + 1].Is("*")) return IsTypeName(name);
  if (!after.IsName()) return false;
  if (IsTypeName(name) || end == name_end)
    return name != "return" && name != "throw" && name != "new" && name != "delete" && name != "else" &&
           name != "goto";
  // `Unknown* p = ...`: as an expression it could not be assigned to.
  return end + 1 < end_ && outline_.tokens[end + 1].Is("=");
}

TypeSyntax Parser::Type() {
  Nesting nesting(this);
  TypeSyntax type;
  type.at = Peek().begin;
  const size_t begin = at_;
  while (IsQualifier(Peek())) type.is_const |= Next("const") || Next("constexpr"), Take();
  if (IsTypeWord(Peek().text)) {
    while (IsTypeWord(Peek().text) || Next("const")) {
      if (Next("const")) {
        type.is_const = true;
      } else {
        type.name += (type.name.empty() ? "" : " ") + Peek().text;
      }
      Take();
    }
  } else {
    if (Accept("::")) type.name = "";
    if (!Peek().IsName()) FailExpected("a type");
    type.name += Take().text;
    while (Next("::") && Peek(1).IsName()) {
      Take();
      type.name += "::" + Take().text;
    }
    if (Next("<") && ClosingAngle(outline_, at_, end_) != std::string::npos) {
      type.arguments = TemplateArguments();
      type.has_arguments = true;
    }
  }
  Pointers(&type);
  type.text = Written(begin, at_);
  return type;
}

void Parser::Pointers(TypeSyntax* type) {
  while (IsPointerWord(Peek())) {
    const Token& token = Take();
    if (token.Is("*")) ++type->pointers;
    if (token.Is("&") || token.Is("&&")) type->is_reference = true;
    if (token.Is("const")) (type->pointers > 0 ? type->pointer_is_const : type->is_const) = true;
  }
}

std::vector<TemplateArgument> Parser::TemplateArguments() {
  Nesting nesting(this);
  std::vector<TemplateArgument> arguments;
  Expect("<", "before template arguments");
  while (!Next(">")) {
    arguments.push_back(OneTemplateArgument());
    if (!Accept(",")) break;
  }
  Expect(">", "after template arguments");
  return arguments;
}

TemplateArgument Parser::OneTemplateArgument() {
  TemplateArgument argument;
  argument.at = Peek().begin;
  const size_t begin = at_;
  const size_t end = TypeEnd(at_);
  const bool ends = end > at_ && end < end_ && (outline_.tokens[end].Is(",") || outline_.tokens[end].Is(">"));
  const size_t name_end = NameEnd(at_);
  std::string name;
  for (size_t i = at_; i < name_end && !outline_.tokens[i].Is("<"); ++i) name += outline_.tokens[i].text;
  const bool instance = name_end > at_ && outline_.tokens[name_end - 1].Is(">");
  if (ends &&
      (instance || IsTypeName(name) || IsTypeWord(Peek().text) || IsQualifier(Peek()) || end > name_end)) {
    argument.type = std::make_shared<TypeSyntax>(Type());
  } else {
    const int stop = stop_;
    stop_ = kAtGreater;
    argument.value = Conditional();
    stop_ = stop;
  }
  argument.text = Written(begin, at_);
  return argument;
}

std::vector<Parameter> Parser::Parameters() {
  std::vector<Parameter> parameters;
  if (Next("void") && Peek(1).kind == TokenKind::kEnd) Take();
  while (Peek().kind != TokenKind::kEnd && !Next(")")) {
    Parameter parameter;
    parameter.at = Peek().begin;
    parameter.type = Type();
    parameter.is_pack = Accept("...");
    while (Peek().IsName() && IsQualifier(Peek())) Take();
    if (Peek().IsName()) {
      parameter.at = Peek().begin;
      parameter.name = Take().text;
    }
    while (Next("[")) {
      const size_t close = PartnerWithin(at_);
      if (close == std::string::npos) FailExpected("a parameter");
      at_ = close + 1;

      ++parameter.type.pointers;
    }
    if (Accept("=")) parameter.otherwise = Assignment();
    parameters.push_back(std::move(parameter));
    if (!Accept(",")) break;
  }
  if (Peek().kind != TokenKind::kEnd && !Next(")")) FailExpected("`,` or `)` after the parameter");
  return parameters;
}

std::vector<TemplateParameter> Parser::TemplateParameters() {
  std::vector<TemplateParameter> parameters;
  while (Peek().kind != TokenKind::kEnd) {
    TemplateParameter parameter;
    parameter.is_type = (Next("typename") || Next("class")) &&
                        (Peek(1).IsName() || Next(",", 1) || Next("=", 1) || Next("...", 1));
    if (parameter.is_type || Next("template")) {
      if (Accept("template")) FailExpected("typename or a value parameter");
      Take();
    } else {
      Type();
    }
    parameter.is_pack = Accept("...");
    if (Peek().IsName()) parameter.name = Take().text;
    if (parameter.is_type) type_names_.insert(parameter.name);
    if (Accept("=")) parameter.otherwise = std::make_shared<TemplateArgument>(OneTemplateArgument());
    parameters.push_back(std::move(parameter));
    if (!Accept(",")) break;
  }
  if (Peek().kind != TokenKind::kEnd) FailExpected("`,` or `>` after the template parameter");
  return parameters;
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

}  // namespace kevin::launch
