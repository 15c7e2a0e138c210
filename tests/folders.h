#pragma once
// Where the sources and what was built from them lie. Functions, not macros: an object file that names no folder is the
// same in every checkout, so that a compiler cache serves all of them.

#include <filesystem>

namespace kevin {

std::filesystem::path SourceFolder();
std::filesystem::path BinaryFolder();

}  // namespace kevin
