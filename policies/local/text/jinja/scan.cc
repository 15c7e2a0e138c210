#include "policies/local/text/jinja/scan.h"

#include <algorithm>
#include <charconv>

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

// After a backslash. What Python does not know stays as it is.
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

}  // namespace

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

}  // namespace kevin::local::jinja
