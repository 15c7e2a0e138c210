#pragma once
// A compiler's log as a short list of causes. One cause may give many errors: a name that is not declared gives one at
// each use. Each cause is shown once, with the lines of its other places. Pure; any thread.

#include <string>

namespace kevin {

inline constexpr size_t kMaxCauses = 5;  // that are shown; of further ones the number is given

// A log reduced to its causes, each with its line of `source`. Errors have one cause if their messages differ in quoted
// names at most ("identifier "a" is undefined", "identifier "b" is undefined"), or if they are about one name. A cause
// whose line has shown another one before comes last: it may follow from that. So does one in a header that no line
// of the candidate led to. Understands g++, clang++, their linkers,
// NVRTC and ptxas; of any other log the beginning is returned. Ends with a line end.
std::string TrimmedErrors(const std::string& log, const std::string& source);

}  // namespace kevin
