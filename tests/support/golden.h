#pragma once
// Golden files: texts that a test expects in full. KEVIN_UPDATE_GOLDEN=1 in the environment rewrites them;
// read the diff then.

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "tests/catch.h"
#include "tests/folders.h"

namespace kevin::testing {

// `path` is relative to the root of the source tree. Fails the test when the file differs from `text`.
inline void CheckGolden(const std::string& path, const std::string& text) {
  const std::filesystem::path file = SourceFolder() / path;
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

// The same for several texts, each below its name.
inline void CheckGoldenTexts(const std::string& path,
                             const std::vector<std::pair<std::string, std::string>>& texts) {
  std::string all;
  for (const auto& [name, text] : texts) all += "=== " + name + "\n" + text + "\n\n";
  CheckGolden(path, all);
}

}  // namespace kevin::testing
