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
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <initializer_list>
#include <utility>

#include "env/sandbox/sandbox_layers.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

constexpr const char* kNewRoot = "/tmp";  // covered by a private tmpfs that becomes the root
constexpr const char* kCandidatePath = "/candidate.so";
constexpr int64_t kGpuPythonDescriptors =
    1024;  // the usual limit of a shell, with which CUDA and its compilers work

}  // namespace

[[noreturn]] void Die(const char* what) {
  std::fprintf(stderr, "sandbox: %s: %s\n", what, std::strerror(errno));
  _exit(125);
}

namespace {

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

bool IsGpuPython(SandboxProfile profile) {
  return profile == SandboxProfile::kGpuPython || profile == SandboxProfile::kGpuPythonBuild;
}

bool UsesGpu(SandboxProfile profile) {
  return profile == SandboxProfile::kGpuRunner || profile == SandboxProfile::kGpuTool || IsGpuPython(profile);
}

bool HasFiles(SandboxProfile profile) {
  return profile == SandboxProfile::kCompiler || profile == SandboxProfile::kPython;
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

// For an evaluator: the machine as it is, and a place for the root folder of its runners.
void ShowMachine(bool gpu) {
  for (const char* device : {"/dev/null", "/dev/zero", "/dev/urandom"}) Show(device, true, device);
  if (gpu) {
    for (const fs::path& device : GpuDeviceFiles()) Show(device, true, device);
  }
  Show("/sys", false, "/sys");
  Show("/proc", true, "/proc");
  MakeFolders(std::string(kNewRoot) + kNewRoot);
}

// For files that the processes of a tool share.
void ShowTemporaryFolders() {
  for (const char* path : {"/tmp", "/dev/shm"}) {
    const std::string target = std::string(kNewRoot) + path;
    MakeFolders(target);
    if (mount("tmpfs", target.c_str(), "tmpfs", MS_NOSUID | MS_NODEV, "size=256m") != 0) Die(path);
  }
}

// A path that is shown: its folder or file, open, or the target of a link to a file.
struct Held {
  fs::path path, link_target;
  int descriptor = -1;
  bool writable = false;
};

Held Hold(const fs::path& path, bool writable) {
  std::error_code error;
  if (fs::is_symlink(fs::symlink_status(path, error)) && !fs::is_directory(path, error))
    return {path, fs::read_symlink(path, error), -1, writable};
  return {path, {}, open(path.c_str(), O_PATH | O_CLOEXEC), writable};
}

void ShowHeld(const Held& held) {
  const fs::path target = fs::path(kNewRoot) / held.path.relative_path();
  std::error_code error;
  if (!held.link_target.empty()) {
    MakeFolders(target.parent_path());
    fs::create_symlink(held.link_target, target, error);
  }
  if (held.descriptor < 0) return;
  const std::string open_path = "/proc/self/fd/" + std::to_string(held.descriptor);
  if (fs::is_directory(open_path, error)) {
    Show(open_path + "/.", held.writable, held.path);
  } else {
    MakeFolders(target.parent_path());
    if (!fs::exists(target, error)) std::ofstream{target};
    if (mount(open_path.c_str(), target.c_str(), nullptr, MS_BIND, nullptr) != 0) Die("bind mount");
    const bool is_device =
        fs::is_character_file(target, error);  // a read-only mount of it could not be opened
    if (!is_device && !SetReadOnly(target.c_str(), false)) Die("read-only bind mount");
  }
  close(held.descriptor);  // leads to the folder as it was, not read-only
}

// The new root has the system's folders only: no home, no /proc, no /sys, no devices (but see ShowGpu).
void EnterNewRoot(const SandboxOptions& options) {
  if (mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) Die("private mounts");
  // The work folder and the extra paths may lie under /tmp: open them before the tmpfs covers it.
  std::vector<Held> held;
  for (const bool writable : {false, true}) {
    for (const fs::path& path : writable ? options.writable : options.read_only)
      held.push_back(Hold(path, writable));
  }
  const int work =
      options.work_directory.empty() ? -1 : open(options.work_directory.c_str(), O_PATH | O_CLOEXEC);
  if (mount("tmpfs", kNewRoot, "tmpfs", MS_NOSUID | MS_NODEV, "size=64m,mode=755") != 0) Die("tmpfs");
  if (options.profile == SandboxProfile::kGpuTool || options.profile == SandboxProfile::kPython ||
      IsGpuPython(options.profile))
    ShowTemporaryFolders();  // first: mounted folders may lie there
  for (const char* path : kSystemFolders) Show(path, false, path);
  for (const Held& one : held) ShowHeld(one);
  if (work >= 0) Show("/proc/self/fd/" + std::to_string(work) + "/.", true, kSandboxWorkPath);
  if (options.profile == SandboxProfile::kCompiler || options.profile == SandboxProfile::kPython)
    for (const char* device : {"/dev/null", "/dev/urandom"})
      Show(device, true, device);  // torch opens the second
  if (UsesGpu(options.profile)) ShowGpu();
  if (options.profile == SandboxProfile::kEvaluator) ShowMachine(options.gpu);
  if (!options.candidate_file.empty()) WriteCandidate(kNewRoot, options.candidate_file);
  if (chdir(kNewRoot) != 0 || syscall(SYS_pivot_root, ".", ".") != 0 || umount2(".", MNT_DETACH) != 0 ||
      chdir("/") != 0) {
    Die("pivot_root");
  }
  if (!SetReadOnly("/", false)) Die("read-only root");
  if (work >= 0) close(work);
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
    if (IsGpuPython(options.profile)) Limit(RLIMIT_NOFILE, kGpuPythonDescriptors);
    if (IsGpuPython(options.profile) && options.namespaces) Limit(RLIMIT_NPROC, TaskLimit(options, {}));
    return;
  }
  Limit(RLIMIT_AS, mapped_bytes + options.max_memory_bytes);
  Limit(RLIMIT_FSIZE, options.max_file_bytes);
  Limit(RLIMIT_CPU, options.cpu_limit_s);
  Limit(RLIMIT_NOFILE, HasFiles(options.profile) ? 256 : 32);
  Limit(RLIMIT_MEMLOCK, 0);
  if (options.profile == SandboxProfile::kCompiler && options.namespaces)
    Limit(RLIMIT_NPROC, TaskLimit(options, {}));
}

// What the profile may read and write beside the system's folders, by Landlock.
struct Paths {
  std::vector<fs::path> readable, writable;
};

Paths PathsOf(const SandboxOptions& options) {
  Paths paths{options.read_only, options.writable};
  const std::initializer_list<fs::path> machine = {"/proc", "/sys", "/dev/null", "/dev/zero", "/dev/urandom"};
  if (!options.work_directory.empty())
    paths.writable.push_back(options.namespaces ? fs::path(kSandboxWorkPath) : options.work_directory);
  if (options.namespaces && !options.candidate_file.empty()) paths.readable.emplace_back(kCandidatePath);
  switch (options.profile) {
    case SandboxProfile::kCompiler:
      paths.writable.emplace_back("/dev/null");
      paths.readable.emplace_back("/dev/urandom");
      break;
    case SandboxProfile::kGpuPython:
    case SandboxProfile::kGpuPythonBuild:
      for (const fs::path& device : GpuDeviceFiles()) paths.writable.push_back(device);
      paths.writable.insert(paths.writable.end(), {"/tmp", "/dev/shm", "/dev/null"});
      paths.readable.insert(paths.readable.end(), machine);
      break;
    case SandboxProfile::kEvaluator:  // its runners write to their files in /proc
      paths.writable.insert(paths.writable.end(), machine);
      if (!options.gpu) break;
      [[fallthrough]];
    case SandboxProfile::kGpuRunner:
      for (const fs::path& device : GpuDeviceFiles()) paths.writable.push_back(device);
      [[fallthrough]];
    case SandboxProfile::kReference:
      paths.readable.insert(paths.readable.end(), machine);
      break;
    case SandboxProfile::
        kPython:  // without namespaces, which only --unsafe-python permits, these folders are the machine's
      paths.writable.insert(paths.writable.end(), {"/tmp", "/dev/shm", "/dev/null"});
      paths.readable.emplace_back("/dev/urandom");
      break;
    case SandboxProfile::kCandidate:
    case SandboxProfile::kGpuTool:
      break;
  }
  return paths;
}

}  // namespace

SandboxLayers EnterSandbox(const SandboxOptions& options) {
  SandboxLayers layers;
  const auto note = [&](bool on, const char* name) {
    (on ? layers.active : layers.missing).emplace_back(name);
  };
  const bool evaluates = options.profile == SandboxProfile::kEvaluator,
             is_trusted = evaluates || options.profile == SandboxProfile::kReference,
             is_candidate =
                 options.profile == SandboxProfile::kCandidate || options.profile == SandboxProfile::kPython;
  const int64_t mapped_bytes = MappedBytes();
  const OtherUser other_user = is_candidate ? FindOtherUser(options.namespaces) : OtherUser{};
  const int64_t tasks = is_candidate ? TaskLimit(options, other_user) : 0;
  if (!is_trusted)  // when memory runs out, the kernel kills this process first
    std::ofstream("/proc/self/oom_score_adj") << 1000;
  note(options.namespaces, "namespaces");
  if (options.namespaces) {
    EnterNewRoot(options);
  } else if (!options.work_directory.empty() && chdir(options.work_directory.c_str()) != 0) {
    Die("work folder");
  }
  note(options.namespaces, "root folder");
  if (options.before_lock) options.before_lock();
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) Die("no_new_privs");
  // With namespaces an evaluator's runners mount, which Landlock forbids.
  if (options.profile != SandboxProfile::kGpuTool && !(evaluates && options.namespaces)) {
    const Paths paths = PathsOf(options);
    note(RestrictWithLandlock(paths.readable, paths.writable), "Landlock");
  }
  if (is_trusted) {
    Limit(RLIMIT_CORE, 0);
  } else {
    SetLimits(options, mapped_bytes);
  }
  if (is_candidate) Limit(RLIMIT_NPROC, tasks);
  note(true, "limits");
  // Capabilities exist inside our own user namespace, or for root.
  if (evaluates) {
    if (options.namespaces)
      DropPrivileges((CanChangeUser() ? kChangeUser : 0) | kNameRoot | kReadWorkers, {});
  } else if (options.namespaces || geteuid() == 0) {
    DropPrivileges(0, other_user);
  }
  if (!is_trusted) prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
  note(InstallSeccompFilter(options.profile, options.gpu), "seccomp");
  return layers;
}

}  // namespace kevin
