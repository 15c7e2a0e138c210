#include "policies/local/text/byte_alphabet.h"

#include "policies/local/text/utf8.h"

namespace kevin::local {
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
