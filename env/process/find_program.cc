#include "env/process/find_program.h"

#include <unistd.h>

#include <cstdlib>
#include <sstream>
#include <system_error>

namespace kevin {
namespace {

namespace fs = std::filesystem;

bool IsProgramFile(const fs::path& path) {
  std::error_code error;
  return access(path.c_str(), X_OK) == 0 && !fs::is_directory(path, error);
}

// `..` behind a link is another folder than the text says, so the folder is resolved where there is one.
fs::path NormalProgramPath(const fs::path& path) {
  std::error_code error;
  const fs::path absolute = fs::absolute(path, error);
  if (error || absolute.lexically_normal() == absolute) return absolute;
  const fs::path folder = fs::canonical(absolute.parent_path(), error);
  return error ? absolute.lexically_normal() : folder / absolute.filename();
}

}  // namespace

std::vector<fs::path> FoldersOfPath() {
  const char* path = std::getenv("PATH");
  std::istringstream list(path != nullptr ? path : "/usr/bin:/bin");
  std::vector<fs::path> folders;
  for (std::string folder; std::getline(list, folder, ':');) {
    if (!folder.empty()) folders.emplace_back(folder);
  }
  return folders;
}

fs::path FindProgram(const std::string& name, const std::vector<fs::path>& folders) {
  if (name.empty()) return {};
  if (name.find('/') != std::string::npos) return IsProgramFile(name) ? NormalProgramPath(name) : fs::path();
  for (const fs::path& folder : folders) {
    if (IsProgramFile(folder / name)) return NormalProgramPath(folder / name);
  }
  return {};
}

}  // namespace kevin
