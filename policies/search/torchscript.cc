#include "policies/search/torchscript.h"

#include <cctype>
#include <cmath>
#include <cstdlib>

#include "policies/search/torchscript_lexer.h"

namespace kevin::search {
namespace {

struct Function {
  std::vector<std::string> parameters;
  std::vector<std::vector<Token>> defaults;
  std::vector<std::vector<Token>> lines;
};

using Functions = std::map<std::string, Function>;
using Scope = std::map<std::string, NodePtr>;

std::shared_ptr<Node> MakeNode(Node::Kind kind, std::string text = "") {
  auto node = std::make_shared<Node>();
  node->kind = kind;
  node->text = std::move(text);
  return node;
}

NodePtr NumberNode(double value, bool is_integer = false) {
  auto node = MakeNode(Node::Kind::kNumber);
  node->number = value;
  node->is_integer = is_integer;
  return node;
}

NodePtr CallNode(std::string name, std::vector<NodePtr> args) {
  auto node = MakeNode(Node::Kind::kCall, std::move(name));
  node->args = std::move(args);
  return node;
}

NodePtr RunFunction(const Functions& functions, const std::string& name, std::vector<NodePtr> args,
                    std::map<std::string, NodePtr> named, int depth);

// A precedence-climbing reader over one logical line.
class Reader {
 public:
  Reader(const std::vector<Token>& tokens, const Scope& scope, const Functions& functions, int depth)
      : tokens_(tokens), scope_(scope), functions_(functions), depth_(depth) {}

  bool AtEnd() const { return at_ >= tokens_.size(); }
  bool Is(const char* text, size_t ahead = 0) const {
    return at_ + ahead < tokens_.size() && tokens_[at_ + ahead].kind != Token::Kind::kString &&
           tokens_[at_ + ahead].text == text;
  }
  bool Take(const char* text) {
    if (!Is(text)) return false;
    ++at_;
    return true;
  }
  const Token& Next() {
    if (AtEnd()) throw Unsupported("a line of the reference ends too early");
    return tokens_[at_++];
  }

  // An expression, or several with commas between them (a tuple).
  NodePtr Tuple() {
    NodePtr first = Expression();
    if (!Is(",")) return first;
    auto list = MakeNode(Node::Kind::kList);
    list->args.push_back(first);
    while (Take(",") && !AtEnd()) list->args.push_back(Expression());
    return list;
  }

  NodePtr Expression() { return Comparison(); }

 private:
  NodePtr Comparison() {
    NodePtr left = Sum();
    static const std::map<std::string, std::string> kNames = {
        {">", "gt"}, {">=", "ge"}, {"<", "lt"}, {"<=", "le"}, {"==", "eq"}};
    while (!AtEnd() && kNames.count(tokens_[at_].text)) {
      const std::string& name = kNames.at(Next().text);
      left = CallNode(name, {left, Sum()});
    }
    return left;
  }

  NodePtr Sum() {
    NodePtr left = Product();
    while (Is("+") || Is("-")) {
      const std::string name = Next().text == "+" ? "add" : "sub";
      left = CallNode(name, {left, Product()});
    }
    return left;
  }

  NodePtr Product() {
    static const std::map<std::string, std::string> kNames = {
        {"*", "mul"}, {"/", "div"}, {"//", "floordiv"}, {"@", "matmul"}};
    NodePtr left = Sign();
    while (!AtEnd() && tokens_[at_].kind == Token::Kind::kSymbol && kNames.count(tokens_[at_].text)) {
      const std::string& name = kNames.at(Next().text);
      left = CallNode(name, {left, Sign()});
    }
    return left;
  }

  NodePtr Sign() {
    if (Take("-")) {
      NodePtr value = Sign();
      if (value->kind == Node::Kind::kNumber) return NumberNode(-value->number, value->is_integer);
      return CallNode("neg", {value});
    }
    if (Take("+")) return Sign();
    NodePtr base = Postfix();
    if (Take("**")) return CallNode("pow", {base, Sign()});
    return base;
  }

  NodePtr Postfix() {
    NodePtr value = Primary();
    while (!AtEnd()) {
      if (Take(".")) {
        value = Member(value);
      } else if (Take("[")) {
        value = Index(value);
      } else {
        break;
      }
    }
    return value;
  }

  NodePtr Member(const NodePtr& object) {
    const std::string name = Next().text;
    auto call = MakeNode(Node::Kind::kCall, name);
    call->args.push_back(object);
    if (Take("(")) Arguments(*call);
    return call;
  }

  NodePtr Index(const NodePtr& object) {
    auto call = MakeNode(Node::Kind::kCall, "index");
    call->args.push_back(object);
    while (!Take("]")) {
      if (Take(",")) continue;
      call->args.push_back(IndexItem());
    }
    return call;
  }

  NodePtr IndexItem() {
    const NodePtr none = MakeNode(Node::Kind::kNone);
    if (Is(".") && Is(".", 1) && Is(".", 2)) {
      at_ += 3;
      return MakeNode(Node::Kind::kString, "...");
    }
    NodePtr first = Is(":") ? none : Expression();
    if (!Take(":")) return first;
    NodePtr last = Is("]") || Is(",") ? none : Expression();
    return CallNode("slice", {first, last});
  }

  void Arguments(Node& call) {
    while (!Take(")")) {
      if (Take(",")) continue;
      if (at_ + 1 < tokens_.size() && tokens_[at_].kind == Token::Kind::kName && Is("=", 1)) {
        const std::string name = Next().text;
        Next();
        call.named[name] = Expression();
      } else {
        call.args.push_back(Expression());
      }
    }
  }

  NodePtr Primary() {
    const Token token = Next();
    if (token.kind == Token::Kind::kNumber) {
      const bool is_integer = token.text.find_first_of(".eE") == std::string::npos;
      return NumberNode(std::strtod(token.text.c_str(), nullptr), is_integer);
    }
    if (token.kind == Token::Kind::kString) return MakeNode(Node::Kind::kString, token.text);
    if (token.text == "(" || token.text == "[")
      return Bracketed(token.text == "(" ? ")" : "]", token.text == "[");
    if (token.kind == Token::Kind::kName) return Name(token.text);
    throw Unsupported("the reference has `" + token.text + "` where a value was expected");
  }

  NodePtr Bracketed(const char* close, bool is_list) {
    auto list = MakeNode(Node::Kind::kList);
    bool has_comma = false;
    while (!Take(close)) {
      if (Take(",")) {
        has_comma = true;
        continue;
      }
      list->args.push_back(Expression());
    }
    if (!is_list && !has_comma && list->args.size() == 1) return list->args[0];
    return list;
  }

  NodePtr Name(const std::string& name) {
    if (name == "None") return MakeNode(Node::Kind::kNone);
    if (name == "True" || name == "False") {
      auto node = MakeNode(Node::Kind::kBool, name);
      node->number = name == "True";
      return node;
    }
    const auto local = scope_.find(name);
    if (local != scope_.end()) return local->second;
    if (name == "torch" || name == "math" || name == "F" || name == "nn") return Module();
    if (Take("(")) {
      auto call = MakeNode(Node::Kind::kCall, name);
      Arguments(*call);
      if (functions_.count(name)) return RunFunction(functions_, name, call->args, call->named, depth_ + 1);
      return call;
    }
    throw Unsupported("the reference uses the name `" + name + "`, which nothing defines");
  }

  NodePtr Module() {
    std::string name;
    while (Take(".")) name = Next().text;
    if (!Is("(")) {
      if (name == "pi") return NumberNode(3.14159265358979323846);
      if (name == "inf") return NumberNode(HUGE_VAL);
      return MakeNode(Node::Kind::kString, name);  // torch.float32 and the like
    }
    Next();
    auto call = MakeNode(Node::Kind::kCall, name);
    Arguments(*call);
    return call;
  }

  const std::vector<Token>& tokens_;
  const Scope& scope_;
  const Functions& functions_;
  int depth_;
  size_t at_ = 0;
};

Function ReadSignature(const std::vector<Token>& tokens) {
  Function function;
  size_t at = 3;  // def NAME (
  while (at < tokens.size() && tokens[at].text != ")") {
    function.parameters.push_back(tokens[at++].text);
    function.defaults.emplace_back();
    bool in_default = false;
    for (int depth = 0; at < tokens.size(); ++at) {
      const std::string& text = tokens[at].text;
      if (depth == 0 && (text == "," || text == ")")) break;
      if (text == "(" || text == "[") ++depth;
      if (text == ")" || text == "]") --depth;
      if (in_default) function.defaults.back().push_back(tokens[at]);
      if (depth == 0 && text == "=") in_default = true;
    }
    if (at < tokens.size() && tokens[at].text == ",") ++at;
  }
  return function;
}

Functions ReadFunctions(const std::string& text) {
  Functions functions;
  Function* current = nullptr;
  for (LogicalLine& line : Lexer(text).Lines()) {
    const std::string& first = line.tokens[0].text;
    if (first == "def" && line.tokens.size() > 3) {
      current = &(functions[line.tokens[1].text] = ReadSignature(line.tokens));
      size_t colon = line.tokens.size();
      while (colon > 0 && line.tokens[colon - 1].text != ":") --colon;
      if (colon < line.tokens.size()) {  // the body on the same line
        current->lines.emplace_back(line.tokens.begin() + static_cast<long>(colon), line.tokens.end());
      }
    } else if (current != nullptr && line.indent > 0) {
      current->lines.push_back(std::move(line.tokens));
    } else if (first != "import" && first != "from") {
      throw Unsupported("the reference has a statement outside a function: `" + first + "`");
    }
  }
  return functions;
}

void BindNames(Scope& scope, const std::vector<std::string>& names, const NodePtr& value) {
  if (names.size() == 1) {
    scope[names[0]] = value;
    return;
  }
  for (size_t i = 0; i < names.size(); ++i) {
    scope[names[i]] = value->kind == Node::Kind::kList && i < value->args.size()
                          ? value->args[i]
                          : CallNode("index", {value, NumberNode(static_cast<double>(i), true)});
  }
}

// Reads `a = ...`, `a, b = ...`, `a: Tensor = ...`, `a += ...`.
void RunAssignment(const std::vector<Token>& line, Scope& scope, const Functions& functions, int depth) {
  static const std::map<std::string, std::string> kInPlace = {
      {"+=", "add"}, {"-=", "sub"}, {"*=", "mul"}, {"/=", "div"}};
  std::vector<std::string> names;
  bool in_annotation = false;
  for (size_t at = 0; at < line.size(); ++at) {
    const std::string& text = line[at].text;
    const bool in_place = kInPlace.count(text) > 0;
    if (text == "=" || in_place) {
      const std::vector<Token> rest(line.begin() + static_cast<long>(at) + 1, line.end());
      NodePtr value = Reader(rest, scope, functions, depth).Tuple();
      if (in_place) value = CallNode(kInPlace.at(text), {scope.at(names.at(0)), value});
      BindNames(scope, names, value);
      return;
    }
    if (text == ":") in_annotation = true;
    if (!in_annotation && line[at].kind == Token::Kind::kName) names.push_back(text);
  }
  throw Unsupported("the reference has a statement that is neither an assignment nor a return");
}

NodePtr RunFunction(const Functions& functions, const std::string& name, std::vector<NodePtr> args,
                    std::map<std::string, NodePtr> named, int depth) {
  if (depth > 16) throw Unsupported("the reference's functions call each other too deeply");
  const Function& function = functions.at(name);
  Scope scope;
  for (size_t i = 0; i < function.parameters.size(); ++i) {
    const std::string& parameter = function.parameters[i];
    if (i < args.size()) {
      scope[parameter] = args[i];
    } else if (named.count(parameter)) {
      scope[parameter] = named[parameter];
    } else if (!function.defaults[i].empty()) {
      scope[parameter] = Reader(function.defaults[i], scope, functions, depth).Expression();
    }
  }
  for (const std::vector<Token>& line : function.lines) {
    const std::string& first = line[0].text;
    if (line[0].kind == Token::Kind::kString || first == "assert" || first == "pass") continue;
    if (first == "if" || first == "for" || first == "while" || first == "else" || first == "elif") {
      throw Unsupported("the reference has control flow (`" + first + "`)");
    }
    if (first == "return") {
      const std::vector<Token> rest(line.begin() + 1, line.end());
      return Reader(rest, scope, functions, depth).Tuple();
    }
    RunAssignment(line, scope, functions, depth);
  }
  throw Unsupported("the reference's `" + name + "` returns nothing");
}

}  // namespace

NodePtr ReadReference(const std::string& torchscript) {
  const Functions functions = ReadFunctions(torchscript);
  const auto forward = functions.find("forward");
  if (forward == functions.end()) throw Unsupported("the reference has no `def forward(...)`");
  std::vector<NodePtr> args;
  for (size_t i = 0; i < forward->second.parameters.size(); ++i) {
    if (!forward->second.defaults[i].empty()) break;
    args.push_back(MakeNode(Node::Kind::kName, std::to_string(i)));
  }
  return RunFunction(functions, "forward", std::move(args), {}, 0);
}

}  // namespace kevin::search
