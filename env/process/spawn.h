#pragma once
// START HERE for processes. Child processes: where the programs are, starting one, and running one to its end.

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "env/process/usage_watch.h"

namespace kevin {

// --- Programs ---

// The folder of Kevin's programs and plug-ins: that of this program, or ../bin (for tests/ of an unpacked
// bundle).
std::filesystem::path ProgramDirectory();

// `folder / name`, built first if it is missing and KEVIN_BUILD_PROGRAM is set. In a checkout `tools/kevin`
// builds only what most commands need and sets KEVIN_BUILD_PROGRAM to a command that builds one program by
// name; it prints to stderr and takes seconds to minutes. A bundle has all programs. Throws Error(kMachine)
// if the program is missing afterwards. Safe from any thread; concurrent processes build a program once.
std::filesystem::path RequireProgram(const std::filesystem::path& folder, const std::string& name);

// --- Starting a process ---

// What happened when this process asked for all the namespaces of a sandbox.
struct NamespaceTrial {
  int clone_error = 0;       // errno of making them; 0: made
  bool has_mounted = false;  // and a process in them could name its user and mount
  bool ok() const { return clone_error == 0 && has_mounted; }
};
const NamespaceTrial& TriedNamespaces();  // once per process

// Whether this machine permits all the namespaces of a sandbox.
inline bool NamespacesAvailable() { return TriedNamespaces().ok(); }

// Of compilers for a GPU, which run while candidates are timed: the processes that enqueue work, and those that make a context,
// come before them. On 16 processors with as many compilers contexts took several times as long without it. Where the kernel
// groups processes by session (autogroups), the group gets the same value.
inline constexpr int kCompilerNiceness = 10;

struct SpawnOptions {
  std::vector<std::string> argv;         // argv[0] is the path of the program
  std::vector<std::string> environment;  // "NAME=value"; nothing else is inherited
  // (ours, theirs). All others are closed; standard streams that are not listed are /dev/null.
  std::vector<std::pair<int, int>> descriptors;
  bool namespaces = false;      // in new namespaces (env/sandbox/sandbox.h); needs NamespacesAvailable()
  bool sees_processes = false;  // of namespaces, all but that of processes
  int processors = 0;           // the first this many CPUs of this process's affinity mask; 0: all
  int niceness = 0;             // added to this process's own
};

// A started process. The destructor kills (SIGKILL) and reaps it. Move-only.
class ChildProcess {
 public:
  ChildProcess() = default;
  explicit ChildProcess(pid_t pid) : pid_(pid) {}
  ChildProcess(ChildProcess&& other) noexcept;
  ChildProcess& operator=(ChildProcess&& other) noexcept;
  ~ChildProcess();
  pid_t pid() const { return pid_; }
  // Waits at most timeout_s for the end. True: ended, *status is that of waitpid.
  bool Wait(double timeout_s, int* status);
  void Kill();  // SIGKILL, to the processes that it started too, and reap

 private:
  pid_t pid_ = -1;
};

// The second user of a process in new namespaces, where this process is root: its id outside is UnusedId's.
inline constexpr unsigned kSecondUser = 1;
// An id that exists in this user namespace beside 0, if possible one that nothing else has; 0: there is none.
// The file is /proc/self/uid_map or /proc/self/gid_map.
unsigned UnusedId(const char* map_file);

// For a process that forks instead of starting a program (env/python/worker_library.cc). The caller, which has one
// thread, moves into new namespaces; its next child is the first of its namespace of processes. False: refused.
bool UnshareNamespaces();
// Of such a process, who is root there: by another process that is root, with kSecondUser; or by itself.
bool MapTwoUsers(pid_t process);
bool MapOwnUser(unsigned user, unsigned group);

// Throws Error(kBroken) when no process can be started. Safe in a process with threads. In new namespaces the
// process is root; where this process is root too, there is kSecondUser as well.
ChildProcess Spawn(const SpawnOptions& options);

// The exit status of kevin-runner when the candidate calls abort(): a shell's number for SIGABRT.
inline constexpr int kAbortedStatus = 134;

// "killed by signal 11 (Segmentation fault)", "exited with status 3".
std::string DescribeStatus(int status);

// --- Running a process to its end ---

struct Ran {
  std::string output;  // stdout and stderr together, the first `limit` bytes
  int status = 0;      // that of waitpid
  bool timed_out = false;
  std::string exceeded;  // why it was killed for what it took of the machine (UsageWatch); empty: it was not
};

// Replaces `spawn.descriptors`. Kills the process after timeout_s, and where it is over `usage`. Throws Error(kBroken)
// when it cannot be started, and Error(kInterrupted) when *stop is set meanwhile; `stop` may be null.
Ran RunToEnd(SpawnOptions spawn, double timeout_s, size_t limit, const std::atomic<bool>* stop = nullptr,
             const UsageLimits& usage = {});

}  // namespace kevin
