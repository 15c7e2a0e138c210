#include "tests/support/golden.h"

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "tests/catch.h"

namespace kevin::testing {

void CheckGolden(const std::string& path, const std::string& text) {
  const std::filesystem::path file = std::filesystem::path(KEVIN_SOURCE_DIR) / path;
  if (std::getenv("KEVIN_UPDATE_GOLDEN") != nullptr) {
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file) << text;
  }
  std::ifstream in(file);
  std::ostringstream expected;
  expected << in.rdbuf();
  INFO("golden file " << path << "; KEVIN_UPDATE_GOLDEN=1 rewrites it");
  CHECK(text == expected.str());
}

}  // namespace kevin::testing
