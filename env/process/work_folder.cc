#include "env/process/work_folder.h"

#include <stdlib.h>

#include <cerrno>
#include <cstring>

#include "env/error.h"

namespace kevin {

namespace fs = std::filesystem;

WorkFolder::WorkFolder(const fs::path& parent, const std::string& prefix) {
  std::error_code ignored;
  fs::create_directories(parent, ignored);
  std::string name = (parent / (prefix + "-XXXXXX")).string();
  if (!mkdtemp(name.data())) {
    throw Error(ExitCode::kBroken, "cannot make a folder in " + parent.string() + ": " + std::strerror(errno),
                "free some disk space, or point XDG_CACHE_HOME elsewhere");
  }
  path_ = name;
}

WorkFolder::~WorkFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

}  // namespace kevin
