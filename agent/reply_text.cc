#include "agent/reply_text.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "agent/text.h"
#include "env/printable.h"

namespace kevin {
namespace {

constexpr std::array<std::pair<const char*, const char*>, 5> kTags = {{{"<think>", "</think>"},
                                                                       {"<thinking>", "</thinking>"},
                                                                       {"<thought>", "</thought>"},
                                                                       {"<reasoning>", "</reasoning>"},
                                                                       {"[think]", "[/think]"}}};

std::string LowerCase(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) {
    return c < 0x80 ? static_cast<char>(std::tolower(c)) : static_cast<char>(c);
  });
  return lower;
}

// Behind a quote it is text about the tag.
size_t FindTag(const std::string& lower, const std::string& tag, size_t from) {
  for (size_t at = lower.find(tag, from); at != std::string::npos; at = lower.find(tag, at + 1)) {
    const bool is_quoted = at > 0 && (lower[at - 1] == '`' || lower[at - 1] == '"' || lower[at - 1] == '\'');
    if (!is_quoted) return at;
  }
  return std::string::npos;
}

void DropReasoning(const std::string& open, const std::string& close, ReplyAnswer* answer) {
  const std::string text = std::move(answer->text), lower = LowerCase(text);
  answer->text.clear();
  for (size_t at = 0; at <= text.size();) {
    const size_t start = FindTag(lower, open, at);
    if (start == std::string::npos) {
      answer->text.append(text, at);
      break;
    }
    answer->text.append(text, at, start - at);
    const size_t end = lower.find(close, start);
    if (end == std::string::npos) {
      if (FindTag(LowerCase(answer->text), close, 0) != std::string::npos) {
        answer->text.append(text, start);
      } else {
        answer->open_tag = open, answer->behind_it = text.substr(start + open.size());
      }
      break;
    }
    at = end + close.size();
  }
  const std::string left = LowerCase(answer->text);
  size_t last = std::string::npos;
  for (size_t at = FindTag(left, close, 0); at != std::string::npos; at = FindTag(left, close, at + 1))
    last = at;
  if (last != std::string::npos) answer->text.erase(0, last + close.size());
}

// Of an escape sequence of terminals: ESC [ ... letter, ESC ] ... BEL, ESC ( B and the like, ESC and a character.
size_t EndOfEscape(std::string_view text, size_t at) {
  constexpr size_t kLongest = 500;
  const std::string_view rest = text.substr(at, kLongest);
  if (rest.size() < 2 || rest[1] == '\n') return at + 1;
  const auto is_final = [](char c) { return c >= 0x40 && c <= 0x7e; };
  if (rest[1] == '[') {
    size_t end = 2;
    while (end < rest.size() && rest[end] >= 0x20 && rest[end] <= 0x3f) ++end;
    return at + end + (end < rest.size() && is_final(rest[end]) ? 1 : 0);
  }
  if (rest[1] == ']') {
    const size_t end = rest.find_first_of("\x07\x1b\n", 2);
    if (end == std::string_view::npos || rest[end] == '\n') return at + 2;
    return at + end + (rest.substr(end, 2) == "\x1b\\" ? 2 : rest[end] == '\x07' ? 1 : 0);
  }
  const bool is_charset = rest.size() > 2 && (rest[1] == '(' || rest[1] == ')') &&
                          (rest[2] == '0' || rest[2] == 'A' || rest[2] == 'B');
  return at + (is_charset ? 3 : is_final(rest[1]) ? 2 : 1);
}

bool IsOtherSpace(uint32_t code) {
  return code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
         code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

// Beyond IsHidden: joiners, and letters without a shape.
bool IsInvisible(uint32_t code) {
  return IsHidden(code) || code == 0x200c || code == 0x200d || code == 0x115f || code == 0x1160 ||
         code == 0x3164 || code == 0xffa0;
}

std::string NameOf(uint32_t code) {
  return code == 0x1b ? "a terminal sequence" : fmt::format("U+{:04X}", code);
}

}  // namespace

std::string WithUnixLines(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    out += text[i] == '\r' ? '\n' : text[i];
  }
  return out;
}

ReplyAnswer WithoutReasoning(std::string text) {
  ReplyAnswer answer{std::move(text), "", ""};
  for (const auto& [open, close] : kTags) DropReasoning(open, close, &answer);
  return answer;
}

CleanText WithoutHidden(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
  CleanText clean;
  clean.text.reserve(text.size());
  size_t line = 0;
  const auto keep = [&](uint32_t code, bool is_space) {
    if (clean.hidden.size() < kMostHidden) clean.hidden.push_back({line, NameOf(code), is_space});
  };
  for (size_t at = text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if ((byte >= 0x20 && byte < 0x7f) || byte == '\n' || byte == '\t') {
      line += byte == '\n' ? 1 : 0;
      clean.text += text[at++];
    } else if (byte == '\f' || byte == '\v') {
      clean.text += ' ', ++at;
    } else if (byte == 0x1b) {
      keep(byte, false);
      at = EndOfEscape(text, at);
    } else {
      const Utf8Character c = Utf8At(text, at);
      const bool is_space = c.is_valid && IsOtherSpace(c.code);
      if (is_space) clean.text += ' ';
      if (is_space || (c.is_valid && IsInvisible(c.code))) {
        keep(c.code, is_space);
      } else {
        clean.text += text.substr(at, c.bytes);
      }
      at += c.bytes;
    }
  }
  return clean;
}

std::string HiddenNote(const std::vector<HiddenCharacter>& hidden, size_t begin, size_t end, size_t first) {
  constexpr size_t kMostHiddenNames = 4, kMostHiddenLines = 6;
  std::map<std::pair<bool, std::string>, std::set<size_t>> found;  // the lines of each
  for (const HiddenCharacter& one : hidden) {
    if (one.line >= begin && one.line < end) found[{one.is_space, one.name}].insert(one.line - begin + first);
  }
  std::vector<std::string> removed, spaces;
  for (const auto& [character, lines] : found) {
    std::string text = character.second;
    if (first > 0) {
      std::vector<std::string> numbers;
      for (const size_t number : lines) {
        if (numbers.size() < kMostHiddenLines) numbers.push_back(std::to_string(number));
      }
      text += fmt::format(" (line{} {}{})", lines.size() == 1 ? "" : "s", fmt::join(numbers, ", "),
                          lines.size() > kMostHiddenLines ? ", ..." : "");
    }
    std::vector<std::string>& list = character.first ? spaces : removed;
    if (list.size() < kMostHiddenNames) list.push_back(std::move(text));
  }
  if (found.empty()) return "";
  std::string note = "The code held characters that nobody sees:";
  if (!removed.empty()) note += fmt::format(" {} left out", fmt::join(removed, ", "));
  if (!spaces.empty())
    note += fmt::format("{} {} replaced by spaces", removed.empty() ? "" : ";", fmt::join(spaces, ", "));
  return note + ". Write code in plain ASCII.";
}

}  // namespace kevin
