#include "env/problem/packed_values.h"

#include <zlib.h>

#include <cstdint>
#include <cstring>

namespace kevin {
namespace {

constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

std::optional<std::string> FromBase64(const std::string& text) {
  std::string bytes;
  uint32_t held = 0;
  int bits = 0;
  for (const char c : text) {
    if (c == '=' || c == '\n') continue;
    const char* digit = c == '\0' ? nullptr : std::strchr(kDigits, c);
    if (digit == nullptr) return std::nullopt;
    held = (held << 6) | static_cast<uint32_t>(digit - kDigits);
    bits += 6;
    if (bits < 8) continue;
    bits -= 8;
    bytes += static_cast<char>((held >> bits) & 0xFF);
  }
  return bytes;
}

}  // namespace

std::optional<std::string> UnpackValues(const std::string& text, size_t bytes) {
  const std::optional<std::string> packed = FromBase64(text);
  if (!packed) return std::nullopt;
  std::string values(bytes, '\0');
  uLongf size = bytes;
  const int status =
      uncompress(reinterpret_cast<Bytef*>(values.data()), &size,
                 reinterpret_cast<const Bytef*>(packed->data()), static_cast<uLong>(packed->size()));
  if (status != Z_OK || size != bytes) return std::nullopt;
  return values;
}

}  // namespace kevin
