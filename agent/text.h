#pragma once
// A few string functions that parsing replies and writing messages share. Bytes are UTF-8; none of these cuts
// a character in two.

#include <string>
#include <string_view>
#include <vector>

namespace kevin {

std::string_view Trim(std::string_view text);  // without white space at both ends
std::string_view TrimRight(std::string_view text);

// The lines without their ends; a last line end starts no further line. Views into `text`.
std::vector<std::string_view> SplitLines(std::string_view text);

// `text`, or its beginning with "…" where it is longer than max_bytes (the "…" included).
std::string Clip(std::string_view text, size_t max_bytes);

}  // namespace kevin
