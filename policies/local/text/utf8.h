#pragma once
// UTF-8 by hand, and what Python and Rust think of characters. No state; any thread.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace kevin::local {

// Decodes one character at `position`. `length` bytes belong to it; an ill-formed one has `valid` false and
// the length of its maximal part (1 to 3), `incomplete` true where more bytes at the end could make it whole.
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

// Moves what is final from the front of `pending` to the result, ill-formed parts replaced; what is left (up
// to 3 bytes) is the beginning of a character.
std::string TakeWholeCharacters(std::string& pending);

size_t CountCharacters(std::string_view valid_text);
// The offset of the character `index` (the size of the text when there are fewer).
size_t CharacterOffset(std::string_view valid_text, size_t index);

std::string ToNfc(std::string_view valid_text);

bool IsPythonSpace(char32_t code);   // str.isspace, what str.strip takes away
bool IsUnicodeSpace(char32_t code);  // White_Space
std::string ToLower(std::string_view valid_text);
std::string ToUpper(std::string_view valid_text);

// General category of Unicode in utf8proc's numbers (utf8proc_category_t).
int UnicodeCategory(char32_t code);

// How byte-level tokenizers write bytes in tokenizer.json: each of the 256 as one printable character ("Ġ" is
// a blank). Bytes that print as themselves in Latin-1 stay; the others follow from U+0100 on. No state; any
// thread.

const std::string& ByteAsText(uint8_t byte);
std::string BytesAsText(std::string_view bytes);

// nullopt when a character is none of the 256.
std::optional<std::string> TextAsBytes(std::string_view valid_text);

}  // namespace kevin::local
