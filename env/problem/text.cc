#include "env/problem/text.h"

#include <sha256.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <vector>

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

size_t EditDistance(std::string_view a, std::string_view b) {
  std::vector<size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), size_t{0});
  for (size_t i = 0; i < a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i + 1;
    for (size_t j = 0; j < b.size(); ++j) {
      const size_t replaced = diagonal + (a[i] != b[j]);
      diagonal = row[j + 1];
      row[j + 1] = std::min({replaced, row[j] + 1, row[j + 1] + 1});
    }
  }
  return row.back();
}

}  // namespace kevin
