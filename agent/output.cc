#include "agent/output.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>

#include "env/error.h"
#include "env/problem/problem.h"

namespace kevin {
namespace fs = std::filesystem;

EpisodeOutput::EpisodeOutput(fs::path folder) : folder_(std::move(folder)) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (!error && ::access(folder_.c_str(), W_OK | X_OK) != 0) error.assign(errno, std::generic_category());
  if (error) {
    throw Error(ExitCode::kBadRequest,
                fmt::format("{}: cannot write kernels there: {}", folder_.string(), error.message()),
                "choose another folder with --out DIR");
  }
}

std::string EpisodeOutput::WriteTurn(int turn, const std::string& kind, const std::string& source) const {
  return Write(fmt::format("{}.{}", turn, FileEnding(kind)), source);
}

std::string EpisodeOutput::WriteBest(const std::string& kind, const std::string& source) const {
  return Write("best." + FileEnding(kind), source);
}

void EpisodeOutput::Remove(const std::string& path) const {
  std::error_code ignored;
  fs::remove(path, ignored);
}

std::string EpisodeOutput::Write(const std::string& name, const std::string& source) const {
  const fs::path path = folder_ / episode_ / name;
  const fs::path partial = path.string() + ".partial";
  std::error_code error;
  fs::create_directories(path.parent_path(), error);
  errno = 0;
  std::ofstream file(partial, std::ios::binary | std::ios::trunc);
  file.write(source.data(), static_cast<std::streamsize>(source.size()));
  file.close();
  if (!file) {
    const std::string reason = error ? error.message() : std::strerror(errno);
    fs::remove(partial, error);
    throw Error(ExitCode::kBroken, fmt::format("{}: cannot write: {}", path.string(), reason),
                "free space or choose another folder with --out DIR; what was done is in the database");
  }
  fs::rename(partial, path, error);
  if (error)
    throw Error(ExitCode::kBroken, fmt::format("{}: cannot write: {}", path.string(), error.message()));
  return path.string();
}

}  // namespace kevin
