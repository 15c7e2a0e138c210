#pragma once
// Text that comes from outside: its content hash, and (env/printable.h) its safe form for a terminal, its distance
// from another. Pure functions; safe from any thread.

#include <string>
#include <string_view>

#include "env/printable.h"

namespace kevin {

// SHA-256 as 64 lower-case hex digits: the one content hash of the environment (problems, candidates,
// evaluation keys, compile cache).
std::string Sha256Hex(std::string_view bytes);

// Without spaces, tabs and carriage returns at both ends; a part of `text`.
std::string_view Trimmed(std::string_view text);

// Insertions, deletions and replacements of one byte that turn `a` into `b` (Levenshtein).
size_t EditDistance(std::string_view a, std::string_view b);

}  // namespace kevin
