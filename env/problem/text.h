#pragma once
// Text that comes from outside: its content hash, its safe form for a terminal, its distance from
// another. Pure functions; safe from
// any thread.

#include <string>
#include <string_view>

namespace kevin {

// SHA-256 as 64 lower-case hex digits: the one content hash of the environment (problems, candidates,
// evaluation keys, compile cache).
std::string Sha256Hex(std::string_view bytes);

// For text that a candidate controls (its output, a compiler's messages about it). Control characters, which
// could rename, clear or reprogram a terminal, become '?'; line ends, tabs and the rest of UTF-8 stay. A
// carriage return before a line end is dropped.
std::string Printable(std::string_view text);

// Insertions, deletions and replacements of one byte that turn `a` into `b` (Levenshtein).
size_t EditDistance(std::string_view a, std::string_view b);

}  // namespace kevin
