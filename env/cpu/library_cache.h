#pragma once
// The cache of compiled candidates: one folder per text, named by the hash of what it was compiled from, with
// the files `log` and, unless it failed, `candidate.so`. Folders appear whole or not at all. Several processes
// may share the cache. An entry that a process uses is not removed; else the least recently used go first.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "env/process/shared_memory.h"

namespace kevin {

struct CachedLibrary {
  std::filesystem::path library;  // empty when the text does not compile
  std::string log;
  std::shared_ptr<const Fd> in_use;  // keeps the entry while it lives
};

// Thread-safe.
class LibraryCache {
 public:
  // `limit_bytes` is disk space; a cache may exceed it by a sixteenth for each process that uses it.
  LibraryCache(std::filesystem::path folder, int64_t limit_bytes);
  std::optional<CachedLibrary> Find(const std::string& key) const;
  // Moves the folder `work` into the cache, unless an equal entry is there already. Throws Error(kBroken)
  // when it cannot be moved.
  CachedLibrary Store(const std::filesystem::path& work, const std::string& key);

 private:
  void Evict() const;

  std::filesystem::path folder_;
  int64_t limit_bytes_;
};

}  // namespace kevin
