#pragma once
// Files and folders: output files that are never overwritten by accident and never incomplete, and temporary
// folders.

#include <filesystem>
#include <string>

namespace kevin {

// Writes all of `bytes` to an open file; `path` is for messages. Throws Error(kBroken) when the disk is full. A
// reader of standard output that ended early is no error.
void WriteAll(int file, const std::string& bytes, const std::string& path);

// Writes a whole file or nothing. An existing file is replaced only with `force`, by a rename. Devices, pipes
// and links are written to, never replaced. Throws Error(kBadRequest) when the file exists or cannot be
// written, Error(kBroken) when the disk is full.
void WriteFile(const std::string& path, const std::string& bytes, bool force);

// Throws as WriteFile would, before there is anything to write; messages name `option`, which gives the path.
void RequireWritable(const std::string& path, bool force, const std::string& option);

// A temporary folder; its destructor removes it with its content.
class WorkFolder {
 public:
  // Makes `parent` if needed; the name begins with `prefix`. Throws Error(kBadRequest) where `parent` may not be
  // written to, else Error(kBroken).
  WorkFolder(const std::filesystem::path& parent, const std::string& prefix);
  ~WorkFolder();
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
};

}  // namespace kevin
