#pragma once
// A folder of its own inside another one; it goes, with all that is in it, when this goes.

#include <filesystem>
#include <string>

namespace kevin {

class WorkFolder {
 public:
  // `parent` is made if needed; the name begins with `prefix`. Throws Error(kBroken).
  WorkFolder(const std::filesystem::path& parent, const std::string& prefix);
  ~WorkFolder();
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace kevin
