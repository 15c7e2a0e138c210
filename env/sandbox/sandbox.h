#pragma once
// What keeps hostile text and hostile code in: user, pid, net, ipc, uts and mount namespaces, a root folder
// with nothing but the system's libraries, Landlock, seccomp and rlimits. Two halves:
//   Spawn()         in the trusted process: starts a program, in new namespaces if asked;
//   EnterSandbox()  in that program, before it touches anything hostile: locks the door from the inside.
// What each layer stops, and what none of them stops, is in README.md, "Limits of the sandbox".

#include <sys/types.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace kevin {

// The compiler reads hostile text, the candidate is hostile code.
// kGpuRunner runs no code of a candidate on the host; its sandbox is for what a candidate might break out to.
// kGpuTool is that for one of NVIDIA's tools with a candidate under it: processes, sockets and temporary
// files of its own are allowed, so there is no Landlock.
enum class SandboxProfile { kCompiler, kCandidate, kGpuRunner, kGpuTool };

// Where the work directory is seen; no place where a checkout or a toolchain lies, which it would hide.
inline constexpr const char* kSandboxWorkPath = "/kevin-work";

struct SandboxOptions {
  SandboxProfile profile = SandboxProfile::kCandidate;
  bool namespaces = true;  // the process was started in its own namespaces
  std::vector<std::filesystem::path>
      read_only;                         // visible beside the system's folders, e.g. a compiler's prefix
  std::filesystem::path work_directory;  // writable, seen as kSandboxWorkPath; empty: nothing is writable
  std::string candidate_file;            // bytes to be placed at /candidate.so; empty: none
  int64_t max_memory_bytes = int64_t{4} << 30;  // address space beyond what is mapped already
  int64_t max_file_bytes = int64_t{256} << 20;  // any one file it writes
  int64_t cpu_limit_s = 600;
  std::function<void()> before_lock;  // runs inside the new root, before files and system calls are closed
};

// The layers that are on, e.g. "namespaces, root folder, Landlock, seccomp, limits"; a layer that this
// machine lacks is reported here instead, by name.
struct SandboxLayers {
  std::vector<std::string> active, missing;
};

// Called once, single-threaded. Returns what could be switched on; the caller decides whether that is enough.
// Never throws; ends the process with a message on stderr when a layer that this machine has fails half-way.
SandboxLayers EnterSandbox(const SandboxOptions& options);

// Whether this machine lets us make all the namespaces. Tried once, then remembered.
bool NamespacesAvailable();

struct SpawnOptions {
  std::vector<std::string> argv;         // argv[0] is the program's path
  std::vector<std::string> environment;  // "NAME=value"; nothing else is passed on
  // (ours, theirs); all others are closed, and standard streams that are not named lead nowhere.
  std::vector<std::pair<int, int>> descriptors;
  bool namespaces = false;  // needs NamespacesAvailable()
  int processors = 0;       // runs on the first so many of those that this process may use; 0: on all
};

// A started process; killed (SIGKILL) and reaped when destroyed. Move-only.
class ChildProcess {
 public:
  ChildProcess() = default;
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();
  pid_t pid() const { return pid_; }
  // Waits for the end, at most timeout_s. True: ended, *status as waitpid gives it.
  bool Wait(double timeout_s, int* status);
  void Kill();  // SIGKILL and reap

 private:
  pid_t pid_ = -1;
};

// Throws Error(kBroken) when no process can be started. Safe in a process with threads.
ChildProcess Spawn(const SpawnOptions& options);

// What kevin-runner ends with when the candidate calls abort(): the number a shell gives for SIGABRT.
inline constexpr int kAbortedStatus = 134;

// "killed by signal 11 (Segmentation fault)", "exited with status 3".
std::string DescribeStatus(int status);

}  // namespace kevin
