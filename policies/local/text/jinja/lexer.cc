#include <fmt/format.h>

#include <algorithm>
#include <charconv>

#include "policies/local/text/jinja/parser.h"
#include "policies/local/text/utf8.h"

namespace kevin::local::jinja {

namespace {

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsNamePart(char c) {
  return IsDigit(c) || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' ||
         static_cast<uint8_t>(c) >= 0x80;
}

// \x41, \u0041, \U00000041
void AppendHex(std::string_view source, size_t& position, int digits, std::string& text) {
  uint32_t code = 0;
  const char* begin = source.data() + position;
  const char* end = source.data() + std::min(source.size(), position + digits);
  const auto [stop, error] = std::from_chars(begin, end, code, 16);
  if (error != std::errc() || stop - begin != digits)
    throw TemplateError("a string has a broken \\x, \\u or \\U");
  position += digits;
  AppendUtf8(text, code);
}

void AppendOctal(std::string_view source, size_t& position, std::string& text) {
  uint32_t code = 0;
  for (int i = 0; i < 3 && position < source.size() && source[position] >= '0' && source[position] <= '7';
       ++i) {
    code = code * 8 + static_cast<uint32_t>(source[position++] - '0');
  }
  AppendUtf8(text, code);
}

// After a backslash. Unknown escapes are kept, as in Python.
void AppendEscape(std::string_view source, size_t& position, std::string& text) {
  constexpr std::string_view kLetters = "\\'\"abfnrtv", kMeanings = "\\'\"\a\b\f\n\r\t\v";
  const char c = source[position];
  if (c >= '0' && c <= '7') return AppendOctal(source, position, text);
  ++position;
  if (c == '\n') return;
  if (c == 'x') return AppendHex(source, position, 2, text);
  if (c == 'u') return AppendHex(source, position, 4, text);
  if (c == 'U') return AppendHex(source, position, 8, text);
  if (const size_t known = kLetters.find(c); known != std::string_view::npos) {
    text += kMeanings[known];
    return;
  }
  text += '\\';
  text += c;
}

// The Scan functions read a literal at `position` of an expression and move past it. They throw TemplateError
// without a line. ScanName: empty text where no name begins.
Token ScanString(std::string_view source, size_t& position) {
  Token token;
  token.kind = TokenKind::kString;
  const char quote = source[position++];
  while (position < source.size() && source[position] != quote) {
    const char c = source[position++];
    if (c != '\\') {
      token.text += c;
    } else if (position < source.size()) {
      AppendEscape(source, position, token.text);
    }
  }
  if (position >= source.size()) throw TemplateError("a string has no end");
  ++position;
  return token;
}

Token ScanNumber(std::string_view source, size_t& position) {
  std::string digits;
  const auto take_digits = [&] {
    while (position < source.size() &&
           (IsDigit(source[position]) ||
            (source[position] == '_' && position + 1 < source.size() && IsDigit(source[position + 1])))) {
      if (source[position] != '_') digits += source[position];
      ++position;
    }
  };
  const auto at = [&](size_t offset) {
    return position + offset < source.size() ? source[position + offset] : '\0';
  };
  Token token;
  take_digits();
  bool fraction = false;
  if (at(0) == '.' && IsDigit(at(1))) {
    fraction = true;
    digits += source[position++];
    take_digits();
  }
  const bool sign = at(1) == '+' || at(1) == '-';
  if ((at(0) == 'e' || at(0) == 'E') && IsDigit(at(sign ? 2 : 1))) {
    fraction = true;
    digits += source[position++];
    if (sign) digits += source[position++];
    take_digits();
  }
  token.kind = fraction ? TokenKind::kFloat : TokenKind::kInteger;
  const char* end = digits.data() + digits.size();
  const auto result = fraction ? std::from_chars(digits.data(), end, token.number)
                               : std::from_chars(digits.data(), end, token.integer);
  if (result.ec != std::errc()) throw TemplateError("the number " + digits + " is too large");
  if (position < source.size() && IsNamePart(source[position]))
    throw TemplateError("a number runs into a name");
  token.text = digits;
  return token;
}

Token ScanName(std::string_view source, size_t& position) {
  Token token;
  token.kind = TokenKind::kName;
  const size_t begin = position;
  while (position < source.size() && IsNamePart(source[position])) ++position;
  token.text = source.substr(begin, position - begin);
  return token;
}

bool StartsWith(std::string_view text, size_t position, std::string_view prefix) {
  return text.substr(std::min(position, text.size())).starts_with(prefix);
}

size_t SkipSpaces(std::string_view text, size_t position) {
  while (position < text.size()) {
    const Utf8Character character = DecodeCharacter(text, position);
    if (!IsPythonSpace(character.code)) break;
    position += character.length;
  }
  return position;
}

std::string_view WithoutTrailingSpaces(std::string_view text) {
  while (!text.empty()) {
    size_t last = text.size() - 1;
    while (last > 0 && (static_cast<uint8_t>(text[last]) & 0xC0) == 0x80) --last;
    if (!IsPythonSpace(DecodeCharacter(text, last).code)) break;
    text = text.substr(0, last);
  }
  return text;
}

// Converts line ends to line feeds and drops one at the very end.
std::string Normalised(std::string_view source) {
  std::string text;
  text.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] == '\r') {
      text += '\n';
      if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
    } else {
      text += source[i];
    }
  }
  if (text.ends_with('\n')) text.pop_back();
  return text;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  std::vector<Token> Run() {
    try {
      while (at_ < source_.size()) TakeText();
      Add(TokenKind::kEnd, "");
    } catch (const TemplateError& error) {
      if (error.line() != 0) throw;
      throw TemplateError(error.what(), Line(at_));
    }
    return std::move(tokens_);
  }

 private:
  int Line(size_t position) {
    position = std::min(position, source_.size());
    if (position < counted_to_) {
      return 1 + static_cast<int>(std::count(source_.begin(),
                                             source_.begin() + static_cast<std::ptrdiff_t>(position), '\n'));
    }
    line_ += static_cast<int>(std::count(source_.begin() + static_cast<std::ptrdiff_t>(counted_to_),
                                         source_.begin() + static_cast<std::ptrdiff_t>(position), '\n'));
    counted_to_ = position;
    return line_;
  }

  void Add(TokenKind kind, std::string_view text) {
    Token token;
    token.kind = kind;
    token.line = Line(at_);
    token.text = text;
    tokens_.push_back(std::move(token));
  }

  void AddData(std::string_view text) {
    if (!text.empty()) Add(TokenKind::kData, text);
  }

  // The text before the tag at `begin`, trimmed as its `sign` and kind require.
  std::string_view TextBefore(size_t begin, char sign, bool printed) const {
    const std::string_view text = std::string_view(source_).substr(at_, begin - at_);
    if (sign == '-') return WithoutTrailingSpaces(text);
    if (sign == '+' || printed) return text;
    const size_t feed = text.rfind('\n');
    const size_t line = feed == std::string_view::npos ? 0 : feed + 1;
    const bool at_line_start = line > 0 || at_ == 0 || source_[at_ - 1] == '\n';
    return at_line_start && SkipSpaces(text, line) == text.size() ? text.substr(0, line) : text;
  }

  // Text up to and including the next {{, {% or {#.
  void TakeText() {
    size_t begin = at_;
    while ((begin = source_.find('{', begin)) != std::string::npos) {
      const char next = begin + 1 < source_.size() ? source_[begin + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') break;
      ++begin;
    }
    if (begin == std::string::npos) {
      AddData(std::string_view(source_).substr(at_));
      at_ = source_.size();
      return;
    }
    const char kind = source_[begin + 1];
    size_t inside = begin + 2;
    char sign = inside < source_.size() ? source_[inside] : '\0';
    if (sign == '-' || sign == '+') {
      ++inside;
    } else {
      sign = '\0';
    }
    AddData(TextBefore(begin, sign, kind == '{'));
    at_ = begin;
    if (kind == '#') return TakeComment(inside);
    if (kind == '%' && TakeRaw(inside)) return;
    Add(kind == '{' ? TokenKind::kVariableBegin : TokenKind::kBlockBegin, "");
    at_ = inside;
    TakeInside(kind == '{');
  }

  // Past the end mark "X}" at `position`, which may follow a sign; npos: not found.
  size_t PastEnd(size_t position, char mark, bool trims) const {
    const char end[] = {mark, '}', '\0'};
    if (StartsWith(source_, position, std::string("-") + end)) return SkipSpaces(source_, position + 3);
    if (mark != '}' && StartsWith(source_, position, std::string("+") + end)) return position + 3;
    if (!StartsWith(source_, position, end)) return std::string::npos;
    position += 2;
    return trims && StartsWith(source_, position, "\n") ? position + 1 : position;
  }

  void TakeComment(size_t inside) {
    for (; inside < source_.size(); ++inside) {
      if (const size_t end = PastEnd(inside, '#', true); end != std::string::npos) {
        at_ = end;
        return;
      }
    }
    throw TemplateError("a comment has no end");
  }

  // {% raw %} ... {% endraw %}; false: no raw block begins here.
  bool TakeRaw(size_t inside) {
    size_t position = SkipSpaces(source_, inside);
    if (!StartsWith(source_, position, "raw")) return false;
    position = SkipSpaces(source_, position + 3);
    const size_t body = PastEnd(position, '%', false);
    if (body == std::string::npos || source_[position] == '+') return false;
    at_ = body;
    for (size_t begin = body; (begin = source_.find("{%", begin)) != std::string::npos; ++begin) {
      const char sign = begin + 2 < source_.size() ? source_[begin + 2] : '\0';
      const size_t name = SkipSpaces(source_, begin + (sign == '-' || sign == '+' ? 3 : 2));
      if (!StartsWith(source_, name, "endraw")) continue;
      const size_t end = PastEnd(SkipSpaces(source_, name + 6), '%', true);
      if (end == std::string::npos) continue;
      AddData(TextBefore(begin, sign, false));
      at_ = end;
      return true;
    }
    throw TemplateError("{% raw %} has no {% endraw %}");
  }

  // The tokens of an expression or statement, and its end.
  void TakeInside(bool variable) {
    std::string open;  // brackets
    const char mark = variable ? '}' : '%';
    const int line = Line(at_);
    while (true) {
      at_ = SkipSpaces(source_, at_);
      if (at_ == source_.size()) {
        throw TemplateError(variable ? "{{ has no }}" : "{% has no %}", line);
      }
      if (open.empty()) {
        if (const size_t end = PastEnd(at_, mark, !variable); end != std::string::npos) {
          Add(variable ? TokenKind::kVariableEnd : TokenKind::kBlockEnd, "");
          at_ = end;
          return;
        }
      }
      TakeToken(open);
    }
  }

  void TakeToken(std::string& open) {
    const char c = source_[at_];
    const int line = Line(at_);
    Token token;
    if (c == '\'' || c == '"') {
      token = ScanString(source_, at_);
    } else if (c >= '0' && c <= '9') {
      token = ScanNumber(source_, at_);
    } else if (token = ScanName(source_, at_); token.text.empty()) {
      return TakeOperator(open);
    }
    token.line = line;
    tokens_.push_back(std::move(token));
  }

  void TakeOperator(std::string& open) {
    static constexpr std::string_view kOperators[] = {"**", "//", "==", "!=", "<=", ">=", "+", "-", "*",
                                                      "/",  "%",  "~",  "<",  ">",  "=",  "(", ")", "[",
                                                      "]",  "{",  "}",  ",",  ".",  ":",  "|", ";"};
    for (const std::string_view text : kOperators) {
      if (!StartsWith(source_, at_, text)) continue;
      const char c = text[0];
      if (c == '(' || c == '[' || c == '{') open += c == '(' ? ')' : c == '[' ? ']' : '}';
      if (c == ')' || c == ']' || c == '}') {
        if (open.empty() || open.back() != c) throw TemplateError(fmt::format("unexpected '{}'", c));
        open.pop_back();
      }
      Add(TokenKind::kOperator, text);
      at_ += text.size();
      return;
    }
    throw TemplateError(fmt::format("unexpected character '{}'", source_[at_]));
  }

  const std::string source_;
  size_t at_ = 0;
  std::vector<Token> tokens_;
  int line_ = 1;
  size_t counted_to_ = 0;
};

}  // namespace

std::vector<Token> Lex(std::string_view source, const Limits& limits) {
  if (source.size() > limits.source_bytes) {
    throw TemplateError(
        fmt::format("the template has {} bytes; {} are the most", source.size(), limits.source_bytes), 1);
  }
  if (!IsUtf8(source)) throw TemplateError("the template is no UTF-8", 1);
  return Lexer(Normalised(source)).Run();
}

}  // namespace kevin::local::jinja
