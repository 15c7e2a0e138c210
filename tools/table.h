#pragma once
// Tables on a terminal.

#include <string>
#include <vector>

namespace kevin {

// Columns as wide as their widest cell (in UTF-8 characters), two spaces apart, no trailing spaces; every
// line ends in a line end. Rows may be short. Line ends within cells become spaces.
std::string AlignedTable(const std::vector<std::vector<std::string>>& rows);

}  // namespace kevin
