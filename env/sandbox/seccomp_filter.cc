#include <fcntl.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <initializer_list>

#include "env/sandbox/sandbox.h"

#ifdef __clang__  // libseccomp's own macros
#pragma clang diagnostic ignored "-Wc99-extensions"
#pragma clang diagnostic ignored "-Wmissing-field-initializers"
#endif

namespace kevin {
namespace {

void AllowCandidate(scmp_filter_ctx filter) {
  // dlopen of the candidate, memory, own threads, time, exit.
  for (const int call : {SCMP_SYS(futex),           SCMP_SYS(read),
                         SCMP_SYS(pread64),         SCMP_SYS(write),
                         SCMP_SYS(writev),          SCMP_SYS(close),
                         SCMP_SYS(openat),          SCMP_SYS(newfstatat),
                         SCMP_SYS(fstat),           SCMP_SYS(lseek),
                         SCMP_SYS(access),          SCMP_SYS(mmap),
                         SCMP_SYS(munmap),          SCMP_SYS(mprotect),
                         SCMP_SYS(mremap),          SCMP_SYS(brk),
                         SCMP_SYS(set_robust_list), SCMP_SYS(rseq),
                         SCMP_SYS(gettid),          SCMP_SYS(getpid),
                         SCMP_SYS(rt_sigaction),    SCMP_SYS(rt_sigprocmask),
                         SCMP_SYS(rt_sigreturn),    SCMP_SYS(sigaltstack),
                         SCMP_SYS(sched_yield),     SCMP_SYS(sched_getaffinity),
                         SCMP_SYS(clock_gettime),   SCMP_SYS(clock_getres),
                         SCMP_SYS(gettimeofday),    SCMP_SYS(clock_nanosleep),
                         SCMP_SYS(nanosleep),       SCMP_SYS(getrandom),
                         SCMP_SYS(restart_syscall), SCMP_SYS(exit),
                         SCMP_SYS(exit_group),      SCMP_SYS(getcpu),
                         SCMP_SYS(uname),           SCMP_SYS(sysinfo)}) {
    seccomp_rule_add(filter, SCMP_ACT_ALLOW, call, 0);
  }
  // abort(), raise() and reading limits, for this process only.
  seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(tgkill), 1,
                   SCMP_A0(SCMP_CMP_EQ, static_cast<scmp_datum_t>(getpid())));
  seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(prlimit64), 2, SCMP_A0(SCMP_CMP_EQ, 0),
                   SCMP_A2(SCMP_CMP_EQ, 0));
  // Threads, never processes.
  seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(clone), 1,
                   SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD | CLONE_VM, CLONE_THREAD | CLONE_VM));
  seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
  // Advice about own memory. MADV_REMOVE and MADV_PAGEOUT would take pages of shared memory from the trusted
  // side.
  for (const unsigned advice :
       {MADV_NORMAL, MADV_WILLNEED, MADV_DONTNEED, MADV_FREE, MADV_HUGEPAGE, MADV_NOHUGEPAGE}) {
    seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(madvise), 1, SCMP_A2(SCMP_CMP_EQ, advice));
  }
  seccomp_syscall_priority(filter, SCMP_SYS(futex), 255);  // the only call in a timed window
}

// What an interpreter calls besides: names and properties of files, descriptors, folders of its own.
void AllowPython(scmp_filter_ctx filter) {
  AllowCandidate(filter);
  for (const int call : {SCMP_SYS(readlink),       SCMP_SYS(readlinkat), SCMP_SYS(getcwd),
                         SCMP_SYS(getdents64),     SCMP_SYS(open),       SCMP_SYS(stat),
                         SCMP_SYS(lstat),          SCMP_SYS(statx),      SCMP_SYS(faccessat),
                         SCMP_SYS(faccessat2),     SCMP_SYS(dup),        SCMP_SYS(dup2),
                         SCMP_SYS(dup3),           SCMP_SYS(pipe2),      SCMP_SYS(poll),
                         SCMP_SYS(ppoll),          SCMP_SYS(select),     SCMP_SYS(pselect6),
                         SCMP_SYS(getuid),         SCMP_SYS(geteuid),    SCMP_SYS(getgid),
                         SCMP_SYS(getegid),        SCMP_SYS(getppid),    SCMP_SYS(unlink),
                         SCMP_SYS(unlinkat),       SCMP_SYS(mkdir),      SCMP_SYS(mkdirat),
                         SCMP_SYS(rmdir),          SCMP_SYS(rename),     SCMP_SYS(renameat2),
                         SCMP_SYS(umask),          SCMP_SYS(chmod),      SCMP_SYS(utimensat),
                         SCMP_SYS(fsync),          SCMP_SYS(flock),      SCMP_SYS(getrusage),
                         SCMP_SYS(times),          SCMP_SYS(readv),      SCMP_SYS(pwrite64),
                         SCMP_SYS(chdir),          SCMP_SYS(statfs),     SCMP_SYS(fstatfs),
                         SCMP_SYS(set_tid_address)}) {
    seccomp_rule_add(filter, SCMP_ACT_ALLOW, call, 0);
  }
  // Flags, copies and locks of descriptors; no seals, no signals of other processes.
  for (const unsigned command :
       {F_DUPFD, F_GETFD, F_SETFD, F_GETFL, F_SETFL, F_GETLK, F_SETLK, F_DUPFD_CLOEXEC})
    seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(fcntl), 1, SCMP_A1(SCMP_CMP_EQ, command));
  for (const unsigned request : {TCGETS, FIOCLEX})
    seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(ioctl), 1, SCMP_A1(SCMP_CMP_EQ, request));
  seccomp_rule_add(filter, SCMP_ACT_ALLOW, SCMP_SYS(prctl), 1, SCMP_A0(SCMP_CMP_EQ, PR_SET_NAME));
}

void Deny(scmp_filter_ctx filter, std::initializer_list<int> calls) {
  for (const int call : calls) seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), call, 0);
}

// Calls with effects outside the process; no compiler, driver or tool needs them.
void DenyForTool(scmp_filter_ctx filter) {
  Deny(filter, {SCMP_SYS(mount),
                SCMP_SYS(umount2),
                SCMP_SYS(pivot_root),
                SCMP_SYS(chroot),
                SCMP_SYS(unshare),
                SCMP_SYS(setns),
                SCMP_SYS(bpf),
                SCMP_SYS(keyctl),
                SCMP_SYS(add_key),
                SCMP_SYS(request_key),
                SCMP_SYS(io_uring_setup),
                SCMP_SYS(io_uring_enter),
                SCMP_SYS(io_uring_register),
                SCMP_SYS(userfaultfd),
                SCMP_SYS(kexec_load),
                SCMP_SYS(init_module),
                SCMP_SYS(finit_module),
                SCMP_SYS(delete_module),
                SCMP_SYS(swapon),
                SCMP_SYS(reboot),
                SCMP_SYS(open_by_handle_at),
                SCMP_SYS(move_mount),
                SCMP_SYS(open_tree),
                SCMP_SYS(fsopen),
                SCMP_SYS(mount_setattr)});
}

void DenyForCompiler(scmp_filter_ctx filter) {
  DenyForTool(filter);
  Deny(filter, {SCMP_SYS(socket), SCMP_SYS(socketpair), SCMP_SYS(connect), SCMP_SYS(bind), SCMP_SYS(listen),
                SCMP_SYS(ptrace), SCMP_SYS(process_vm_readv), SCMP_SYS(process_vm_writev),
                SCMP_SYS(pidfd_open), SCMP_SYS(pidfd_getfd), SCMP_SYS(pidfd_send_signal),
                SCMP_SYS(sched_setaffinity), SCMP_SYS(sched_setscheduler), SCMP_SYS(setpriority),
                SCMP_SYS(perf_event_open), SCMP_SYS(mknod), SCMP_SYS(mknodat)});
}

// The driver's calls are many and change with its version: this lists calls that it never needs.
void DenyForGpuRunner(scmp_filter_ctx filter) {
  DenyForCompiler(filter);
  Deny(filter, {SCMP_SYS(execve), SCMP_SYS(execveat), SCMP_SYS(fork), SCMP_SYS(vfork)});
  seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(clone), 1,
                   SCMP_A0(SCMP_CMP_MASKED_EQ, CLONE_THREAD, 0));
  // Signals to this process and its threads only; Landlock restricts signals from ABI 6 on.
  for (const int call :
       {SCMP_SYS(kill), SCMP_SYS(tgkill), SCMP_SYS(rt_sigqueueinfo), SCMP_SYS(rt_tgsigqueueinfo)}) {
    seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), call, 1,
                     SCMP_A0(SCMP_CMP_NE, static_cast<scmp_datum_t>(getpid())));
  }
  seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(tkill), 0);
  seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
}

// Host code of a candidate runs: it may neither take pages of shared memory from the trusted side nor move them to another
// node. The driver and torch need no policy of nodes: they work in containers whose filter refuses the same calls with the
// same error to a process without CAP_SYS_NICE (Docker's own), and of torch's libraries only cuFile names mbind.
void DenyTakingPages(scmp_filter_ctx filter) {
  for (const unsigned advice : {MADV_REMOVE, MADV_COLD, MADV_PAGEOUT})
    seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(madvise), 1, SCMP_A2(SCMP_CMP_EQ, advice));
  Deny(filter, {SCMP_SYS(mbind), SCMP_SYS(set_mempolicy), SCMP_SYS(migrate_pages), SCMP_SYS(move_pages)});
  // Holes and the like; not the plain reservation of room.
  seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(fallocate), 1, SCMP_A1(SCMP_CMP_NE, 0));
}

// An evaluator starts runners, which mount and make namespaces. It talks to them through socket pairs and to
// nobody else.
void DenyForEvaluator(scmp_filter_ctx filter, bool gpu) {
  Deny(filter, {SCMP_SYS(bpf),
                SCMP_SYS(keyctl),
                SCMP_SYS(add_key),
                SCMP_SYS(request_key),
                SCMP_SYS(io_uring_setup),
                SCMP_SYS(io_uring_enter),
                SCMP_SYS(io_uring_register),
                SCMP_SYS(userfaultfd),
                SCMP_SYS(kexec_load),
                SCMP_SYS(init_module),
                SCMP_SYS(finit_module),
                SCMP_SYS(delete_module),
                SCMP_SYS(swapon),
                SCMP_SYS(reboot),
                SCMP_SYS(open_by_handle_at),
                SCMP_SYS(setns),
                SCMP_SYS(connect),
                SCMP_SYS(ptrace),
                SCMP_SYS(process_vm_readv),
                SCMP_SYS(process_vm_writev),
                SCMP_SYS(pidfd_getfd)});
  seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), SCMP_SYS(socket), 1, SCMP_A0(SCMP_CMP_NE, AF_UNIX));
  // cuInit of each runner binds a Unix socket and listens on it; nobody outside can connect.
  if (!gpu) Deny(filter, {SCMP_SYS(bind), SCMP_SYS(listen)});
}

}  // namespace

bool InstallSeccompFilter(SandboxProfile profile, bool gpu) {
  // A list of allowed calls; else of refused ones.
  const bool by_list = profile == SandboxProfile::kCandidate || profile == SandboxProfile::kPython;
  scmp_filter_ctx filter = seccomp_init(by_list ? SCMP_ACT_ERRNO(EPERM) : SCMP_ACT_ALLOW);
  if (!filter) return false;
  seccomp_attr_set(filter, SCMP_FLTATR_CTL_OPTIMIZE, 2);
  // A call with a 32-bit number kills the process, not only the thread.
  seccomp_attr_set(filter, SCMP_FLTATR_ACT_BADARCH, SCMP_ACT_KILL_PROCESS);
  // For all threads, also those that a library started when loaded.
  seccomp_attr_set(filter, SCMP_FLTATR_CTL_TSYNC, 1);
  switch (profile) {
    case SandboxProfile::kCompiler:
      DenyForCompiler(filter);
      break;
    case SandboxProfile::kCandidate:
      AllowCandidate(filter);
      break;
    case SandboxProfile::kPython:
      AllowPython(filter);
      break;
    case SandboxProfile::kEvaluator:
      DenyForEvaluator(filter, gpu);
      break;
    case SandboxProfile::kReference:
    case SandboxProfile::kGpuRunner:
      DenyForGpuRunner(filter);
      break;
    case SandboxProfile::kGpuPython:
      DenyForGpuRunner(filter);
      DenyTakingPages(filter);
      break;
    case SandboxProfile::kGpuPythonBuild:
      DenyForCompiler(filter);
      DenyTakingPages(filter);
      break;
    case SandboxProfile::kGpuTool:
      DenyForTool(filter);
      break;
  }
  const bool ok = seccomp_load(filter) == 0;
  seccomp_release(filter);
  return ok;
}

}  // namespace kevin
