#include <fmt/format.h>

#include <cstdint>

#include "env/gpu/launch/lexer.h"

namespace kevin::launch {
namespace {

constexpr int kMaxConditionDepth = 100;

class Condition {
 public:
  Condition(const SourceText& source, const std::vector<Token>& tokens, const Symbols& symbols,
            size_t directive)
      : source_(source), tokens_(tokens), symbols_(symbols), directive_(directive) {}

  int64_t Run() {
    if (tokens_.empty()) source_.Fail(directive_, "this #if has no condition; write #if NAME == 1");
    const int64_t value = Ternary();
    if (at_ < tokens_.size()) Fail("an operator");
    return value;
  }

 private:
  [[noreturn]] void Fail(const char* expected) const {
    if (at_ >= tokens_.size()) {
      source_.Fail(tokens_.empty() ? directive_ : tokens_.back().end,
                   fmt::format("the condition ends where {} is expected", expected));
    }
    if (tokens_[at_].kind == TokenKind::kBroken) source_.Fail(tokens_[at_].begin, tokens_[at_].text);
    source_.Fail(tokens_[at_].begin,
                 fmt::format("`{}` is in a condition where {} is expected", tokens_[at_].text, expected));
  }
  bool Next(const char* text) const { return at_ < tokens_.size() && tokens_[at_].Is(text); }
  bool Accept(const char* text) {
    if (!Next(text)) return false;
    ++at_;
    return true;
  }

  int64_t Ternary() {
    const int64_t condition = Binary(0);
    if (!Accept("?")) return condition;
    Enter();
    const int64_t yes = Ternary();
    if (!Accept(":")) Fail("`:`");
    const int64_t no = Ternary();
    --depth_;
    return condition ? yes : no;
  }

  // The operator at the next token: its text, how tightly it binds, its tokens.
  struct Operator {
    std::string text;
    int level = -1;
    size_t tokens = 1;
  };
  Operator NextOperator() const {
    if (at_ >= tokens_.size() || tokens_[at_].kind != TokenKind::kPunctuator) return {};
    const bool shift = Next(">") && at_ + 1 < tokens_.size() && tokens_[at_ + 1].Is(">");
    const std::string text = shift ? ">>" : tokens_[at_].text;
    static const std::map<std::string, int> kLevels = {
        {"||", 0}, {"&&", 1}, {"|", 2},  {"^", 3},  {"&", 4}, {"==", 5}, {"!=", 5}, {"<", 6}, {"<=", 6},
        {">", 6},  {">=", 6}, {"<<", 7}, {">>", 7}, {"+", 8}, {"-", 8},  {"*", 9},  {"/", 9}, {"%", 9}};
    const auto level = kLevels.find(text);
    if (level == kLevels.end()) return {};
    return {text, level->second, shift ? size_t{2} : size_t{1}};
  }

  int64_t Binary(int lowest) {
    int64_t left = Unary();
    while (true) {
      const Operator op = NextOperator();
      if (op.level < lowest) return left;
      const size_t place = tokens_[at_].begin;
      at_ += op.tokens;
      const bool decided = (op.text == "||" && left) || (op.text == "&&" && !left);
      skipping_ += decided;
      const int64_t right = Binary(op.level + 1);
      skipping_ -= decided;
      left = Apply(op.text, left, right, place);
    }
  }

  int64_t Apply(const std::string& op, int64_t left, int64_t right, size_t place) const {
    const auto l = static_cast<uint64_t>(left), r = static_cast<uint64_t>(right);
    if (op == "||") return left || right;
    if (op == "&&") return left && right;
    if (op == "|") return left | right;
    if (op == "^") return left ^ right;
    if (op == "&") return left & right;
    if (op == "==") return left == right;
    if (op == "!=") return left != right;
    if (op == "<") return left < right;
    if (op == "<=") return left <= right;
    if (op == ">") return left > right;
    if (op == ">=") return left >= right;
    if (op == "<<") return r < 64 ? static_cast<int64_t>(l << r) : 0;
    if (op == ">>") return r < 64 ? left >> right : 0;
    if (op == "+") return static_cast<int64_t>(l + r);
    if (op == "-") return static_cast<int64_t>(l - r);
    if (op == "*") return static_cast<int64_t>(l * r);
    if (right == 0 || (right == -1 && left == INT64_MIN)) {
      if (skipping_) return 0;
      source_.Fail(place, "this condition divides by zero or overflows");
    }
    return op == "/" ? left / right : left % right;
  }

  int64_t Unary() {
    Enter();
    int64_t value = 0;
    if (Accept("!")) {
      value = !Unary();
    } else if (Accept("-")) {
      value = static_cast<int64_t>(0 - static_cast<uint64_t>(Unary()));
    } else if (Accept("+")) {
      value = Unary();
    } else if (Accept("~")) {
      value = ~Unary();
    } else if (Accept("(")) {
      value = Ternary();
      if (!Accept(")")) Fail("`)`");
    } else {
      value = Primary();
    }
    --depth_;
    return value;
  }

  int64_t Primary() {
    if (at_ >= tokens_.size()) Fail("a number or a name");
    const Token& token = tokens_[at_];
    if (token.kind == TokenKind::kNumber || token.kind == TokenKind::kCharacter) {
      const Number number =
          token.kind == TokenKind::kNumber ? ReadNumber(token.text) : ReadCharacter(token.text);
      if (!number.error.empty() || number.is_floating) Fail("an integer");
      ++at_;
      return static_cast<int64_t>(number.integer);
    }
    if (!token.IsName()) Fail("a number or a name");
    ++at_;
    if (token.text == "true") return 1;
    if (token.text.starts_with("__has_") && Next("(")) return SkipParentheses();
    const auto symbol = symbols_.find(token.text);
    return symbol == symbols_.end() ? 0 : symbol->second;
  }

  int64_t SkipParentheses() {
    int depth = 0;
    do {
      depth += Next("(") - Next(")");
      ++at_;
    } while (depth > 0 && at_ < tokens_.size());
    return 0;
  }

  void Enter() {
    if (++depth_ > kMaxConditionDepth)
      source_.Fail(directive_, "this condition is nested too deeply; simplify it");
  }

  const SourceText& source_;
  const std::vector<Token>& tokens_;
  const Symbols& symbols_;
  size_t directive_, at_ = 0;
  int depth_ = 0, skipping_ = 0;
};

}  // namespace

int64_t EvaluateCondition(const SourceText& source, const std::vector<Token>& tokens, const Symbols& symbols,
                          size_t directive) {
  return Condition(source, tokens, symbols, directive).Run();
}

}  // namespace kevin::launch
