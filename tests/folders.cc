#include "tests/folders.h"

namespace kevin {

std::filesystem::path SourceFolder() { return KEVIN_SOURCE_DIR; }

std::filesystem::path BinaryFolder() { return KEVIN_BINARY_DIR; }

}  // namespace kevin
