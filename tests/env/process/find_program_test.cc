// Programs by name: every search for one in PATH.

#include "env/process/find_program.h"

#include <filesystem>
#include <fstream>
#include <string>

#include "env/process/files.h"
#include "tests/catch.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

void MakeProgram(const fs::path& path) {
  fs::create_directories(path.parent_path());
  std::ofstream(path) << "#!/bin/sh\n";
  fs::permissions(path, fs::perms::owner_all);
}

// The working directory during a test.
class In {
 public:
  explicit In(const fs::path& folder) : before_(fs::current_path()) { fs::current_path(folder); }
  ~In() { fs::current_path(before_); }

 private:
  fs::path before_;
};

}  // namespace

TEST_CASE("a program is found by name in the folders' order, and folders are no programs") {
  const WorkFolder folder(fs::temp_directory_path(), "find-program");
  const fs::path one = folder.path() / "one", two = folder.path() / "two";
  fs::create_directories(one / "tool");
  MakeProgram(two / "tool");
  CHECK(FindProgram("tool", {one, two}) == two / "tool");
  CHECK(FindProgram("other", {one, two}).empty());
  CHECK(FindProgram("", {one, two}).empty());
  std::ofstream(one / "text") << "no program";
  CHECK(FindProgram("text", {one, two}).empty());
}

TEST_CASE("a program given by a relative path with .. becomes an absolute path without") {
  const WorkFolder folder(fs::temp_directory_path(), "find-program");
  const fs::path root = fs::canonical(folder.path());
  MakeProgram(root / "venv/bin/python3.11");
  fs::create_symlink("python3.11", root / "venv/bin/python");
  fs::create_directories(root / "work/deep");
  const In there(root / "work");
  // The link itself stays: an interpreter finds its environment beside it.
  CHECK(FindProgram("../venv/bin/python") == root / "venv/bin/python");
  CHECK(FindProgram("./../venv/./bin/python") == root / "venv/bin/python");
  CHECK(FindProgram("../venv/bin/nothing").empty());
  CHECK(FindProgram("python", {"../venv/bin"}) == root / "venv/bin/python");
  // `..` behind a link: the parent of the link's target.
  fs::create_directory_symlink(root / "work/deep", root / "link");
  CHECK(FindProgram("../link/../../venv/bin/python") == root / "venv/bin/python");
}

}  // namespace kevin
