#include "env/gpu/compile/folder_hash.h"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <vector>

#include "env/error.h"
#include "env/problem/text.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

std::vector<fs::path> FilesBelow(const fs::path& folder) {
  std::vector<fs::path> files;
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error)) {
    std::error_code ignored;
    if (at->is_regular_file(ignored)) files.push_back(at->path());
  }
  if (error) {
    throw Error(ExitCode::kBadRequest, "--include " + folder.string() + ": " + error.message(),
                "give a folder that this user can read");
  }
  std::sort(files.begin(), files.end());
  return files;
}

}  // namespace

std::string FolderHashes::HashOf(const fs::path& folder) {
  const std::vector<fs::path> files = FilesBelow(folder);
  std::string state;
  for (const fs::path& file : files) {
    std::error_code ignored;
    state += file.string() + "\n" + std::to_string(fs::file_size(file, ignored)) + " " +
             std::to_string(fs::last_write_time(file, ignored).time_since_epoch().count()) + "\n";
  }
  const std::scoped_lock lock(mutex_);
  Known& known = known_[folder];
  if (known.state == state && !known.hash.empty()) return known.hash;
  std::string parts;
  for (const fs::path& file : files) {
    std::ifstream in(file, std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(in), {}};
    parts += file.lexically_relative(folder).string() + "\n" + Sha256Hex(bytes) + "\n";
  }
  known = {state, Sha256Hex(parts)};
  return known.hash;
}

}  // namespace kevin
