#pragma once
// START HERE. The sandbox for untrusted text and untrusted code. Its layers: user, pid, net, ipc, uts and mount
// namespaces, a root folder with the system's libraries only, Landlock, seccomp, and rlimits. It has two
// halves:
//   Spawn()         in the trusted process: starts a program in new namespaces (env/process/spawn.h);
//   EnterSandbox()  in that program, before it reads anything untrusted: switches on the other layers.
// env/README.md lists what the sandbox does not prevent.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "env/process/spawn.h"

namespace kevin {

enum class SandboxProfile {
  kCompiler,   // reads untrusted text
  kCandidate,  // runs untrusted code
  kGpuRunner,  // no untrusted code runs on the host: limits the damage of an escape
  // One of NVIDIA's tools with a candidate under it, or a program that compiles and runs the reference with torch. It makes
  // its CUDA context in the sandbox: it may have processes, sockets of its own network and temporary files, and there is
  // no Landlock.
  kGpuTool,
  // The trusted side: runs references, which are texts of others, and starts runners. It sees the folders in
  // read_only and writable, /proc and /sys, and has no network.
  kEvaluator,
  kReference,  // the same without children, and nothing is writable
  // A Python process that runs untrusted code: the calls of a candidate and those that an interpreter needs, folders of
  // its own for temporary files, the interpreter's folders in read_only.
  kPython,
  // The same with the GPU's driver, which needs many calls: calls that it never needs are refused, as for kGpuRunner.
  kGpuPython,
  // The same before anything is timed: it may start compilers, which the first call of a kernel in Triton needs.
  kGpuPythonBuild
};

// The path of the work directory in the sandbox. No checkout or toolchain may lie there: the mount would hide
// it.
inline constexpr const char* kSandboxWorkPath = "/kevin-work";

struct SandboxOptions {
  SandboxProfile profile = SandboxProfile::kCandidate;
  bool namespaces = true;                        // the process was started in new namespaces
  std::vector<std::filesystem::path> read_only;  // visible beside the system's folders: a compiler's prefix
  std::vector<std::filesystem::path> writable;   // of an evaluator, visible under their own paths
  bool gpu = false;                              // an evaluator needs the GPU's devices
  std::filesystem::path work_directory;  // writable, mounted as kSandboxWorkPath; empty: nothing is writable
  std::string candidate_file;            // the bytes of /candidate.so; empty: none
  int64_t max_memory_bytes = int64_t{4} << 30;  // address space beyond the present mappings
  int64_t max_file_bytes = int64_t{256} << 20;  // size of any one file that it writes
  int64_t cpu_limit_s = 600;
  int64_t max_tasks = 0;              // threads of a candidate; 0: MaxCandidateThreads()
  std::function<void()> before_lock;  // runs in the new root, before Landlock and seccomp
};

// The threads that a candidate may have at a time: 256, and 4 a processor of the machine.
int64_t MaxCandidateThreads();

// Layers by name: "namespaces", "root folder", "Landlock", "seccomp", "limits". A layer that this machine
// lacks is in `missing`.
struct SandboxLayers {
  std::vector<std::string> active, missing;
};

// Called once, single-threaded. The caller decides whether the active layers are enough. Never throws; ends
// the process with a message on stderr when an available layer fails.
SandboxLayers EnterSandbox(const SandboxOptions& options);

// The system call filter of a profile, used by EnterSandbox. A candidate may use the calls that arithmetic on
// ready buffers needs, and no others; a compiler may use all but those that no compiler needs. Refused calls
// fail with EPERM (clone3 with ENOSYS, so that the C library uses clone, whose flags the filter can read).
// False when the kernel has no seccomp filters.
bool InstallSeccompFilter(SandboxProfile profile, bool gpu = false);

}  // namespace kevin
