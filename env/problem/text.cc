#include "env/problem/text.h"

#include <sha256.h>

#include <array>

namespace kevin {

std::string Sha256Hex(std::string_view bytes) {
  std::array<char, SHA256_DIGEST_STRING_LENGTH> hex{};
  SHA256Data(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), hex.data());
  return hex.data();
}

std::string Printable(std::string_view text) {
  std::string printable;
  printable.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto next = i + 1 < text.size() ? static_cast<unsigned char>(text[i + 1]) : 0;
    if (byte == '\r' && next == '\n') continue;
    const bool c1 = byte == 0xc2 && next >= 0x80 && next <= 0x9f;  // U+0080 to U+009F
    if (c1) ++i;
    const bool control = c1 || byte == 0x7f || (byte < 0x20 && byte != '\n' && byte != '\t');
    printable += control ? '?' : static_cast<char>(byte);
  }
  return printable;
}

}  // namespace kevin
