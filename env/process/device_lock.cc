#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <mutex>
#include <sstream>
#include <thread>
#include <vector>

#include "env/error.h"
#include "env/problem/text.h"
#include "env/process/machine.h"
#include "env/process/shared_memory.h"

namespace kevin {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// --- The files ---

namespace {

constexpr const char* kSharing =
    "users who share this machine's devices set KEVIN_LOCK_DIRECTORY to a folder of their group, made with "
    "`install -d -m 2770 -g GROUP FOLDER`";

[[noreturn]] void ThrowUnusable(const fs::path& path, const std::string& why) {
  throw Error(ExitCode::kMachine, "measurement lock " + path.string() + ": " + why, kSharing);
}

bool IsOwn(const fs::path& folder) {
  struct stat status {};
  return lstat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
         (status.st_mode & 077) == 0;
}

// A home may be shared by machines, a lock must not be.
fs::path FolderInCache() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  const char* home = std::getenv("HOME");
  const fs::path base = cache && *cache ? fs::path(cache) : fs::path(home ? home : "/nonexistent") / ".cache";
  return base / "kevin" / ("locks-" + HostName());
}

fs::path OwnFolder() {
  const fs::path usual = "/tmp/kevin-locks-" + std::to_string(geteuid());
  mkdir(usual.c_str(), 0700);
  if (IsOwn(usual)) return usual;
  const fs::path other = FolderInCache();
  std::error_code ignored;
  fs::create_directories(other.parent_path(), ignored);
  mkdir(other.c_str(), 0700);
  if (IsOwn(other)) return other;
  ThrowUnusable(usual, "is not a private folder of this user, and " + other.string() + " cannot be made");
}

// The mode of a new file is cut by the umask; a group needs it whole.
Fd OpenFile(const fs::path& path) {
  Fd fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
  if (!fd && errno == ENOENT) {
    fd = Fd(open(path.c_str(), O_RDONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0660));
    if (fd) fchmod(fd.get(), 0660);
  }
  if (!fd) ThrowUnusable(path, std::strerror(errno));
  return fd;
}

}  // namespace

fs::path DeviceLock::Directory() {
  const char* chosen = std::getenv("KEVIN_LOCK_DIRECTORY");
  if (chosen == nullptr || *chosen == '\0') return OwnFolder();
  struct stat status {};
  if (stat(chosen, &status) != 0) ThrowUnusable(chosen, std::strerror(errno));
  if (!S_ISDIR(status.st_mode)) ThrowUnusable(chosen, "is not a folder");
  if (status.st_mode & S_IWOTH) ThrowUnusable(chosen, "every user can write to this folder");
  return chosen;
}

fs::path DeviceLock::PathFor(const std::string& device) { return Directory() / (device + ".lock"); }

std::string DeviceLock::NameOfGpu(std::string pci_bus) {
  std::replace(pci_bus.begin(), pci_bus.end(), ':', '-');
  return "gpu-" + pci_bus;
}

// --- Who holds it ---

namespace {

std::string UserOf(const std::string& process) {
  struct stat status {};
  if (stat(process.c_str(), &status) != 0) return "unknown";
  passwd entry{};
  passwd* user = nullptr;
  std::vector<char> names(16384);
  getpwuid_r(status.st_uid, &entry, names.data(), names.size(), &user);
  return user ? user->pw_name : std::to_string(status.st_uid);
}

std::string Described(long pid) {
  constexpr size_t kShown = 100;
  const std::string process = "/proc/" + std::to_string(pid);
  std::ifstream in(process + "/cmdline", std::ios::binary);
  std::string command{std::istreambuf_iterator<char>(in), {}};
  while (!command.empty() && command.back() == '\0') command.pop_back();
  std::replace(command.begin(), command.end(), '\0', ' ');
  if (command.empty()) return fmt::format("process {} of another container", pid);
  if (command.size() > kShown) command = command.substr(0, kShown) + "...";
  return fmt::format("process {} ({}) of user {}", pid, Printable(command), UserOf(process));
}

// "1: FLOCK  ADVISORY  WRITE 1234 fe:00:5678 0 EOF"; those who wait have "->" behind the number.
std::vector<long> PidsOf(const fs::path& path) {
  struct stat status {};
  std::vector<long> pids;
  if (stat(path.c_str(), &status) != 0) return pids;
  const std::string place =
      fmt::format("{:02x}:{:02x}:{}", major(status.st_dev), minor(status.st_dev), status.st_ino);
  std::ifstream locks("/proc/locks");
  for (std::string line; std::getline(locks, line);) {
    std::istringstream words(line);
    std::string number, kind, advisory, mode, file;
    long pid = 0;
    if (words >> number >> kind >> advisory >> mode >> pid >> file && kind == "FLOCK" && file == place)
      pids.push_back(pid);
  }
  return pids;
}

}  // namespace

std::string DeviceLock::HoldersOf(const std::string& device) {
  std::string text;
  for (const long pid : PidsOf(PathFor(device))) text += (text.empty() ? "" : "; ") + Described(pid);
  return text;
}

// --- Waiting ---

// All pass the gate one at a time and hold it until they have the lock: who comes later waits behind them.
struct DeviceLock::Queue {
  explicit Queue(const fs::path& path)
      : gate(OpenFile(fs::path(path).replace_extension(".gate"))), lock(OpenFile(path)) {}

  bool Try(int operation) {
    has_gate = flock(gate.get(), LOCK_EX | LOCK_NB) == 0;
    return has_gate && flock(lock.get(), operation | LOCK_NB) == 0;
  }
  void Block(int operation) {
    if (!has_gate) Blocking(gate.get(), LOCK_EX);
    Blocking(lock.get(), operation);
  }
  static void Blocking(int fd, int operation) {
    while (flock(fd, operation) != 0 && errno == EINTR) {
    }
  }

  Fd gate, lock;
  bool has_gate = false;
  // A thread of its own blocks; the caller may give up, then that thread closes the files.
  std::mutex mutex;
  std::condition_variable changed;
  bool has_lock = false;
};

namespace {

// At most one line a minute from this process, however many threads wait. What this process, its parent or
// its child does is no news.
void TellWhoHolds(const std::string& device) {
  static std::mutex mutex;
  static Clock::time_point told;
  const std::lock_guard lock(mutex);
  const auto now = Clock::now();
  if (told != Clock::time_point() && now - told < std::chrono::minutes(1)) return;
  for (const long pid : PidsOf(DeviceLock::PathFor(device))) {
    if (pid == getpid() || pid == getppid()) return;
    const std::vector<std::string> stat = ProcessStat(static_cast<int>(pid));
    if (stat.size() > 1 && stat[1] == std::to_string(getpid())) return;
  }
  const std::string holders = DeviceLock::HoldersOf(device);
  std::fprintf(stderr, "waiting for %s, which is held by %s\n", device.c_str(),
               holders.empty() ? "a process that this one cannot see" : holders.c_str());
  told = now;
}

}  // namespace

DeviceLock::DeviceLock(const std::string& device, LockMode mode, double* wait_s,
                       const std::atomic<bool>* stop) {
  const auto start = Clock::now();
  const int operation = mode == LockMode::kExclusive ? LOCK_EX : LOCK_SH;
  const auto queue = std::make_shared<Queue>(PathFor(device));
  if (!queue->Try(operation)) {
    std::thread([queue, operation] {
      queue->Block(operation);
      const std::lock_guard lock(queue->mutex);
      queue->has_lock = true;
      queue->changed.notify_all();
    }).detach();
    constexpr double kNoticeEvery_s = 300;
    double notice_s = notice_after_s;
    std::unique_lock lock(queue->mutex);
    while (!queue->changed.wait_for(lock, std::chrono::milliseconds(50), [&] { return queue->has_lock; })) {
      if (stop != nullptr && *stop)
        throw Error(ExitCode::kInterrupted, "interrupted while another process was measuring");
      if (SecondsSince(start) < notice_s) continue;
      TellWhoHolds(device);
      notice_s += kNoticeEvery_s;
    }
  }
  fd_ = fcntl(queue->lock.get(), F_DUPFD_CLOEXEC, 0);  // the waiting thread may close its own a moment later
  if (fd_ < 0) ThrowUnusable(PathFor(device), std::strerror(errno));
  queue->gate.Reset();
  if (wait_s) *wait_s += SecondsSince(start);
}

DeviceLock::~DeviceLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace kevin
