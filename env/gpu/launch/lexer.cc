#include "env/gpu/launch/lexer.h"

#include <array>
#include <string_view>

namespace kevin::launch {
namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNameStart(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || c == '$' ||
         static_cast<unsigned char>(c) >= 0x80;
}

// Longest first.
constexpr std::array<std::string_view, 26> kPunctuators = {
    "<<<", "<<=", "...", "->*", "<<", "<=", ">=", "==", "!=", "&&", "||", "+=", "-=",
    "*=",  "/=",  "%=",  "&=",  "|=", "^=", "++", "--", "->", "::", "##", ".*", "<%"};

class Lexer {
 public:
  explicit Lexer(const std::string& text) : text_(text) {}

  std::vector<Token> Run() {
    while (true) {
      SkipSpace();
      if (Done()) break;
      Next();
    }
    token_ = Token{};
    token_.begin = token_.end = text_.size();
    token_.first_on_line = true;
    tokens_.push_back(token_);
    return std::move(tokens_);
  }

 private:
  // The length of a line continuation at `at`, else 0.
  size_t Continuation(size_t at) const {
    if (at >= text_.size() || text_[at] != '\\') return 0;
    if (at + 1 < text_.size() && text_[at + 1] == '\n') return 2;
    if (at + 2 < text_.size() && text_[at + 1] == '\r' && text_[at + 2] == '\n') return 3;
    return 0;
  }
  void SkipContinuations() {
    while (const size_t length = Continuation(at_)) at_ += length;
  }
  bool Done() {
    SkipContinuations();
    return at_ >= text_.size();
  }
  char Peek(size_t ahead = 0) const {
    size_t at = at_;
    while (true) {
      while (const size_t length = Continuation(at)) at += length;
      if (at >= text_.size()) return '\0';
      if (ahead-- == 0) return text_[at];
      ++at;
    }
  }
  char Take() {
    SkipContinuations();
    return at_ < text_.size() ? text_[at_++] : '\0';
  }
  void TakeInto(std::string* into) { *into += Take(); }

  void SkipSpace() {
    glued_ = true;
    while (!Done()) {
      const char c = Peek();
      if (c == '\n') line_start_ = true;
      if (c == '/' && Peek(1) == '/') {
        while (!Done() && Peek() != '\n') Take();
      } else if (c == '/' && Peek(1) == '*') {
        if (!SkipComment()) return;
      } else if (c == ' ' || (c >= '\t' && c <= '\r') || c == '\0') {
        Take();
      } else {
        break;
      }
      glued_ = false;
    }
  }

  bool SkipComment() {
    const size_t start = at_;
    Take(), Take();
    while (!Done()) {
      if (Peek() == '*' && Peek(1) == '/') {
        Take(), Take();
        return true;
      }
      Take();
    }
    token_ = Token{TokenKind::kBroken,
                   "this comment is never closed; write */ where it ends",
                   start,
                   text_.size(),
                   line_start_,
                   false,
                   nullptr};
    tokens_.push_back(token_);
    return false;
  }

  void Next() {
    token_ = Token{};
    token_.begin = at_;
    token_.first_on_line = line_start_;
    token_.glued = glued_;
    line_start_ = false;
    const char c = Peek();
    if (IsNameStart(c)) {
      Name();
    } else if (IsDigit(c) || (c == '.' && IsDigit(Peek(1)))) {
      Number();
    } else if (c == '"' || c == '\'') {
      Quoted(c);
    } else {
      Punctuator();
    }
    token_.end = at_;
    tokens_.push_back(token_);
  }

  void Name() {
    token_.kind = TokenKind::kName;
    while (!Done() && (IsNameStart(Peek()) || IsDigit(Peek()))) TakeInto(&token_.text);
    if (Peek() != '"' && Peek() != '\'') return;
    const std::string prefix = token_.text;
    const bool raw = prefix == "R" || prefix == "LR" || prefix == "uR" || prefix == "UR" || prefix == "u8R";
    if (raw && Peek() == '"') {
      RawString();
    } else if (prefix == "L" || prefix == "u" || prefix == "U" || prefix == "u8") {
      Quoted(Peek());
    }
  }

  void Number() {
    token_.kind = TokenKind::kNumber;
    while (!Done()) {
      const char c = Peek();
      if ((c == '+' || c == '-') && std::string_view("eEpP").find(token_.text.back()) != std::string::npos) {
        const bool hex = token_.text.size() > 1 && (token_.text[1] == 'x' || token_.text[1] == 'X');
        if (hex && (token_.text.back() == 'e' || token_.text.back() == 'E')) return;
      } else if (c == '\'' && !token_.text.empty() && (IsDigit(Peek(1)) || IsNameStart(Peek(1)))) {
        Take();
        continue;
      } else if (!IsDigit(c) && !IsNameStart(c) && c != '.') {
        return;
      }
      TakeInto(&token_.text);
    }
  }

  void Quoted(char quote) {
    token_.kind = quote == '"' ? TokenKind::kString : TokenKind::kCharacter;
    TakeInto(&token_.text);
    while (!Done() && Peek() != '\n') {
      const char c = Take();
      token_.text += c;
      if (c == quote) return;
      if (c == '\\' && !Done() && Peek() != '\n') TakeInto(&token_.text);
    }
    token_.kind = TokenKind::kBroken;
    token_.text = std::string("this ") + quote + " is never closed; write " + quote + " on the same line";
  }

  // Line continuations are no such thing in a raw string.
  void RawString() {
    token_.kind = TokenKind::kString;
    SkipContinuations();
    const size_t open = text_.find('(', at_);
    if (open != std::string::npos && open - at_ <= 17) {
      const std::string close = ")" + text_.substr(at_ + 1, open - at_ - 1) + "\"";
      const size_t end = text_.find(close, open);
      if (end != std::string::npos) {
        at_ = end + close.size();
        token_.text = "\"" + text_.substr(open + 1, end - open - 1) + "\"";
        return;
      }
    }
    token_.kind = TokenKind::kBroken;
    token_.text = "this raw string is never closed; write R\"( ... )\"";
    at_ = text_.size();
  }

  void Punctuator() {
    token_.kind = TokenKind::kPunctuator;
    for (const std::string_view punctuator : kPunctuators) {
      bool same = true;
      for (size_t i = 0; i < punctuator.size() && same; ++i) same = Peek(i) == punctuator[i];
      if (!same) continue;
      for (size_t i = 0; i < punctuator.size(); ++i) TakeInto(&token_.text);
      return;
    }
    TakeInto(&token_.text);
    if (std::string_view("{}()[]<>;:,.?!~+-*/%&|^=#").find(token_.text[0]) != std::string::npos) return;
    token_.kind = TokenKind::kBroken;
    token_.text = "this character means nothing in C++; take it out";
  }

  const std::string& text_;
  size_t at_ = 0;
  bool line_start_ = true, glued_ = false;
  Token token_;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Lex(const std::string& text) { return Lexer(text).Run(); }

}  // namespace kevin::launch
