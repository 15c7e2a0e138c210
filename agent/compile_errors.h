#pragma once
// A compiler's log -> the few lines that help: the first three errors, each with its line of the source.
// Knows what g++, clang++, their linkers, NVRTC and ptxas write; of any other text the beginning is shown.
// Pure.

#include <string>

namespace kevin {

// Ends in a line end.
std::string TrimmedErrors(const std::string& log, const std::string& source);

}  // namespace kevin
