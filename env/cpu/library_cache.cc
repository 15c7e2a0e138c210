#include "env/cpu/library_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <ctime>
#include <fstream>
#include <iterator>
#include <map>
#include <mutex>
#include <vector>

#include "env/error.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

constexpr double kKeptShare = 0.9;          // of the limit, after an eviction: not one entry at a time
constexpr int64_t kCountedEvery = 16;       // the cache is counted when this process has added limit / 16
constexpr time_t kAbandonedAfter_s = 3600;  // a folder of a compile that was killed

int64_t SpaceOf(const fs::path& path) {
  struct stat status {};
  return lstat(path.c_str(), &status) == 0 ? int64_t{status.st_blocks} * 512 : 0;
}

int64_t SpaceOfFolder(const fs::path& folder) {
  int64_t bytes = SpaceOf(folder);
  std::error_code error;
  for (fs::recursive_directory_iterator at(folder, error), end; !error && at != end; at.increment(error))
    bytes += SpaceOf(at->path());
  return bytes;
}

// A shared lock on the entry's log, if the entry is still there once it is locked.
std::shared_ptr<const Fd> Use(const fs::path& entry) {
  const fs::path log = entry / "log";
  Fd fd(open(log.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd || flock(fd.get(), LOCK_SH | LOCK_NB) != 0) return nullptr;
  struct stat named {
  }, opened{};
  if (stat(log.c_str(), &named) != 0 || fstat(fd.get(), &opened) != 0 || named.st_ino != opened.st_ino)
    return nullptr;
  utimensat(AT_FDCWD, log.c_str(), nullptr, 0);  // used just now
  return std::make_shared<const Fd>(std::move(fd));
}

// By a rename first, so that nobody sees half an entry.
bool Remove(const fs::path& entry) {
  const Fd fd(open((entry / "log").c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (fd && flock(fd.get(), LOCK_EX | LOCK_NB) != 0) return false;  // somebody uses it
  fs::path removed = entry.parent_path() / ("removed-" + std::to_string(getpid()));
  removed += "-" + entry.filename().string();
  std::error_code error;
  fs::rename(entry, removed, error);
  if (error) return false;
  fs::remove_all(removed, error);
  return true;
}

// What this process has added to each cache since it was last counted; a new cache is counted at once.
std::mutex added_mutex;
std::map<fs::path, int64_t>& Added() {
  static std::map<fs::path, int64_t> added;
  return added;
}

}  // namespace

LibraryCache::LibraryCache(fs::path folder, int64_t limit_bytes)
    : folder_(std::move(folder)), limit_bytes_(limit_bytes) {}

std::optional<CachedLibrary> LibraryCache::Find(const std::string& key) const {
  const fs::path entry = folder_ / key;
  CachedLibrary found;
  found.in_use = Use(entry);
  if (!found.in_use) return std::nullopt;
  std::ifstream in(entry / "log", std::ios::binary);
  found.log.assign(std::istreambuf_iterator<char>(in), {});
  std::error_code error;
  if (fs::exists(entry / "candidate.so", error)) found.library = entry / "candidate.so";
  return found;
}

CachedLibrary LibraryCache::Store(const fs::path& work, const std::string& key) {
  constexpr int kTries = 3;  // an equal entry may be removed at the moment
  const int64_t space = SpaceOfFolder(work);
  // Locked before it can be found.
  auto in_use = Use(work);
  std::error_code error;
  std::optional<CachedLibrary> stored;
  for (int i = 0; i < kTries && !stored; ++i) {
    fs::rename(work, folder_ / key, error);
    stored = Find(key);
  }
  if (!stored) {
    throw Error(ExitCode::kBroken, "cannot store " + (folder_ / key).string() + ": " + error.message(),
                "check the cache folder");
  }
  const std::lock_guard lock(added_mutex);
  const auto [at, is_new] = Added().try_emplace(folder_, 0);
  at->second += space;
  if (is_new || at->second > limit_bytes_ / kCountedEvery) {
    at->second = 0;
    Evict();
  }
  return std::move(*stored);
}

void LibraryCache::Evict() const {
  struct Entry {
    fs::path path;
    int64_t bytes;
    timespec used;
  };
  std::vector<Entry> entries;
  std::error_code error;
  int64_t all_bytes = 0;
  for (const auto& at : fs::directory_iterator(folder_, error)) {
    struct stat log {};
    const bool is_entry = stat((at.path() / "log").c_str(), &log) == 0;
    // A folder without a log is that of a compile under way.
    if (!is_entry && stat(at.path().c_str(), &log) != 0) continue;
    const bool is_abandoned = !is_entry && log.st_mtim.tv_sec + kAbandonedAfter_s < std::time(nullptr);
    const int64_t bytes = SpaceOfFolder(at.path());
    all_bytes += bytes;
    if (is_entry || is_abandoned) entries.push_back({at.path(), bytes, log.st_mtim});
  }
  if (all_bytes <= limit_bytes_) return;
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    return std::pair(a.used.tv_sec, a.used.tv_nsec) < std::pair(b.used.tv_sec, b.used.tv_nsec);
  });
  const auto kept = static_cast<int64_t>(static_cast<double>(limit_bytes_) * kKeptShare);
  for (const Entry& entry : entries) {
    if (all_bytes <= kept) break;
    if (Remove(entry.path)) all_bytes -= entry.bytes;
  }
}

}  // namespace kevin
