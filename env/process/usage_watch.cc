#include "env/process/usage_watch.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <cctype>
#include <system_error>
#include <utility>

namespace kevin {
namespace {

namespace fs = std::filesystem;

std::string NamespaceOf(const fs::path& process) {
  std::error_code gone;
  const fs::path target = fs::read_symlink(process / "ns/pid", gone);
  return gone ? "" : target.string();
}

// A folder of /proc has one link for each folder in it, and two more.
int64_t TasksOf(const fs::path& process) {
  struct stat status {};
  return stat((process / "task").c_str(), &status) == 0 ? static_cast<int64_t>(status.st_nlink) - 2 : 0;
}

bool IsNumber(const std::string& name) {
  return !name.empty() &&
         std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c); });
}

int64_t TasksIn(const std::string& name_space) {
  int64_t tasks = 0;
  std::error_code ignored;
  for (fs::directory_iterator entry("/proc", ignored), end; entry != end; entry.increment(ignored)) {
    if (IsNumber(entry->path().filename().string()) && NamespaceOf(entry->path()) == name_space)
      tasks += TasksOf(entry->path());
  }
  return tasks;
}

struct Written {
  int64_t files = 0, bytes = 0;
};

// Stops counting at the limit. Files vanish while it looks.
Written WrittenTo(const UsageLimits& limits) {
  Written written;
  std::error_code error;
  for (fs::recursive_directory_iterator entry(limits.folder, error), end; !error && entry != end;
       entry.increment(error)) {
    struct stat status {};
    if (lstat(entry->path().c_str(), &status) == 0 && S_ISREG(status.st_mode))
      written.bytes += static_cast<int64_t>(status.st_blocks) * 512;
    if (++written.files > limits.files || written.bytes > limits.bytes) break;
  }
  return written;
}

}  // namespace

UsageWatch::UsageWatch(pid_t process, UsageLimits limits)
    : limits_(std::move(limits)), namespace_([process] {
        const std::string own = NamespaceOf("/proc/self"),
                          theirs = NamespaceOf(fmt::format("/proc/{}", process));
        return theirs == own ? "" : theirs;
      }()) {}

const std::string& UsageWatch::Exceeded() {
  const auto now = std::chrono::steady_clock::now();
  if (exceeded_.empty() && now >= next_look_) {
    exceeded_ = Look();
    next_look_ = now + kUsageLook;
  }
  return exceeded_;
}

std::string UsageWatch::Look() const {
  if (limits_.tasks > 0 && !namespace_.empty()) {
    if (const int64_t tasks = TasksIn(namespace_); tasks > limits_.tasks)
      return fmt::format("it has {} threads and processes at a time; {} are allowed", tasks, limits_.tasks);
  }
  if (limits_.folder.empty()) return "";
  const Written written = WrittenTo(limits_);
  if (written.files > limits_.files) return fmt::format("it writes more than {} files", limits_.files);
  if (written.bytes > limits_.bytes)
    return fmt::format("its files take more than {} MiB", limits_.bytes >> 20);
  return "";
}

}  // namespace kevin
