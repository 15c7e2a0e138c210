#pragma once
// UTF-8, the character classes of Python and Rust, and the byte alphabet of byte-level tokenizers. No state;
// any thread.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kevin::local {

// Decodes one character at `position`, which has `length` bytes. An ill-formed one has `valid` false and the
// length of its maximal ill-formed part (1 to 3); `incomplete`: further bytes at the end of the text could
// complete it.
struct Utf8Character {
  char32_t code = 0xFFFD;
  uint8_t length = 1;
  bool valid = false;
  bool incomplete = false;
};
Utf8Character DecodeCharacter(std::string_view text, size_t position);

void AppendUtf8(std::string& text, char32_t code);  // surrogates and codes past U+10FFFF: U+FFFD
bool IsAscii(std::string_view text);
bool IsUtf8(std::string_view text);

// The text with every maximal ill-formed part replaced by U+FFFD.
std::string LossyUtf8(std::string_view text);

// Moves all complete characters from `pending` to the result and replaces ill-formed parts. The rest in
// `pending` (up to 3 bytes) is the beginning of a character.
std::string TakeWholeCharacters(std::string& pending);

size_t CountCharacters(std::string_view valid_text);
// The offset of the character `index` (the size of the text when there are fewer).
size_t CharacterOffset(std::string_view valid_text, size_t index);

std::string ToNfc(std::string_view valid_text);

bool IsPythonSpace(char32_t code);   // str.isspace, str.strip
bool IsUnicodeSpace(char32_t code);  // White_Space
std::string ToLower(std::string_view valid_text);
std::string ToUpper(std::string_view valid_text);

// The general category of Unicode, as a utf8proc_category_t.
int UnicodeCategory(char32_t code);

// The byte alphabet of tokenizer.json: each of the 256 bytes is written as one printable character ("Ġ" is a
// space). Printable bytes of Latin-1 stand for themselves; the others are numbered from U+0100 on.
const std::string& ByteAsText(uint8_t byte);
std::string BytesAsText(std::string_view bytes);

// nullopt if a character is not in the alphabet.
std::optional<std::string> TextAsBytes(std::string_view valid_text);

}  // namespace kevin::local
