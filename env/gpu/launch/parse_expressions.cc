#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "env/gpu/launch/parser.h"
#include "env/gpu/launch/value.h"

namespace kevin::launch {
namespace {

const std::map<std::string, int>& Levels() {
  static const std::map<std::string, int> kLevels = {
      {"||", 0}, {"&&", 1}, {"|", 2},  {"^", 3},  {"&", 4}, {"==", 5}, {"!=", 5}, {"<", 6}, {"<=", 6},
      {">", 6},  {">=", 6}, {"<<", 7}, {">>", 7}, {"+", 8}, {"-", 8},  {"*", 9},  {"/", 9}, {"%", 9}};
  return kLevels;
}

}  // namespace

ExprPtr Parser::NewExpr(ExprKind kind) const { return NewExpr(kind, Peek().begin, {}); }

ExprPtr Parser::NewExpr(ExprKind kind, size_t at, std::vector<ExprPtr> children) const {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->at = at;
  for (ExprPtr& child : children) Adopt(expr.get(), std::move(child));
  return expr;
}

// A long sum is a deep tree, which evaluation walks recursively.
void Parser::Adopt(Expr* parent, ExprPtr child) const {
  if (child) parent->depth = std::max(parent->depth, child->depth + 1);
  if (parent->depth > kMaxNesting) {
    source_.Fail(parent->at, "this expression is too long; split it into several statements");
  }
  parent->children.push_back(std::move(child));
}

ExprPtr Parser::Expression() {
  ExprPtr left = Assignment();
  while (Next(",")) {
    const size_t at = Take().begin;
    std::vector<ExprPtr> both;
    both.push_back(std::move(left));
    both.push_back(Assignment());
    left = NewExpr(ExprKind::kComma, at, std::move(both));
  }
  return left;
}

ExprPtr Parser::Assignment() {
  Nesting nesting(this);
  if (Next("throw")) {
    ExprPtr refused = NewExpr(ExprKind::kRefused);
    refused->text = "launch cannot throw; return early, or leave the check out";
    Take();
    if (!Next(";") && !Next(")")) Assignment();
    return refused;
  }
  ExprPtr left = Conditional();
  std::string op;
  size_t tokens = 1;
  for (const char* assign : {"=", "+=", "-=", "*=", "/=", "%=", "&=", "|=", "^=", "<<="}) {
    if (Next(assign)) op = assign;
  }
  if (Greaters() == 1 && Next(">=", 1) && Peek(1).glued) op = ">>=", tokens = 2;
  if (op.empty() || (stop_ == kAtGreater && op == ">>=")) return left;
  const size_t at = Peek().begin;
  for (size_t i = 0; i < tokens; ++i) Take();
  std::vector<ExprPtr> both;
  both.push_back(std::move(left));
  both.push_back(Next("{") ? List() : Assignment());
  ExprPtr expr = NewExpr(ExprKind::kAssign, at, std::move(both));
  expr->text = op;
  return expr;
}

ExprPtr Parser::Conditional() {
  Nesting nesting(this);
  ExprPtr condition = Binary(0);
  if (!Next("?")) return condition;
  const size_t at = Take().begin;
  std::vector<ExprPtr> three;
  three.push_back(std::move(condition));
  three.push_back(Expression());
  Expect(":", "between the two values");
  three.push_back(Assignment());
  return NewExpr(ExprKind::kConditional, at, std::move(three));
}

ExprPtr Parser::Binary(int lowest) {
  ExprPtr left = Unary();
  while (true) {
    const size_t greaters = Greaters();
    const bool glued_equals = greaters > 0 && Next(">=", greaters) && Peek(greaters).glued;
    const bool stops = greaters > 0 ? stop_ == kAtGreater || greaters >= 3 || glued_equals
                                    : Next(">=") && stop_ == kAtGreater;
    if (stops || Peek().kind == TokenKind::kEnd) return left;
    const std::string op = greaters == 2 ? ">>" : Next("and") ? "&&" : Next("or") ? "||" : Peek().text;
    const bool is_operator = Peek().kind == TokenKind::kPunctuator || Next("and") || Next("or");
    const auto level = Levels().find(op);
    if (!is_operator || level == Levels().end() || level->second < lowest) return left;
    const size_t at = Peek().begin;
    Take();
    if (greaters == 2) Take();
    std::vector<ExprPtr> both;
    both.push_back(std::move(left));
    both.push_back(Binary(level->second + 1));
    left = NewExpr(ExprKind::kBinary, at, std::move(both));
    left->text = op;
  }
}

ExprPtr Parser::Unary() {
  Nesting nesting(this);
  if (Next("sizeof")) return Sizeof();
  for (const char* op : {"+", "-", "!", "~", "++", "--", "&", "*", "not"}) {
    if (!Next(op)) continue;
    const size_t at = Take().begin;
    std::vector<ExprPtr> one;
    one.push_back(Unary());
    ExprPtr expr = NewExpr(ExprKind::kUnary, at, std::move(one));
    expr->text = op == std::string("not") ? "!" : op;
    return expr;
  }
  return Postfix();
}

ExprPtr Parser::Postfix() {
  ExprPtr expr = Primary();
  while (true) {
    const size_t at = Peek().begin;
    std::vector<ExprPtr> one;
    if (Next("<<<")) {
      expr = Launch(std::move(expr));
    } else if (Accept("(")) {
      one.push_back(std::move(expr));
      const size_t callee_at = one[0]->at;
      for (ExprPtr& argument : Arguments(")")) one.push_back(std::move(argument));
      expr = NewExpr(ExprKind::kCall, callee_at, std::move(one));
    } else if (Accept("[")) {
      const int stop = stop_;
      stop_ = kNowhere;
      one.push_back(std::move(expr));
      one.push_back(Expression());
      stop_ = stop;
      Expect("]", "after the index");
      expr = NewExpr(ExprKind::kIndex, at, std::move(one));
    } else if (Next(".") || Next("->")) {
      const bool arrow = Take().Is("->");
      if (!Peek().IsName()) FailExpected("a member's name");
      one.push_back(std::move(expr));
      expr = NewExpr(ExprKind::kMember, Peek().begin, std::move(one));
      expr->text = Take().text;
      expr->integer = arrow;
    } else if (Next("++") || Next("--")) {
      one.push_back(std::move(expr));
      expr = NewExpr(ExprKind::kPostfix, at, std::move(one));
      expr->text = Take().text;
    } else {
      return expr;
    }
  }
}

ExprPtr Parser::Launch(ExprPtr callee) {
  std::vector<ExprPtr> parts;
  const size_t at = Take().begin;
  parts.push_back(std::move(callee));
  const int stop = stop_;
  stop_ = kAtLaunchEnd;
  size_t configuration = 0;
  while (Greaters() < 3 && Peek().kind != TokenKind::kEnd) {
    parts.push_back(Next("{") ? List() : Assignment());
    ++configuration;
    if (!Accept(",")) break;
  }
  stop_ = stop;
  if (Greaters() < 3) FailExpected("`>>>` after the launch's grid and block");
  Take(), Take(), Take();
  Expect("(", "before the kernel's arguments");
  for (ExprPtr& argument : Arguments(")")) parts.push_back(std::move(argument));
  ExprPtr launch = NewExpr(ExprKind::kLaunch, at, std::move(parts));
  launch->configuration = configuration;
  return launch;
}

std::vector<ExprPtr> Parser::Arguments(const char* close) {
  std::vector<ExprPtr> arguments;
  const int stop = stop_;
  stop_ = kNowhere;
  while (!Next(close)) {
    if (Next(".") && close == std::string("}") && Peek(1).IsName() && Next("=", 2)) {
      ExprPtr designated = NewExpr(ExprKind::kDesignated);
      designated->text = Peek(1).text;
      Take(), Take(), Take();
      Adopt(designated.get(), Next("{") ? List() : Assignment());
      arguments.push_back(std::move(designated));
    } else {
      arguments.push_back(Next("{") ? List() : Assignment());
    }
    if (!Accept(",")) break;
  }
  stop_ = stop;
  Expect(close, "or `,` after the argument");
  return arguments;
}

ExprPtr Parser::List() {
  Nesting nesting(this);
  const size_t at = Peek().begin;
  Expect("{", "before the list");
  return NewExpr(ExprKind::kList, at, Arguments("}"));
}

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
