#pragma once
// The tokens of a TorchScript text, line by line. Private to torchscript.cc.

#include <cctype>
#include <string>
#include <utility>
#include <vector>

#include "policies/search/torchscript.h"

namespace kevin::search {

struct Token {
  enum class Kind { kName, kNumber, kString, kSymbol, kEnd };
  Kind kind = Kind::kEnd;
  std::string text;
};

inline bool IsNameChar(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// The end of the number that begins at `at`.
inline size_t NumberEnd(const std::string& text, size_t at) {
  size_t end = at;
  while (end < text.size()) {
    const bool exponent_sign =
        (text[end] == '+' || text[end] == '-') && end > at && (text[end - 1] == 'e' || text[end - 1] == 'E');
    if (!IsNameChar(text[end]) && text[end] != '.' && !exponent_sign) break;
    ++end;
  }
  return end;
}

// Within brackets a logical line continues over several physical ones.
struct LogicalLine {
  size_t indent = 0;
  std::vector<Token> tokens;
};

// Throws Unsupported for a string without an end.
class Lexer {
 public:
  explicit Lexer(const std::string& text) : text_(text) {}

  std::vector<LogicalLine> Lines() {
    while (at_ < text_.size()) Step();
    Finish();
    return std::move(lines_);
  }

 private:
  void Step() {
    const char c = text_[at_];
    if (c == '#') {
      while (at_ < text_.size() && text_[at_] != '\n') ++at_;
    } else if (c == '\n') {
      ++at_;
      if (depth_ == 0) Finish();
    } else if (c == '\\' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') {
      at_ += 2;
    } else if (std::isspace(static_cast<unsigned char>(c))) {
      if (line_.tokens.empty()) ++line_.indent;
      ++at_;
    } else {
      Add(c);
    }
  }

  void Add(char c) {
    if (c == '"' || c == '\'') return AddString(c);
    if (std::isdigit(static_cast<unsigned char>(c)) ||
        (c == '.' && at_ + 1 < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_ + 1])))) {
      return AddSpan(Token::Kind::kNumber, NumberEnd(text_, at_));
    }
    if (IsNameChar(c)) {
      size_t end = at_;
      while (end < text_.size() && IsNameChar(text_[end])) ++end;
      return AddSpan(Token::Kind::kName, end);
    }
    if (c == '(' || c == '[' || c == '{') ++depth_;
    if ((c == ')' || c == ']' || c == '}') && depth_ > 0) --depth_;
    for (const char* two : {"**", "//", "->", "==", "!=", ">=", "<=", "+=", "-=", "*=", "/="}) {
      if (text_.compare(at_, 2, two) == 0) return AddSpan(Token::Kind::kSymbol, at_ + 2);
    }
    AddSpan(Token::Kind::kSymbol, at_ + 1);
  }

  void AddString(char quote) {
    const std::string triple(3, quote);
    const bool is_long = text_.compare(at_, 3, triple) == 0;
    const size_t open = is_long ? 3 : 1;
    const size_t close = is_long ? text_.find(triple, at_ + 3) : text_.find(quote, at_ + 1);
    if (close == std::string::npos) throw Unsupported("the reference has a string without an end");
    line_.tokens.push_back({Token::Kind::kString, text_.substr(at_ + open, close - at_ - open)});
    at_ = close + open;
  }

  void AddSpan(Token::Kind kind, size_t end) {
    line_.tokens.push_back({kind, text_.substr(at_, end - at_)});
    at_ = end;
  }

  void Finish() {
    if (!line_.tokens.empty()) lines_.push_back(std::move(line_));
    line_ = {};
  }

  const std::string& text_;
  size_t at_ = 0, depth_ = 0;
  LogicalLine line_;
  std::vector<LogicalLine> lines_;
};

}  // namespace kevin::search
