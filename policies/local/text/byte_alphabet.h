#pragma once
// How byte-level tokenizers write bytes in tokenizer.json: each of the 256 as one printable character ("Ġ" is
// a blank). Bytes that print as themselves in Latin-1 stay; the others follow from U+0100 on. No state; any
// thread.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kevin::local {

const std::string& ByteAsText(uint8_t byte);
std::string BytesAsText(std::string_view bytes);

// nullopt when a character is none of the 256.
std::optional<std::string> TextAsBytes(std::string_view valid_text);

}  // namespace kevin::local
