#pragma once
// What an --include folder holds, as one hash.

#include <filesystem>
#include <map>
#include <mutex>
#include <string>

namespace kevin {

// Reads the bytes of a folder's files only when a name, size or time among them has changed. Thread-safe.
class FolderHashes {
 public:
  // Of the names and bytes of all files below `folder`. Throws Error(kBadRequest) when it cannot be read.
  std::string HashOf(const std::filesystem::path& folder);

 private:
  struct Known {
    std::string state, hash;
  };
  std::mutex mutex_;
  std::map<std::filesystem::path, Known> known_;
};

}  // namespace kevin
