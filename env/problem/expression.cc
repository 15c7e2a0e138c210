#include "env/problem/expression.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <charconv>
#include <cmath>
#include <string_view>
#include <vector>

#include "env/error.h"

namespace kevin {
namespace {

constexpr int kMaxDepth = 64;

struct Mistake {
  std::string reason;
};

// Recursive descent: sum := product (("+" | "-") product)*, product := unary (("*" | "/") unary)*,
// unary := "-" unary | "(" sum ")" | integer | name.
class Evaluator {
 public:
  Evaluator(std::string_view text, const Symbols& symbols) : text_(text), symbols_(symbols) {}

  int64_t Run() {
    const int64_t value = Sum();
    Peek();
    if (position_ < text_.size()) FailHere("an operator");
    return value;
  }

 private:
  int64_t Sum() {
    int64_t value = Product();
    while (Peek() == '+' || Peek() == '-') {
      const char op = text_[position_++];
      const int64_t right = Product();
      const bool overflow = op == '+' ? __builtin_add_overflow(value, right, &value)
                                      : __builtin_sub_overflow(value, right, &value);
      if (overflow) FailOverflow();
    }
    return value;
  }

  int64_t Product() {
    int64_t value = Unary();
    while (Peek() == '*' || Peek() == '/') {
      const char op = text_[position_++];
      const int64_t right = Unary();
      if (op == '/') {
        value = FloorDivide(value, right);
      } else if (__builtin_mul_overflow(value, right, &value)) {
        FailOverflow();
      }
    }
    return value;
  }

  int64_t Unary() {
    if (++depth_ > kMaxDepth) throw Mistake{fmt::format("nested deeper than {} levels", kMaxDepth)};
    int64_t value = 0;
    const char next = Peek();
    if (next == '-') {
      ++position_;
      if (__builtin_sub_overflow(int64_t{0}, Unary(), &value)) FailOverflow();
    } else if (next == '(') {
      ++position_;
      value = Sum();
      if (Peek() != ')') FailHere("')'");
      ++position_;
    } else if (IsDigit(next)) {
      value = Integer();
    } else if (IsNameStart(next)) {
      value = Symbol();
    } else {
      FailHere("a number, a symbol or '('");
    }
    --depth_;
    return value;
  }

  int64_t Integer() {
    int64_t value = 0;
    const auto [end, error] = std::from_chars(text_.data() + position_, text_.data() + text_.size(), value);
    if (error != std::errc()) FailOverflow();
    position_ = static_cast<size_t>(end - text_.data());
    return value;
  }

  int64_t Symbol() {
    const size_t begin = position_;
    while (position_ < text_.size() && (IsNameStart(text_[position_]) || IsDigit(text_[position_])))
      ++position_;
    const std::string name(text_.substr(begin, position_ - begin));
    const auto found = symbols_.find(name);
    if (found != symbols_.end()) return found->second;
    std::vector<std::string> known;
    for (const auto& [symbol, value] : symbols_) known.push_back(symbol);
    throw Mistake{fmt::format("unknown symbol '{}' (sizes define {})", name,
                              known.empty() ? "none" : fmt::format("{}", fmt::join(known, ", ")))};
  }

  int64_t FloorDivide(int64_t value, int64_t by) {
    if (by == 0) throw Mistake{fmt::format("'{}' divides by zero", text_)};
    if (value == INT64_MIN && by == -1) FailOverflow();
    const int64_t quotient = value / by;
    return value % by != 0 && (value < 0) != (by < 0) ? quotient - 1 : quotient;
  }

  // The next character after spaces; '\0' at the end.
  char Peek() {
    while (position_ < text_.size() && (text_[position_] == ' ' || text_[position_] == '\t')) ++position_;
    return position_ < text_.size() ? text_[position_] : '\0';
  }

  static bool IsDigit(char c) { return c >= '0' && c <= '9'; }
  static bool IsNameStart(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }

  [[noreturn]] void FailOverflow() const {
    throw Mistake{fmt::format("'{}' overflows a 64-bit integer", text_)};
  }
  [[noreturn]] void FailHere(std::string_view expected) const {
    if (position_ >= text_.size())
      throw Mistake{fmt::format("'{}' ends where {} is expected", text_, expected)};
    throw Mistake{fmt::format("'{}' has '{}' at position {} where {} is expected", text_, text_[position_],
                              position_ + 1, expected)};
  }

  std::string_view text_;
  const Symbols& symbols_;
  size_t position_ = 0;
  int depth_ = 0;
};

}  // namespace

ExpressionResult TryEvaluateExpression(const std::string& expression, const Symbols& symbols) {
  try {
    return {Evaluator(expression, symbols).Run(), ""};
  } catch (const Mistake& mistake) {
    return {0, mistake.reason};
  }
}

ScaleResult TryEvaluateScale(const std::string& text, const Symbols& symbols) {
  constexpr std::string_view kRoot = "1/sqrt(";
  const bool is_root = text.starts_with(kRoot) && text.ends_with(")");
  const ExpressionResult result = TryEvaluateExpression(
      is_root ? text.substr(kRoot.size(), text.size() - kRoot.size() - 1) : text, symbols);
  if (!result.error.empty()) return {0, result.error};
  if (result.value < 1) return {0, fmt::format("'{}' must be positive, not {}", text, result.value)};
  const auto value = static_cast<double>(result.value);
  return {is_root ? 1 / std::sqrt(value) : value, ""};
}

int64_t EvaluateExpression(const std::string& expression, const Symbols& symbols) {
  const ExpressionResult result = TryEvaluateExpression(expression, symbols);
  if (!result.error.empty()) {
    throw Error(ExitCode::kBadRequest, fmt::format("expression '{}': {}", expression, result.error));
  }
  return result.value;
}

}  // namespace kevin
