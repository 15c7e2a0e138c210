#include "env/gpu/launch/lexer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "env/gpu/launch/launch_function.h"
#include "env/problem/text.h"

namespace kevin::launch {
namespace {
constexpr size_t kMaxMessageBytes = 800;  // a name may be as long as the text
constexpr size_t kQuotedBytes = 160;      // of a long line, around the place
}  // namespace

SourceText::SourceText(std::string text) : text_(std::move(text)), line_starts_{0} {
  for (size_t i = 0; i < text_.size(); ++i) {
    if (text_[i] == '\n') line_starts_.push_back(i + 1);
  }
}

int SourceText::Line(size_t offset) const {
  const auto after = std::upper_bound(line_starts_.begin(), line_starts_.end(), offset);
  return static_cast<int>(after - line_starts_.begin());
}

int SourceText::Column(size_t offset) const {
  return static_cast<int>(offset - line_starts_[static_cast<size_t>(Line(offset) - 1)]) + 1;
}

std::string SourceText::Quote(size_t offset) const {
  const size_t start = line_starts_[static_cast<size_t>(Line(offset) - 1)];
  const size_t end = std::min(text_.find('\n', start), text_.size());
  const size_t from = offset - start > kQuotedBytes / 2 ? offset - kQuotedBytes / 2 : start;
  const std::string line = text_.substr(from, std::min(end - from, kQuotedBytes));
  std::string caret;
  for (const char c : Printable(line.substr(0, offset - from))) {
    const bool continues = (static_cast<unsigned char>(c) & 0xc0) == 0x80;  // UTF-8
    if (!continues) caret += c == '\t' ? '\t' : ' ';
  }
  return Printable(line) + "\n" + caret + "^";
}

void SourceText::Fail(size_t offset, const std::string& what) const {
  offset = std::min(offset, text_.size());
  LaunchError error;
  error.line = Line(offset);
  error.column = Column(offset);
  error.message = fmt::format("line {}, column {}: {}\n{}", error.line, error.column,
                              Printable(what.substr(0, kMaxMessageBytes)), Quote(offset));
  throw LaunchException(std::move(error));
}

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
                   "this comment is never closed; write */ at its end",
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
    token_.text = "this character is not C++; remove it";
  }

  const std::string& text_;
  size_t at_ = 0;
  bool line_start_ = true, glued_ = false;
  Token token_;
  std::vector<Token> tokens_;
};

}  // namespace

std::vector<Token> Lex(const std::string& text) { return Lexer(text).Run(); }

namespace {

int DigitValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return 99;
}

bool IsHex(const std::string& text) {
  return text.size() > 2 && text[0] == '0' && (text[1] == 'x' || text[1] == 'X');
}

Number NumberMistake(const std::string& text) {
  Number number;
  number.error = fmt::format("`{}` is not a number in C++", text);
  return number;
}

Number ReadFloating(const std::string& text) {
  Number number;
  number.is_floating = true;
  char* end = nullptr;
  number.floating = std::strtod(text.c_str(), &end);
  std::string suffix(end);
  if (suffix != "" && suffix != "f" && suffix != "F" && suffix != "l" && suffix != "L")
    return NumberMistake(text);
  const bool single = suffix == "f" || suffix == "F";
  number.type = single ? "float" : "double";
  if (single) number.floating = static_cast<double>(std::strtof(text.c_str(), nullptr));
  return number;
}

// The first type of C++'s list that holds the value.
std::string IntegerType(Integer value, bool is_unsigned, bool is_long, bool long_long, bool decimal) {
  const bool fits_int = value <= INT32_MAX, fits_unsigned = value <= UINT32_MAX,
             fits_long = value <= INT64_MAX;
  if (!is_long && !is_unsigned && fits_int) return "int";
  if (!is_long && (is_unsigned || !decimal) && fits_unsigned) return "unsigned int";
  const std::string name = long_long ? "long long" : "long";
  return !is_unsigned && fits_long ? name : "unsigned " + name;
}

}  // namespace

Number ReadNumber(const std::string& text) {
  const bool hex = IsHex(text);
  const bool floating = hex ? text.find_first_of("pP.") != std::string::npos
                            : text.find_first_of(".eE") != std::string::npos && !text.starts_with("0b");
  if (floating) return ReadFloating(text);
  size_t at = 0;
  int base = 10;
  if (hex) {
    base = 16, at = 2;
  } else if (text.size() > 2 && text[0] == '0' && (text[1] == 'b' || text[1] == 'B')) {
    base = 2, at = 2;
  } else if (text.size() > 1 && text[0] == '0') {
    base = 8, at = 1;
  }
  Number number;
  for (; at < text.size() && DigitValue(text[at]) < base; ++at) {
    number.integer = number.integer * base + DigitValue(text[at]);
    if (number.integer > UINT64_MAX) {
      number.error = fmt::format("`{}` does not fit into 64 bits", text);
      return number;
    }
  }
  std::string suffix = text.substr(at);
  const auto u = std::find_if(suffix.begin(), suffix.end(), [](char c) { return c == 'u' || c == 'U'; });
  const bool is_unsigned = u != suffix.end();
  if (is_unsigned) suffix.erase(u);
  const bool long_long = suffix == "ll" || suffix == "LL";
  const bool is_long = long_long || suffix == "l" || suffix == "L" || suffix == "z" || suffix == "Z";
  if (!suffix.empty() && !is_long) return NumberMistake(text);
  number.type = IntegerType(number.integer, is_unsigned, is_long, long_long, base == 10);
  return number;
}

Number ReadCharacter(const std::string& text) {
  const size_t open = text.find('\'');
  const std::string inside = text.substr(open + 1, text.size() - open - 2);
  Number number;
  number.type = "char";
  if (inside.size() == 1) {
    number.integer = inside[0];
  } else if (inside.size() == 2 && inside[0] == '\\') {
    const std::string names = "nt0r\\'\"";
    const std::string values("\n\t\0\r\\'\"", 7);
    const size_t found = names.find(inside[1]);
    if (found == std::string::npos) return NumberMistake(text);
    number.integer = values[found];
  } else {
    return NumberMistake(text);
  }
  return number;
}

std::string ToText(Integer value) {
  if (value < 0) return "-" + ToText(-value);
  std::string digits;
  do {
    digits.insert(digits.begin(), static_cast<char>('0' + static_cast<int>(value % 10)));
    value /= 10;
  } while (value > 0);
  return digits;
}

}  // namespace kevin::launch
