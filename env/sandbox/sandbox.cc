#include "env/sandbox/sandbox.h"

#include <fcntl.h>
#include <linux/mount.h>
#include <linux/prctl.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>

#include "env/sandbox/landlock.h"
#include "env/sandbox/seccomp_filter.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

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

// Shows `path` at the same place under the new root; a symbolic link (/lib -> usr/lib) stays one.
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

// What the driver needs: the GPU's device files, /sys, and a /proc of this process's own namespace.
void ShowGpu() {
  for (const fs::path& device : GpuDeviceFiles()) Show(device, true, device);
  for (const char* device : {"/dev/null", "/dev/zero", "/dev/urandom"}) Show(device, true, device);
  Show("/sys", false, "/sys");
  const std::string proc = std::string(kNewRoot) + "/proc";
  MakeFolders(proc);
  if (mount("proc", proc.c_str(), "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, nullptr) != 0) Die("/proc");
}

// Where the tools keep what they share among their processes.
void ShowTemporaryFolders() {
  for (const char* path : {"/tmp", "/dev/shm"}) {
    const std::string target = std::string(kNewRoot) + path;
    MakeFolders(target);
    if (mount("tmpfs", target.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "size=256m") != 0) Die(path);
  }
}

// The system's own folders and nothing else: no home, no /proc, no /sys, no devices (but see ShowGpu).
void EnterNewRoot(const SandboxOptions& options) {
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) Die("private mounts");
  // The work folder and the extra paths may lie under /tmp: hold them before it is covered.
  std::vector<std::pair<fs::path, int>> held;
  for (const fs::path& path : options.read_only)
    held.emplace_back(path, open(path.c_str(), O_PATH | O_CLOEXEC));
  const int work =
      options.work_directory.empty() ? -1 : open(options.work_directory.c_str(), O_PATH | O_CLOEXEC);
  if (mount("tmpfs", kNewRoot, "tmpfs", MS_NOSUID | MS_NODEV, "size=64m,mode=755") != 0) Die("tmpfs");
  if (options.profile == SandboxProfile::kGpuTool)
    ShowTemporaryFolders();  // first: shown folders may lie there
  for (const char* path : {"/usr", "/lib", "/lib32", "/lib64", "/libx32", "/bin", "/sbin", "/etc/ld.so.cache",
                           "/etc/alternatives", "/opt/rh"}) {
    Show(path, false, path);
  }
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
  std::ofstream("/proc/self/oom_score_adj") << 1000;  // when memory runs out, this process goes first
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
  // Capabilities exist only inside our own user namespace; without one there is nothing safe to drop them
  // from.
  if (options.namespaces || geteuid() == 0) DropPrivileges();
  prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  note(InstallSeccompFilter(options.profile), "seccomp");
  return layers;
}

}  // namespace kevin
