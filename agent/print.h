#pragma once
// Output that notices what matters.

#include <cstdio>
#include <string>

namespace kevin {

// Writes and flushes. A reader that has gone away is no failure; Error(kBroken) for a full disk behind
// stdout.
void Print(std::FILE* out, const std::string& text);

}  // namespace kevin
