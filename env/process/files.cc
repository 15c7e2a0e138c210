#include "env/process/files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "env/error.h"

namespace kevin {
namespace {

[[noreturn]] void ThrowExists(const std::string& path, const std::string& option) {
  throw Error(ExitCode::kBadRequest, path + ": the file exists and was left as it is",
              fmt::format("give another name with {}, or --force to overwrite it", option));
}

[[noreturn]] void ThrowCannotWrite(const std::string& path, int reason, const std::string& option = "-o") {
  if (reason == EEXIST) ThrowExists(path, option);
  const bool full = reason == ENOSPC || reason == EDQUOT || reason == EIO || reason == EFBIG;
  throw Error(
      full ? ExitCode::kBroken : ExitCode::kBadRequest,
      fmt::format("{}: cannot write: {}", path, std::strerror(reason)),
      full ? "free some space and repeat the command" : fmt::format("give another file with {}", option));
}

void WriteNew(const std::string& path, int flags, const std::string& bytes) {
  const int file = open(path.c_str(), O_WRONLY | O_CLOEXEC | flags, 0666);
  if (file < 0) ThrowCannotWrite(path, errno);
  try {
    WriteAll(file, bytes, path);
  } catch (...) {
    close(file);
    if (flags & O_CREAT) unlink(path.c_str());
    throw;
  }
  if (close(file) != 0) ThrowCannotWrite(path, errno);
}

}  // namespace

void WriteAll(int file, const std::string& bytes, const std::string& path) {
  for (size_t done = 0; done < bytes.size();) {
    const ssize_t wrote = write(file, bytes.data() + done, bytes.size() - done);
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0 && errno == EPIPE && file == STDOUT_FILENO) return;
    if (wrote <= 0) ThrowCannotWrite(path, wrote == 0 ? ENOSPC : errno);
    done += static_cast<size_t>(wrote);
  }
}

void WriteFile(const std::string& path, const std::string& bytes, bool force) {
  std::error_code ignored;
  const auto kind = std::filesystem::symlink_status(path, ignored).type();
  const bool is_new = kind == std::filesystem::file_type::not_found;
  if (!force) {
    WriteNew(path, O_CREAT | O_EXCL, bytes);
  } else if (!is_new && kind != std::filesystem::file_type::regular) {
    WriteNew(path, O_TRUNC, bytes);
  } else {  // in one step, so that nobody reads half of it
    const std::string part = path + ".part";
    WriteNew(part, O_CREAT | O_TRUNC, bytes);
    if (rename(part.c_str(), path.c_str()) != 0) ThrowCannotWrite(path, errno);
  }
}

void RequireWritable(const std::string& path, bool force, const std::string& option) {
  namespace fs = std::filesystem;
  std::error_code error;
  const bool exists = fs::exists(path, error);
  if (exists && !force && fs::is_regular_file(path, error)) ThrowExists(path, option);
  if (exists && fs::is_directory(path, error)) ThrowCannotWrite(path, EISDIR, option);
  const fs::path folder = fs::path(path).parent_path();
  const std::string place = exists && !fs::is_regular_file(path, error) ? path
                            : folder.empty()                            ? "."
                                                                        : folder.string();
  if (access(place.c_str(), W_OK) != 0) ThrowCannotWrite(path, errno, option);
}

WorkFolder::WorkFolder(const std::filesystem::path& parent, const std::string& prefix) {
  std::error_code ignored;
  std::filesystem::create_directories(parent, ignored);
  std::string name = (parent / (prefix + "-XXXXXX")).string();
  if (!mkdtemp(name.data())) {
    const int reason = errno;
    const bool refused =
        reason == EACCES || reason == EPERM || reason == EROFS || reason == ENOENT || reason == ENOTDIR;
    throw Error(refused ? ExitCode::kBadRequest : ExitCode::kBroken,
                "cannot make a folder in " + parent.string() + ": " + std::strerror(reason),
                refused ? "set XDG_CACHE_HOME to a folder that can be written to"
                        : "free some disk space, or point XDG_CACHE_HOME elsewhere");
  }
  path_ = name;
}

WorkFolder::~WorkFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace kevin
