#pragma once
// The texts of the headers that are always served from memory (see habit_headers.h).

#include <string>
#include <utility>
#include <vector>

namespace kevin {

inline constexpr const char* kBasicsOnly = "#include <kevin/basics.h>\n";

const std::vector<std::pair<std::string, std::string>>& FixedHeaders();  // name, text

}  // namespace kevin
