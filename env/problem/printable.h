#pragma once
// Text from hostile hands (a compiler's echo of a candidate, what a candidate printed) on its way to a
// terminal.

#include <string>
#include <string_view>

namespace kevin {

// Control characters, which could rename, clear or reprogram a terminal, become '?'; line ends, tabs and the
// rest of UTF-8 stay. A carriage return before a line end is dropped.
std::string Printable(std::string_view text);

}  // namespace kevin
