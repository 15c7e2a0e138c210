#pragma once
// The cache of the compile farm: one file per compiled text, named by the hash of its inputs. Files appear
// whole; a damaged one counts as absent. Several processes may share a folder. And hashes of --include
// folders, which are part of the key of an evaluation.

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>

#include "env/gpu/compile/compiler_protocol.h"

namespace kevin {

class CompileCache {
 public:
  CompileCache(std::filesystem::path folder, int64_t limit_bytes);
  // Thread-safe.
  std::optional<CompilerReply> Find(const std::string& key);
  // Throws Error(kBroken) when it cannot be written. Removes the least recently used entries beyond the
  // limit.
  void Store(const std::string& key, const CompilerReply& reply);

 private:
  void Evict();

  std::filesystem::path folder_;
  int64_t limit_bytes_;
  std::mutex mutex_;
  int64_t bytes_ = -1;  // of all entries, as far as this process knows; -1: not yet counted
};

// One hash for the content of an --include folder. Reads files again only when a name, size or time among
// them has changed. Thread-safe.
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
