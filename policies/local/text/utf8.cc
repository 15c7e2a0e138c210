#include "policies/local/text/utf8.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>

namespace kevin::local {

namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

struct Lead {
  int length;         // of the whole character; 0: no lead byte
  uint8_t low, high;  // of the second byte
};

Lead LeadOf(uint8_t byte) {
  if (byte < 0xC2) return {0, 0, 0};
  if (byte < 0xE0) return {2, 0x80, 0xBF};
  if (byte == 0xE0) return {3, 0xA0, 0xBF};
  if (byte == 0xED) return {3, 0x80, 0x9F};
  if (byte < 0xF0) return {3, 0x80, 0xBF};
  if (byte == 0xF0) return {4, 0x90, 0xBF};
  if (byte < 0xF4) return {4, 0x80, 0xBF};
  if (byte == 0xF4) return {4, 0x80, 0x8F};
  return {0, 0, 0};
}

template <typename Function>
std::string MapCharacters(std::string_view text, Function function) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Character character = DecodeCharacter(text, at);
    AppendUtf8(result, function(character.code));
    at += character.length;
  }
  return result;
}

}  // namespace

Utf8Character DecodeCharacter(std::string_view text, size_t position) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[position + i]); };
  if (byte(0) < 0x80) return {byte(0), 1, true, false};
  const Lead lead = LeadOf(byte(0));
  if (lead.length == 0) return {};
  char32_t code = byte(0) & (0x7F >> lead.length);
  for (int i = 1; i < lead.length; ++i) {
    if (position + i == text.size()) return {0xFFFD, static_cast<uint8_t>(i), false, true};
    const uint8_t next = byte(i);
    const uint8_t low = i == 1 ? lead.low : 0x80, high = i == 1 ? lead.high : 0xBF;
    if (next < low || next > high) return {0xFFFD, static_cast<uint8_t>(i), false, false};
    code = code << 6 | (next & 0x3F);
  }
  return {code, static_cast<uint8_t>(lead.length), true, false};
}

void AppendUtf8(std::string& text, char32_t code) {
  const auto add = [&](char32_t byte) { text += static_cast<char>(byte); };
  if (code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
    text += kReplacement;
  } else if (code < 0x80) {
    add(code);
  } else if (code < 0x800) {
    add(0xC0 | code >> 6), add(0x80 | (code & 0x3F));
  } else if (code < 0x10000) {
    add(0xE0 | code >> 12), add(0x80 | (code >> 6 & 0x3F)), add(0x80 | (code & 0x3F));
  } else {
    add(0xF0 | code >> 18), add(0x80 | (code >> 12 & 0x3F)), add(0x80 | (code >> 6 & 0x3F));
    add(0x80 | (code & 0x3F));
  }
}

bool IsAscii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return static_cast<uint8_t>(c) < 0x80; });
}

bool IsUtf8(std::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Character character = DecodeCharacter(text, at);
    if (!character.valid) return false;
    at += character.length;
  }
  return true;
}

std::string LossyUtf8(std::string_view text) {
  std::string pending(text);
  std::string result = TakeWholeCharacters(pending);
  if (!pending.empty()) result += kReplacement;
  return result;
}

std::string TakeWholeCharacters(std::string& pending) {
  std::string result;
  size_t at = 0;
  while (at < pending.size()) {
    const Utf8Character character = DecodeCharacter(pending, at);
    if (character.incomplete) break;
    if (character.valid) {
      result.append(pending, at, character.length);
    } else {
      result += kReplacement;
    }
    at += character.length;
  }
  pending.erase(0, at);
  return result;
}

size_t CountCharacters(std::string_view valid_text) {
  return static_cast<size_t>(std::count_if(valid_text.begin(), valid_text.end(),
                                           [](char c) { return (static_cast<uint8_t>(c) & 0xC0) != 0x80; }));
}

size_t CharacterOffset(std::string_view valid_text, size_t index) {
  size_t at = 0;
  for (; index > 0 && at < valid_text.size(); --index) at += DecodeCharacter(valid_text, at).length;
  return at;
}

std::string ToNfc(std::string_view valid_text) {
  // Nothing below U+0300 combines with anything, and U+0300 begins with the byte 0xCC.
  const bool plain = std::all_of(valid_text.begin(), valid_text.end(),
                                 [](char c) { return static_cast<uint8_t>(c) < 0xCC; });
  if (plain) return std::string(valid_text);
  utf8proc_uint8_t* mapped = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(valid_text.data()),
                   static_cast<utf8proc_ssize_t>(valid_text.size()), &mapped,
                   static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  if (size < 0) throw std::bad_alloc();  // of valid text nothing else can fail
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(mapped, &std::free);
  return std::string(reinterpret_cast<const char*>(mapped), static_cast<size_t>(size));
}

bool IsUnicodeSpace(char32_t code) {
  return (code >= 0x09 && code <= 0x0D) || code == 0x20 || code == 0x85 || code == 0xA0 || code == 0x1680 ||
         (code >= 0x2000 && code <= 0x200A) || code == 0x2028 || code == 0x2029 || code == 0x202F ||
         code == 0x205F || code == 0x3000;
}

bool IsPythonSpace(char32_t code) { return IsUnicodeSpace(code) || (code >= 0x1C && code <= 0x1F); }

std::string ToLower(std::string_view valid_text) {
  return MapCharacters(valid_text, [](char32_t c) {
    return static_cast<char32_t>(utf8proc_tolower(static_cast<int32_t>(c)));
  });
}

std::string ToUpper(std::string_view valid_text) {
  return MapCharacters(valid_text, [](char32_t c) {
    return static_cast<char32_t>(utf8proc_toupper(static_cast<int32_t>(c)));
  });
}

int UnicodeCategory(char32_t code) { return utf8proc_category(static_cast<int32_t>(code)); }

namespace {

constexpr char32_t kCodes = 0x144;  // one past the last character in use

struct Alphabet {
  std::array<std::string, 256> text;
  std::array<int, kCodes> byte;

  Alphabet() {
    byte.fill(-1);
    char32_t next = 0x100;
    for (int b = 0; b < 256; ++b) {
      const bool prints = (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || b >= 0xAE;
      const char32_t code = prints ? static_cast<char32_t>(b) : next++;
      AppendUtf8(text[b], code);
      byte[code] = b;
    }
  }
};

const Alphabet& TheAlphabet() {
  static const Alphabet alphabet;
  return alphabet;
}

}  // namespace

const std::string& ByteAsText(uint8_t byte) { return TheAlphabet().text[byte]; }

std::string BytesAsText(std::string_view bytes) {
  std::string text;
  text.reserve(bytes.size() + bytes.size() / 2);
  for (const char byte : bytes) text += ByteAsText(static_cast<uint8_t>(byte));
  return text;
}

std::optional<std::string> TextAsBytes(std::string_view valid_text) {
  std::string bytes;
  for (size_t at = 0; at < valid_text.size();) {
    const Utf8Character character = DecodeCharacter(valid_text, at);
    if (character.code >= kCodes || TheAlphabet().byte[character.code] < 0) return std::nullopt;
    bytes += static_cast<char>(TheAlphabet().byte[character.code]);
    at += character.length;
  }
  return bytes;
}

}  // namespace kevin::local
