#include "env/gpu/compile/compile_cache.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <vector>

#include "env/error.h"
#include "env/problem/text.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

constexpr size_t kHashDigits = 64;

// Which entries go down to when there are too many: not one at a time.
constexpr double kKeptShare = 0.9;

}  // namespace

CompileCache::CompileCache(fs::path folder, int64_t limit_bytes)
    : folder_(std::move(folder)), limit_bytes_(limit_bytes) {
  std::error_code error;
  fs::create_directories(folder_, error);
  if (error) {
    throw Error(ExitCode::kBroken, "cannot make " + folder_.string() + ": " + error.message(),
                "free some disk space, or point XDG_CACHE_HOME elsewhere");
  }
}

std::optional<CompilerReply> CompileCache::Find(const std::string& key) {
  const fs::path path = folder_ / key;
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  const std::string bytes{std::istreambuf_iterator<char>(in), {}};
  CompilerReply reply;
  const std::string_view payload = std::string_view(bytes).substr(std::min(kHashDigits, bytes.size()));
  if (bytes.size() < kHashDigits || Sha256Hex(payload) != bytes.substr(0, kHashDigits) ||
      !FromBytes(payload, &reply)) {
    std::error_code ignored;
    fs::remove(path, ignored);
    return std::nullopt;
  }
  utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // used just now
  return reply;
}

void CompileCache::Store(const std::string& key, const CompilerReply& reply) {
  const std::string payload = ToBytes(reply);
  std::string temporary = (folder_ / "new-XXXXXX").string();
  const int fd = mkstemp(temporary.data());
  bool ok = fd >= 0;
  if (ok) {
    std::ofstream out(temporary, std::ios::binary);
    out << Sha256Hex(payload) << payload;
    ok = static_cast<bool>(out.flush());
    close(fd);
  }
  if (!ok || std::rename(temporary.c_str(), (folder_ / key).c_str()) != 0) {
    const std::string why = std::strerror(errno);
    std::error_code ignored;
    fs::remove(temporary, ignored);
    throw Error(ExitCode::kBroken, "cannot write to " + folder_.string() + ": " + why,
                "free some disk space; nothing is lost, `--continue` goes on");
  }
  const std::scoped_lock lock(mutex_);
  if (bytes_ >= 0) bytes_ += static_cast<int64_t>(payload.size() + kHashDigits);
  if (bytes_ < 0 || bytes_ > limit_bytes_) Evict();
}

void CompileCache::Evict() {
  struct Entry {
    fs::path path;
    int64_t bytes = 0;
    timespec used{};
  };
  std::vector<Entry> entries;
  std::error_code error;
  bytes_ = 0;
  for (const auto& file : fs::directory_iterator(folder_, error)) {
    struct stat status {};
    if (stat(file.path().c_str(), &status) != 0) continue;  // another process was faster
    entries.push_back({file.path(), status.st_size, status.st_mtim});
    bytes_ += status.st_size;
  }
  if (bytes_ <= limit_bytes_) return;
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
  });
  const auto kept = static_cast<int64_t>(static_cast<double>(limit_bytes_) * kKeptShare);
  for (const Entry& entry : entries) {
    if (bytes_ <= kept) break;
    if (fs::remove(entry.path, error)) bytes_ -= entry.bytes;
  }
}

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
