#pragma once
// What the tests of tokenizers and templates share.

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "env/error.h"
#include "tests/catch.h"
#include "tests/folders.h"

namespace kevin::local {

inline std::filesystem::path Goldens() { return SourceFolder() / "tests/policies/local/goldens"; }

inline std::string ReadText(const std::filesystem::path& file) {
  std::ifstream stream(file, std::ios::binary);
  REQUIRE(stream.good());
  return std::string(std::istreambuf_iterator<char>(stream), {});
}

template <typename Json>
Json ReadGolden(const char* name) {
  return Json::parse(ReadText(Goldens() / name));
}

// A model folder that is gone after the test.
class ModelFolder {
 public:
  ModelFolder() {
    static int number = 0;
    path_ = std::filesystem::temp_directory_path() /
            ("kevin-text-" + std::to_string(getpid()) + "-" + std::to_string(number++));
    std::filesystem::create_directories(path_);
  }
  ~ModelFolder() { std::filesystem::remove_all(path_); }
  const std::filesystem::path& path() const { return path_; }
  void Write(const std::string& name, const std::string& text) const {
    std::filesystem::create_directories((path_ / name).parent_path());
    std::ofstream(path_ / name, std::ios::binary) << text;
  }

 private:
  std::filesystem::path path_;
};

// What `function` complains of; fails where it does not.
template <typename Function>
std::string Complaint(Function function) {
  try {
    function();
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadRequest);
    return error.what();
  }
  FAIL("no Error was thrown");
  return "";
}

}  // namespace kevin::local
