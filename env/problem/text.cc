#include "env/problem/text.h"

#include <sha256.h>

#include <array>

namespace kevin {

std::string Sha256Hex(std::string_view bytes) {
  std::array<char, SHA256_DIGEST_STRING_LENGTH> hex{};
  SHA256Data(reinterpret_cast<const uint8_t*>(bytes.data()), bytes.size(), hex.data());
  return hex.data();
}

}  // namespace kevin
