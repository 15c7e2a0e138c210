#pragma once
// The one filter for text that the program did not write itself, on its way to a terminal: problem texts and
// names, replies, reasoning, sources, logs of compilers and candidates, error messages of HTTP APIs, texts of
// a database. Pure functions; any thread. Every folder may include this header: standard library only, no .cc.
//
// Hidden characters are shown as escapes: controls (C0, DEL, C1: what moves the cursor, renames or reprograms
// a terminal), marks that change the direction of text, line separators, invisible format characters and tags.
// A byte that is no UTF-8 is shown too. "\x1b" stands for ESC, "\u202e" for a right-to-left override, "\xff"
// for a bad byte. A text that went through the filter goes through it unchanged.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <string>
#include <string_view>

namespace kevin {

// The character at `at`: its code point and its bytes; bytes 1 and is_valid false where no UTF-8 begins.
struct Utf8Character {
  uint32_t code = 0;
  size_t bytes = 1;
  bool is_valid = false;
};

inline Utf8Character Utf8At(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char first = byte(at);
  if (first < 0x80) return {first, 1, true};
  const size_t bytes = first >= 0xc2 && first <= 0xdf   ? 2
                       : first >= 0xe0 && first <= 0xef ? 3
                       : first >= 0xf0 && first <= 0xf4 ? 4
                                                        : 0;
  if (bytes == 0 || at + bytes > text.size()) return {first, 1, false};
  uint32_t code = first & (0x7fU >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(at + i) & 0xc0) != 0x80) return {first, 1, false};
    code = (code << 6) | (byte(at + i) & 0x3fU);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};  // longer forms of lower codes are no UTF-8
  if (code < kLeast[bytes] || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff)) return {first, 1, false};
  return {code, bytes, true};
}

// Characters that act on a terminal or on the order of a text, or that nobody sees. Line ends and tabs too.
inline bool IsHidden(uint32_t code) {
  struct Range {
    uint32_t first, last;
  };
  constexpr Range kRanges[] = {{0, 0x1f},         {0x7f, 0x9f},     {0xad, 0xad},     {0x61c, 0x61c},
                               {0x180e, 0x180e},  {0x200b, 0x200b}, {0x200e, 0x200f}, {0x2028, 0x202e},
                               {0x2060, 0x206f},  {0xfeff, 0xfeff}, {0xfff9, 0xfffb}, {0x1d173, 0x1d17a},
                               {0xe0000, 0xe007f}};
  if (code < 0x7f) return code < 0x20;
  return std::any_of(std::begin(kRanges), std::end(kRanges),
                     [code](const Range& range) { return code >= range.first && code <= range.last; });
}

// "\x1b", "\u202e", "\U000e0041".
inline std::string CharacterEscape(uint32_t code) {
  constexpr const char* kDigits = "0123456789abcdef";
  const bool is_byte = code < 0x80, is_short = code < 0x10000;
  std::string escape = is_byte ? "\\x" : is_short ? "\\u" : "\\U";
  for (int digit = is_byte ? 1 : is_short ? 3 : 7; digit >= 0; --digit)
    escape += kDigits[(code >> (4 * digit)) & 0xf];
  return escape;
}

// Of text in lines: line ends and tabs stay, a carriage return before a line end is dropped.
inline std::string Printable(std::string_view text) {
  std::string printable;
  printable.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const auto byte = static_cast<unsigned char>(text[at]);
    if ((byte >= 0x20 && byte < 0x7f) || byte == '\n' || byte == '\t') {
      printable += text[at++];
      continue;
    }
    if (byte == '\r' && at + 1 < text.size() && text[at + 1] == '\n') {
      ++at;
      continue;
    }
    const Utf8Character c = Utf8At(text, at);
    if (!c.is_valid) {
      printable += "\\x";
      for (const int shift : {4, 0}) printable += "0123456789abcdef"[(byte >> shift) & 0xf];
    } else if (IsHidden(c.code)) {
      printable += CharacterEscape(c.code);
    } else {
      printable += text.substr(at, c.bytes);
    }
    at += c.bytes;
  }
  return printable;
}

// Of text that has one line to itself (a name, a cell of a table, the live line): line ends and tabs are
// spaces.
inline std::string PrintableLine(std::string_view text) {
  std::string line = Printable(text);
  std::replace_if(
      line.begin(), line.end(), [](char c) { return c == '\n' || c == '\t'; }, ' ');
  return line;
}

// Of JSON text in valid UTF-8: the same value, hidden characters of its strings as \u escapes.
inline std::string PrintableJson(std::string_view json) {
  std::string printable;
  printable.reserve(json.size());
  const auto add = [&](uint32_t unit) {
    printable += "\\u";
    for (const int shift : {12, 8, 4, 0}) printable += "0123456789abcdef"[(unit >> shift) & 0xf];
  };
  for (size_t at = 0; at < json.size();) {
    const Utf8Character c = Utf8At(json, at);
    if (c.code < 0x7f || !IsHidden(c.code)) {
      printable += json.substr(at, c.bytes);
    } else if (c.code < 0x10000) {
      add(c.code);
    } else {
      add(0xd7c0 + (c.code >> 10));
      add(0xdc00 + (c.code & 0x3ff));
    }
    at += c.bytes;
  }
  return printable;
}

}  // namespace kevin
