#pragma once
// Texts that are kept in files. KEVIN_UPDATE_GOLDEN=1 in the environment rewrites them; read the diff then.

#include <string>

namespace kevin::testing {

// `path` from the root of the source tree. Fails the test when the file says something else.
void CheckGolden(const std::string& path, const std::string& text);

}  // namespace kevin::testing
