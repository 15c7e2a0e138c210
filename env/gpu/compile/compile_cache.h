#pragma once
// The compile farm's memory: one file per compiled text, named by what went into it. Files appear whole; a
// damaged one counts as absent. Several processes may share a folder.

#include <cstdint>
#include <filesystem>
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
  int64_t bytes_ = -1;  // of all entries, as far as this process knows; -1: not yet looked at
};

}  // namespace kevin
