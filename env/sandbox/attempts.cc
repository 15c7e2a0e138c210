#include <arpa/inet.h>
#include <dirent.h>
#include <fcntl.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <climits>
#include <cstdlib>
#include <cstring>

#include "env/process/shared_memory.h"
#include "env/sandbox/self_test.h"

namespace kevin {
namespace {

constexpr size_t kBufferBytes = 1 << 20;
constexpr int64_t kMemoryLimitBytes = int64_t{256} << 20;

// Mapped before entering the sandbox, like a candidate's buffers.
struct Buffers {
  Fd outputs_fd;
  Mapping inputs, outputs;
} buffers;

bool CanRead(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY);
  char byte = 0;
  return fd >= 0 && read(fd, &byte, 1) == 1;
}

bool CanWrite(const std::string& path) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT, 0600);
  return fd >= 0 && write(fd, "x", 1) == 1;
}

bool ReadsHome(const std::string& folder, int) { return CanRead(folder + "/canary"); }

bool ListsHome(const std::string& folder, int) { return opendir(folder.c_str()) != nullptr; }

bool ReadsPasswords(const std::string&, int) { return CanRead("/etc/passwd") || CanRead("/etc/shadow"); }

bool ReadsOwnDescriptors(const std::string&, int) {
  return CanRead("/proc/self/maps") || opendir("/proc/self/fd") != nullptr;
}

bool ReadsParentMemory(const std::string&, int parent) {
  return open(("/proc/" + std::to_string(parent) + "/mem").c_str(), O_RDONLY) >= 0;
}

bool OpensSocket(const std::string&, int) {
  return socket(AF_INET, SOCK_STREAM, 0) >= 0 || socket(AF_INET6, SOCK_DGRAM, 0) >= 0;
}

bool OpensUnixSocket(const std::string&, int) {
  int pair[2];
  return socket(AF_UNIX, SOCK_STREAM, 0) >= 0 || socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0;
}

bool Forks(const std::string&, int) {
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  return pid > 0;
}

bool Executes(const std::string&, int) {
  // If this works, the new program's status says so: kAttemptSucceeded.
  const char* const argv[] = {"sh", "-c", "exit 42", nullptr};
  execv("/bin/sh", const_cast<char* const*>(argv));
  const auto vforked = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, nullptr, nullptr, nullptr, nullptr));
  if (vforked == 0) _exit(0);
  return vforked > 0;
}

// A thread as the kernel makes it, without the C library: it waits for ever and touches no stack.
long StartRawThread() {
  static int never = 0;
  static char stack[64];
  constexpr long kFlags = CLONE_VM | CLONE_FS | CLONE_FILES | CLONE_SIGHAND | CLONE_THREAD;
  long result = SYS_clone;
  register int* word asm("r9") = &never;
  register long none asm("r10") = 0;
  register long no_tls asm("r8") = 0;
  asm volatile(
      "syscall\n\t"
      "test %%rax, %%rax\n\t"
      "jnz 1f\n"
      "2:\n\t"
      "mov %[futex], %%eax\n\t"
      "mov %%r9, %%rdi\n\t"
      "xor %%esi, %%esi\n\t"  // FUTEX_WAIT
      "xor %%edx, %%edx\n\t"
      "xor %%r10d, %%r10d\n\t"
      "syscall\n\t"
      "jmp 2b\n"
      "1:"
      : "+a"(result)
      : "D"(kFlags), "S"(stack + sizeof(stack)), "d"(0L), "r"(none), "r"(no_tls),
        "r"(word), [futex] "i"(SYS_futex)
      : "rcx", "r11", "memory");
  return result;
}

bool StartsThreadsWithoutEnd(const std::string&, int) {
  constexpr int kEndless = 3000;
  for (int started = 0; started < kEndless; ++started) {
    if (StartRawThread() < 0) return false;
  }
  return true;
}

bool TracesParent(const std::string&, int parent) {
  return ptrace(PTRACE_ATTACH, parent, nullptr, nullptr) == 0 ||
         ptrace(PTRACE_SEIZE, parent, nullptr, nullptr) == 0;
}

bool ReadsOtherProcess(const std::string&, int parent) {
  char byte = 0;
  iovec local{&byte, 1}, remote{reinterpret_cast<void*>(0x400000), 1};
  return process_vm_readv(parent, &local, 1, &remote, 1, 0) == 1 || errno == EFAULT;
}

bool SignalsParent(const std::string&, int parent) {
  return kill(parent, 0) == 0 || kill(-1, 0) == 0 || syscall(SYS_pidfd_open, parent, 0) >= 0;
}

// Of an interpreter /tmp and /dev/shm are its own, gone with the process.
bool WritesOutside(const std::string& folder, int) {
  return CanWrite(folder + "/written") || CanWrite("/written") || CanWrite("/usr/written");
}
bool WritesTemporaryFiles(const std::string&, int) {
  return CanWrite("/tmp/written") || CanWrite("/dev/shm/written");
}

bool LinksAndRemoves(const std::string& folder, int) {
  return symlink("/etc/passwd", "/link") == 0 || unlink((folder + "/canary").c_str()) == 0 ||
         mkdir("/folder", 0700) == 0;
}

bool AllocatesPastLimit(const std::string&, int) {
  void* memory =
      mmap(nullptr, kMemoryLimitBytes * 2, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory != MAP_FAILED;
}

bool SharesMemoryFile(const std::string&, int) { return syscall(SYS_memfd_create, "x", 0) >= 0; }

bool SpinsPastDeadline(const std::string&, int) {
  for (;;) asm volatile("");
}

bool IgnoresSignals(const std::string&, int) {
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, nullptr);
  return SpinsPastDeadline("", 0);
}

bool UsesIoUring(const std::string&, int) {
  char parameters[256] = {};
  return syscall(SYS_io_uring_setup, 4, parameters) >= 0;
}

bool UsesKernelTracing(const std::string&, int) {
  perf_event_attr attributes{};
  attributes.size = sizeof(attributes);
  return syscall(SYS_perf_event_open, &attributes, 0, -1, -1, 0) >= 0 ||
         syscall(SYS_bpf, 0, nullptr, 0) >= 0 || syscall(SYS_userfaultfd, 0) >= 0;
}

bool ChangesNamespaces(const std::string&, int) {
  return unshare(CLONE_NEWUSER) == 0 || unshare(CLONE_NEWNS) == 0 ||
         mount("tmpfs", "/usr", "tmpfs", 0, nullptr) == 0 || chroot("/usr") == 0;
}

bool ChangesScheduling(const std::string&, int) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(0, &one);
  const sched_param parameter{1};
  return sched_setaffinity(0, sizeof(one), &one) == 0 || setpriority(PRIO_PROCESS, 0, -5) == 0 ||
         setpriority(PRIO_PROCESS, 0, 5) == 0 || sched_setscheduler(0, SCHED_FIFO, &parameter) == 0;
}

constexpr rlimit kNoLimit{RLIM_INFINITY, RLIM_INFINITY};

bool RaisesMemoryLimit(const std::string&, int) { return setrlimit(RLIMIT_AS, &kNoLimit) == 0; }

bool RaisesTimeLimit(const std::string&, int) {
  return setrlimit(RLIMIT_CPU, &kNoLimit) == 0 || setrlimit(RLIMIT_FSIZE, &kNoLimit) == 0;
}

bool CanOpen(const char* path, int flags) { return open(path, flags | O_NONBLOCK | O_NOCTTY) >= 0; }

bool ChangesSettings(const std::string&, int) {
  return CanOpen("/proc/self/oom_score_adj", O_WRONLY) || CanOpen("/proc/self/comm", O_WRONLY) ||
         CanOpen("/proc/sys/kernel/hostname", O_WRONLY) || CanOpen("/sys/kernel/mm/ksm/run", O_WRONLY);
}

bool OpensDevices(const std::string&, int) {
  for (const char* device : {"/dev/random", "/dev/full", "/dev/ptmx", "/dev/kmsg", "/dev/mem", "/dev/fuse"}) {
    if (CanOpen(device, O_RDONLY)) return true;
  }
  return false;
}

bool WritesInputs(const std::string&, int) {
  return mprotect(buffers.inputs.data(), kBufferBytes, PROT_READ | PROT_WRITE) == 0;
}

bool TakesPagesAway(const std::string&, int) {
  constexpr int kMadvCold = 20, kMadvPageout = 21;
  for (std::byte* place : {buffers.outputs.data(), buffers.inputs.data()}) {
    for (const int advice : {MADV_REMOVE, kMadvPageout, kMadvCold}) {
      if (madvise(place, kBufferBytes, advice) == 0) return true;
    }
  }
  return false;
}

bool MovesPages(const std::string&, int) {
  constexpr int kPreferred = 1, kMove = 2;
  for (std::byte* place : {buffers.outputs.data(), buffers.inputs.data()}) {
    if (syscall(SYS_mbind, place, kBufferBytes, kPreferred, nullptr, 0, kMove) == 0) return true;
    void* page = place;
    int node = 0, status = 0;
    if (syscall(SYS_move_pages, 0, 1, &page, &node, &status, kMove) == 0) return true;
  }
  return false;
}

bool PunchesOutputs(const std::string&, int) {
  return fallocate(buffers.outputs_fd.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0;
}

bool OpensWithoutEnd(const std::string&, int) {
  constexpr int kMany = 4096;
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
  for (int i = 0; i < kMany; ++i) {
    if (dup(STDERR_FILENO) < 0) return false;
  }
  return true;
}

bool ResizesBuffers(const std::string&, int) {
  for (int fd = 0; fd < 256; ++fd) {
    if (ftruncate(fd, 0) == 0 || fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0)
      return true;
  }
  return false;
}

void MakeBuffers() {
  const Fd inputs = CreateSharedFile("inputs", kBufferBytes);
  buffers.outputs_fd = CreateSharedFile("outputs", kBufferBytes);
  SealContents(inputs.get());
  SealSize(buffers.outputs_fd.get());
  buffers.inputs = Mapping(inputs.get(), kBufferBytes, Access::kReadOnly, true);
  buffers.outputs = Mapping(buffers.outputs_fd.get(), kBufferBytes, Access::kReadWrite, true);
}

}  // namespace

const std::vector<Attempt>& ForbiddenActs() {
  static const std::vector<Attempt> kActs = {
      {"read a file of the user's home", ReadsHome},
      {"list the user's home", ListsHome},
      {"read the system's account files", ReadsPasswords},
      {"look at its own descriptors in /proc", ReadsOwnDescriptors, false, true},
      {"open the parent's memory", ReadsParentMemory},
      {"open an internet socket", OpensSocket},
      {"open a Unix socket", OpensUnixSocket},
      {.name = "fork", .act = Forks, .build_may = true},
      {.name = "execute another program", .act = Executes, .build_may = true},
      {"start threads without end", StartsThreadsWithoutEnd, false, true},
      {"trace the parent", TracesParent},
      {"read another process's memory", ReadsOtherProcess},
      {"signal the parent", SignalsParent},
      {"write outside its buffers", WritesOutside},
      {"write temporary files", WritesTemporaryFiles, false, true, true},
      {"link, remove or make files", LinksAndRemoves},
      {"allocate past the limit", AllocatesPastLimit, false, true},
      {"create a memory file", SharesMemoryFile, false, true},
      {"spin past the deadline", SpinsPastDeadline, true, true},
      {"block signals and spin", IgnoresSignals, true, true},
      {"use io_uring", UsesIoUring},
      {"use perf, bpf or userfaultfd", UsesKernelTracing},
      {"enter other namespaces or mount", ChangesNamespaces},
      {"change its processors or priority", ChangesScheduling},
      {"raise its limit of memory", RaisesMemoryLimit, false, true},
      {"raise its limits of time and file sizes", RaisesTimeLimit},
      {"change settings in /proc or /sys", ChangesSettings},
      {"open devices that are not its own", OpensDevices},
      {"make its inputs writable", WritesInputs, false, true},
      {.name = "take pages away under shared buffers",
       .act = TakesPagesAway,
       .candidate_only = true,
       .gpu_python = true},
      {.name = "move pages of shared buffers", .act = MovesPages, .candidate_only = true, .gpu_python = true},
      {"resize or punch shared buffers", ResizesBuffers, false, true},
      {.name = "punch holes into its outputs",
       .act = PunchesOutputs,
       .candidate_only = true,
       .gpu_python = true},
      {.name = "open descriptors without end",
       .act = OpensWithoutEnd,
       .candidate_only = true,
       .gpu_python = true},
  };
  return kActs;
}

const char* ProfileName(SandboxProfile profile) {
  switch (profile) {
    case SandboxProfile::kCompiler:
      return "compiler";
    case SandboxProfile::kCandidate:
      return "candidate";
    case SandboxProfile::kGpuRunner:
      return "gpu-runner";
    case SandboxProfile::kGpuTool:
      return "gpu-tool";
    case SandboxProfile::kEvaluator:
      return "evaluator";
    case SandboxProfile::kReference:
      return "reference";
    case SandboxProfile::kPython:
      return "python";
    case SandboxProfile::kGpuPython:
      return "gpu-python";
    case SandboxProfile::kGpuPythonBuild:
      return "gpu-python-build";
  }
  return "";
}

int RunAttempt(bool namespaces, const std::vector<std::string>& arguments) {
  if (arguments.size() != 4) return 2;
  const auto index = static_cast<size_t>(std::stoul(arguments[0]));
  if (index >= ForbiddenActs().size()) return 2;
  // The parent's process id outside this namespace may equal this process's id in it; then no id names the
  // parent.
  int parent = std::stoi(arguments[2]);
  if (parent == getpid()) parent = INT_MAX;
  MakeBuffers();
  SandboxOptions options;
  for (const SandboxProfile profile :
       {SandboxProfile::kCompiler, SandboxProfile::kGpuRunner, SandboxProfile::kEvaluator,
        SandboxProfile::kReference, SandboxProfile::kPython, SandboxProfile::kGpuPython,
        SandboxProfile::kGpuPythonBuild}) {
    if (arguments[3] == ProfileName(profile)) options.profile = profile;
  }
  options.namespaces = namespaces;
  options.max_memory_bytes = kMemoryLimitBytes;
  options.max_file_bytes = 4096;
  EnterSandbox(options);
  const bool succeeded = ForbiddenActs()[index].act(arguments[1], parent);
  return succeeded ? kAttemptSucceeded : kAttemptBlocked;
}

}  // namespace kevin
