#pragma once
// String functions for reading replies and writing messages. Text is UTF-8; no function cuts a character in
// two. Pure; any thread.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace kevin {

std::string_view Trim(std::string_view text);  // without white space at both ends
std::string_view TrimRight(std::string_view text);

// The lines without their ends; a final line end starts no further line. Views into `text`.
std::vector<std::string_view> SplitLines(std::string_view text);

// `text`, or its beginning and "…" where it is longer than max_bytes (the "…" included).
std::string Clip(std::string_view text, size_t max_bytes);

// The first sentence of a summary, on one line, at most `max_bytes` long; for tables.
std::string FirstSentence(std::string_view text, size_t max_bytes = 80);

// `value` to `digits` significant digits, and all digits of its whole part; without an exponent from 0.0001 on.
std::string SignificantText(double value, int digits);

// "1 turn", "2 turns", "0 turns".
std::string Counted(int64_t count, std::string_view noun);

// One component of a path out of any text: ASCII letters, digits, '_', '-' and '.' stay, all else is '_'. It
// begins with neither '.' nor '-' and has 1 to 120 bytes. Ids and kinds of a record name files through it: a
// database may come from anyone.
std::string FileName(std::string_view text);

}  // namespace kevin
