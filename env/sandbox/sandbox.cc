#include "env/sandbox/sandbox.h"

#include <fcntl.h>
#include <linux/landlock.h>
#include <linux/mount.h>
#include <linux/prctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

namespace kevin {
// --- Landlock: file access by path, for this process and its children. Irrevocable. ---

namespace {

namespace fs = std::filesystem;

// The folders that every sandboxed process may read and execute.
constexpr const char* kSystemFolders[] = {
    "/usr",   "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/etc/ld.so.cache", "/etc/alternatives",
    "/opt/rh"};

// Missing in older kernel headers; the numbers are the kernel's ABI.
constexpr uint64_t kFsRefer = 1ULL << 13, kFsTruncate = 1ULL << 14, kFsIoctlDev = 1ULL << 15;
constexpr uint64_t kNetAll = 3;    // bind and connect TCP, ABI 4
constexpr uint64_t kScopeAll = 3;  // abstract Unix sockets and signals, ABI 6

struct RulesetV6 {
  uint64_t handled_access_fs, handled_access_net, scoped;
};

constexpr uint64_t kRead =
    LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;

uint64_t AllFileRights(int abi) {
  uint64_t rights = (1ULL << 13) - 1;
  if (abi >= 2) rights |= kFsRefer;
  if (abi >= 3) rights |= kFsTruncate;
  if (abi >= 5) rights |= kFsIoctlDev;
  return rights;
}

void Allow(int ruleset, const fs::path& path, uint64_t rights) {
  const int fd = open(path.c_str(), O_PATH | O_CLOEXEC);
  if (fd < 0) return;
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    rights &= LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE |
              kFsTruncate | kFsIoctlDev;
  }
  landlock_path_beneath_attr rule{};
  rule.allowed_access = rights;
  rule.parent_fd = fd;
  syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
  close(fd);
}

// Afterwards only the system's folders and `readable` can be read and executed, and only files under
// `writable` can be changed; TCP is closed where the kernel supports it (ABI 4). False when the kernel has no
// Landlock. Needs no_new_privs.
bool RestrictWithLandlock(const std::vector<fs::path>& readable, const std::vector<fs::path>& writable) {
  const auto abi =
      static_cast<int>(syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION));
  if (abi < 1) return false;
  const uint64_t all = AllFileRights(abi);
  RulesetV6 attributes{all, abi >= 4 ? kNetAll : 0, abi >= 6 ? kScopeAll : 0};
  const size_t size = abi >= 6 ? 24 : abi >= 4 ? 16 : 8;
  const auto ruleset = static_cast<int>(syscall(SYS_landlock_create_ruleset, &attributes, size, 0));
  if (ruleset < 0) return false;
  for (const char* path : kSystemFolders) Allow(ruleset, path, kRead);
  for (const auto& path : readable) Allow(ruleset, path, kRead);
  for (const auto& path : writable)
    Allow(ruleset, path,
          all & ~uint64_t{LANDLOCK_ACCESS_FS_MAKE_BLOCK} & ~uint64_t{LANDLOCK_ACCESS_FS_MAKE_CHAR});
  const bool ok = syscall(SYS_landlock_restrict_self, ruleset, 0) == 0;
  close(ruleset);
  return ok;
}

}  // namespace

// --- All layers ---

namespace {

constexpr const char* kNewRoot = "/tmp";  // covered by a private tmpfs that becomes the root
constexpr const char* kCandidatePath = "/candidate.so";

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "sandbox: %s: %s\n", what, std::strerror(errno));
  _exit(125);
}

void MakeFolders(const fs::path& path) {
  std::error_code ignored;
  fs::create_directories(path, ignored);
}

bool SetReadOnly(const char* path, bool recursive) {
  mount_attr attributes{};
  attributes.attr_set = MOUNT_ATTR_RDONLY | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV;
  return syscall(SYS_mount_setattr, AT_FDCWD, path, recursive ? AT_RECURSIVE : 0, &attributes,
                 sizeof(attributes)) == 0;
}

// Mounts `path` as `as` under the new root; a symbolic link (/lib -> usr/lib) is copied as a link.
void Show(const fs::path& path, bool writable, const fs::path& as) {
  const fs::path target = fs::path(kNewRoot) / as.relative_path();
  std::error_code error;
  if (fs::is_symlink(fs::symlink_status(path, error))) {
    MakeFolders(target.parent_path());
    fs::create_symlink(fs::read_symlink(path, error), target, error);
    return;
  }
  if (!fs::exists(path, error)) return;
  if (fs::is_directory(path, error)) {
    MakeFolders(target);
  } else {
    MakeFolders(target.parent_path());
    std::ofstream{target};
  }
  if (mount(path.c_str(), target.c_str(), nullptr, MS_BIND | MS_REC, nullptr) != 0) Die("bind mount");
  if (!writable && !SetReadOnly(target.c_str(), true)) Die("read-only bind mount");
}

bool UsesGpu(SandboxProfile profile) {
  return profile == SandboxProfile::kGpuRunner || profile == SandboxProfile::kGpuTool;
}

std::vector<fs::path> GpuDeviceFiles() {
  std::vector<fs::path> files;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator("/dev", error)) {
    if (entry.path().filename().string().rfind("nvidia", 0) != 0) continue;
    if (!entry.is_directory(error)) files.push_back(entry.path());
  }
  return files;
}

void WriteCandidate(const std::string& directory, const std::string& bytes) {
  std::ofstream out(directory + kCandidatePath, std::ios::binary);
  out << bytes;
  if (!out.flush()) Die("cannot place the candidate");
}

// For the driver: the GPU's device files, /sys, and a /proc of this process's own namespace.
void ShowGpu() {
  for (const fs::path& device : GpuDeviceFiles()) Show(device, true, device);
  for (const char* device : {"/dev/null", "/dev/zero", "/dev/urandom"}) Show(device, true, device);
  Show("/sys", false, "/sys");
  const std::string proc = std::string(kNewRoot) + "/proc";
  MakeFolders(proc);
  if (mount("proc", proc.c_str(), "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0) Die("/proc");
}

// For files that the processes of a tool share.
void ShowTemporaryFolders() {
  for (const char* path : {"/tmp", "/dev/shm"}) {
    const std::string target = std::string(kNewRoot) + path;
    MakeFolders(target);
    if (mount("tmpfs", target.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "size=256m") != 0) Die(path);
  }
}

// The new root has the system's folders only: no home, no /proc, no /sys, no devices (but see ShowGpu).
void EnterNewRoot(const SandboxOptions& options) {
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) Die("private mounts");
  // The work folder and the extra paths may lie under /tmp: open them before the tmpfs covers it.
  std::vector<std::pair<fs::path, int>> held;
  for (const fs::path& path : options.read_only)
    held.emplace_back(path, open(path.c_str(), O_PATH | O_CLOEXEC));
  const int work =
      options.work_directory.empty() ? -1 : open(options.work_directory.c_str(), O_PATH | O_CLOEXEC);
  if (mount("tmpfs", kNewRoot, "tmpfs", MS_NOSUID | MS_NODEV, "size=64m,mode=755") != 0) Die("tmpfs");
  if (options.profile == SandboxProfile::kGpuTool)
    ShowTemporaryFolders();  // first: mounted folders may lie there
  for (const char* path : kSystemFolders) Show(path, false, path);
  for (const auto& [path, descriptor] : held) {
    if (descriptor >= 0) Show("/proc/self/fd/" + std::to_string(descriptor) + "/.", false, path);
  }
  if (work >= 0) Show("/proc/self/fd/" + std::to_string(work) + "/.", true, kSandboxWorkPath);
  if (options.profile == SandboxProfile::kCompiler) Show("/dev/null", true, "/dev/null");
  if (UsesGpu(options.profile)) ShowGpu();
  if (!options.candidate_file.empty()) WriteCandidate(kNewRoot, options.candidate_file);
  if (chdir(kNewRoot) != 0 || syscall(SYS_pivot_root, ".", ".") != 0 || umount2(".", MNT_DETACH) != 0 ||
      chdir("/") != 0) {
    Die("pivot_root");
  }
  if (!SetReadOnly("/", false)) Die("read-only root");
  if (work >= 0 && chdir(kSandboxWorkPath) != 0) Die("work folder");
}

void Limit(__rlimit_resource_t resource, int64_t value) {
  const rlimit limit{static_cast<rlim_t>(value), static_cast<rlim_t>(value)};
  if (setrlimit(resource, &limit) != 0) Die("setrlimit");
}

int64_t MappedBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0;
  statm >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

void SetLimits(const SandboxOptions& options, int64_t mapped_bytes) {
  Limit(RLIMIT_CORE, 0);
  if (UsesGpu(options.profile)) {  // the driver reserves addresses for all of the GPU
    Limit(RLIMIT_FSIZE, options.max_file_bytes);
    Limit(RLIMIT_CPU, options.cpu_limit_s);
    return;
  }
  Limit(RLIMIT_AS, mapped_bytes + options.max_memory_bytes);
  Limit(RLIMIT_FSIZE, options.max_file_bytes);
  Limit(RLIMIT_CPU, options.cpu_limit_s);
  Limit(RLIMIT_NOFILE, options.profile == SandboxProfile::kCompiler ? 256 : 32);
  Limit(RLIMIT_MEMLOCK, 0);
}

void DropPrivileges() {
  for (int capability = 0; capability <= 63; ++capability) prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
  struct {
    uint32_t version;
    int pid;
  } header{0x20080522, 0};  // _LINUX_CAPABILITY_VERSION_3
  uint32_t none[6] = {};
  if (syscall(SYS_capset, &header, none) != 0) Die("cannot drop capabilities");
}

}  // namespace

SandboxLayers EnterSandbox(const SandboxOptions& options) {
  SandboxLayers layers;
  const auto note = [&](bool on, const char* name) {
    (on ? layers.active : layers.missing).emplace_back(name);
  };
  const int64_t mapped_bytes = MappedBytes();
  std::ofstream("/proc/self/oom_score_adj")
      << 1000;  // when memory runs out, the kernel kills this process first
  std::vector<fs::path> readable = options.read_only, writable;
  note(options.namespaces, "namespaces");
  if (options.namespaces) {
    EnterNewRoot(options);
    if (!options.work_directory.empty()) writable.emplace_back(kSandboxWorkPath);
    if (!options.candidate_file.empty()) readable.emplace_back(kCandidatePath);
  } else if (!options.work_directory.empty()) {
    writable.push_back(options.work_directory);
    if (chdir(options.work_directory.c_str()) != 0) Die("work folder");
  }
  note(options.namespaces, "root folder");
  if (options.before_lock) options.before_lock();
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) Die("no_new_privs");
  if (options.profile == SandboxProfile::kCompiler) writable.emplace_back("/dev/null");
  if (options.profile == SandboxProfile::kGpuRunner) {
    for (const fs::path& device : GpuDeviceFiles()) writable.push_back(device);
    readable.insert(readable.end(), {"/proc", "/sys", "/dev/null", "/dev/zero", "/dev/urandom"});
  }
  if (options.profile != SandboxProfile::kGpuTool) note(RestrictWithLandlock(readable, writable), "Landlock");
  SetLimits(options, mapped_bytes);
  note(true, "limits");
  // Capabilities exist inside our own user namespace, or for root.
  if (options.namespaces || geteuid() == 0) DropPrivileges();
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  note(InstallSeccompFilter(options.profile), "seccomp");
  return layers;
}

}  // namespace kevin
