#include "policies/local/text/jinja/text_methods.h"

#include <fmt/format.h>

#include <algorithm>

#include "policies/local/text/jinja/operators.h"
#include "policies/local/text/jinja/python_text.h"
#include "policies/local/text/utf8.h"

namespace kevin::local::jinja {
namespace {

size_t LastOffset(std::string_view text) {
  size_t at = text.size() - 1;
  while (at > 0 && (static_cast<uint8_t>(text[at]) & 0xC0) == 0x80) --at;
  return at;
}

bool IsCased(char32_t code) {
  const int category = UnicodeCategory(code);
  return category >= 1 && category <= 3;
}

std::vector<Value> SplitBySpaces(Run& run, std::string_view text, int64_t most, bool from_right) {
  std::vector<Value> parts;
  std::string_view rest = Stripped(text, from_right ? Side::kRight : Side::kLeft);
  while (!rest.empty()) {
    run.Step();
    if (most >= 0 && static_cast<int64_t>(parts.size()) == most) {
      parts.emplace_back(rest);
      break;
    }
    size_t at = from_right ? rest.size() : 0;
    while (from_right ? at > 0 : at < rest.size()) {
      const size_t here = from_right ? LastOffset(rest.substr(0, at)) : at;
      const Utf8Character character = DecodeCharacter(rest, here);
      if (IsPythonSpace(character.code)) break;
      at = from_right ? here : at + character.length;
    }
    parts.emplace_back(from_right ? rest.substr(at) : rest.substr(0, at));
    rest = from_right ? Stripped(rest.substr(0, at), Side::kRight) : Stripped(rest.substr(at), Side::kLeft);
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

bool IsLineEnd(char32_t c) {
  return (c >= 0x0A && c <= 0x0D) || (c >= 0x1C && c <= 0x1E) || c == 0x85 || c == 0x2028 || c == 0x2029;
}

}  // namespace

std::string_view Stripped(std::string_view text, Side side, const std::string* characters) {
  const auto goes = [&](size_t at) {
    const Utf8Character character = DecodeCharacter(text, at);
    if (characters == nullptr) return IsPythonSpace(character.code);
    return characters->find(text.substr(at, character.length)) != std::string::npos;
  };
  while (side != Side::kRight && !text.empty() && goes(0))
    text.remove_prefix(DecodeCharacter(text, 0).length);
  while (side != Side::kLeft && !text.empty() && goes(LastOffset(text)))
    text = text.substr(0, LastOffset(text));
  return text;
}

std::vector<Value> SplitText(Run& run, const std::string& text, const std::string* separator, int64_t most,
                             bool from_right) {
  run.Step(text.size() / 8);
  if (separator == nullptr) return SplitBySpaces(run, text, most, from_right);
  if (separator->empty()) Fail("empty separator");
  std::vector<Value> parts;
  size_t begin = 0, end = text.size();
  while (most < 0 || static_cast<int64_t>(parts.size()) < most) {
    run.Step();
    if (!from_right) {
      const size_t found = text.find(*separator, begin);
      if (found == std::string::npos) break;
      parts.emplace_back(text.substr(begin, found - begin));
      begin = found + separator->size();
    } else {
      if (end < separator->size()) break;
      const size_t found = text.rfind(*separator, end - separator->size());
      if (found == std::string::npos) break;
      parts.emplace_back(text.substr(found + separator->size(), end - found - separator->size()));
      end = found;
    }
  }
  parts.emplace_back(text.substr(begin, end - begin));
  if (from_right) std::reverse(parts.begin(), parts.end());
  return parts;
}

std::vector<Value> SplitLines(Run& run, const std::string& text, bool keep_ends) {
  run.Step(text.size() / 8);
  std::vector<Value> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const Utf8Character character = DecodeCharacter(text, at);
    size_t next = at + character.length;
    if (IsLineEnd(character.code)) {
      if (character.code == '\r' && next < text.size() && text[next] == '\n') ++next;
      run.Step();
      lines.emplace_back(text.substr(begin, (keep_ends ? next : at) - begin));
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) lines.emplace_back(text.substr(begin));
  return lines;
}

std::string Replaced(Run& run, const std::string& text, const std::string& from, const std::string& to,
                     int64_t most) {
  run.Reserve(text.size());
  std::string result;
  size_t at = 0;
  for (; most != 0; --most) {
    size_t found = at;
    if (!from.empty()) found = text.find(from, at);
    if (found == std::string::npos) break;
    run.Reserve(result.size() + (found - at) + to.size() > run.limits().text_bytes
                    ? run.limits().text_bytes + 1
                    : to.size());
    run.Step();
    result.append(text, at, found - at);
    result += to;
    at = found + from.size();
    if (from.empty()) {  // between all characters, too
      if (at == text.size()) return result;
      const size_t length = DecodeCharacter(text, at).length;
      result.append(text, at, length);
      at += length;
    }
  }
  return result.append(text, at);
}

std::string Capitalized(std::string_view text) {
  const size_t first = text.empty() ? 0 : DecodeCharacter(text, 0).length;
  return ToUpper(text.substr(0, first)) + ToLower(text.substr(first));
}

std::string Titled(std::string_view text) {
  std::string result;
  bool in_word = false;
  for (size_t at = 0; at < text.size();) {
    const Utf8Character character = DecodeCharacter(text, at);
    const std::string_view one = text.substr(at, character.length);
    const bool cased = IsCased(character.code);
    result += !cased ? std::string(one) : in_word ? ToLower(one) : ToUpper(one);
    in_word = cased;
    at += character.length;
  }
  return result;
}

std::string Justified(Run& run, const std::string& text, int64_t width, Side where, const std::string& fill) {
  if (CountCharacters(fill) != 1) Fail("the fill character must be exactly one character long");
  const auto length = static_cast<int64_t>(CountCharacters(text));
  if (width <= length) return text;
  const auto missing = static_cast<size_t>(width - length);
  run.Reserve(missing > run.limits().text_bytes ? missing : text.size() + missing * fill.size());
  // As CPython centres: of an odd rest the larger half is on the left where the width is odd.
  const size_t left = where == Side::kLeft    ? 0
                      : where == Side::kRight ? missing
                                              : missing / 2 + (missing & static_cast<size_t>(width) & 1);
  std::string result;
  for (size_t i = 0; i < left; ++i) result += fill;
  result += text;
  for (size_t i = left; i < missing; ++i) result += fill;
  return result;
}

std::string Joined(Run& run, const std::vector<Value>& items, const std::string& separator, bool convert) {
  std::string result;
  for (size_t i = 0; i < items.size(); ++i) {
    if (!convert && !items[i].IsText()) {
      Fail(fmt::format("sequence item {}: expected str instance, {} found", i, items[i].TypeName()));
    }
    const std::string text = Str(run, items[i]);
    const size_t size = result.size() + text.size() + separator.size();
    run.Reserve(size > run.limits().text_bytes ? size : text.size() + separator.size());
    if (i > 0) result += separator;
    result += text;
  }
  return result;
}

}  // namespace kevin::local::jinja
