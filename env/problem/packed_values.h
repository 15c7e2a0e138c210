#pragma once
// Bytes as a problem file holds them: base64 of a zlib stream. Pure functions; safe from any thread.

#include <optional>
#include <string>

namespace kevin {

// Exactly `bytes` of them; nothing when the text is broken or holds another number.
std::optional<std::string> UnpackValues(const std::string& text, size_t bytes);

}  // namespace kevin
