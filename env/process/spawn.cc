#include "env/process/spawn.h"

#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <optional>
#include <random>
#include <thread>

#include "env/error.h"
#include "env/process/shared_memory.h"

namespace kevin {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// --- Programs ---

namespace {

// Runs `builder name` with its output on stderr. Only system calls between fork and exec: the process has
// threads.
void BuildProgram(const char* builder, const std::string& name) {
  const char* const argv[] = {builder, name.c_str(), nullptr};
  const pid_t child = fork();
  if (child < 0) throw Error(ExitCode::kBroken, "cannot start " + std::string(builder), "free some memory");
  if (child == 0) {
    dup2(STDERR_FILENO, STDOUT_FILENO);
    execv(builder, const_cast<char* const*>(argv));
    _exit(127);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (WIFEXITED(status) && WEXITSTATUS(status) == 0) return;
  const int code = WIFEXITED(status) ? WEXITSTATUS(status) : 4;
  throw Error(code == 130 ? ExitCode::kInterrupted
              : code == 3 ? ExitCode::kMachine
                          : ExitCode::kBroken,
              name + " could not be built (see above)", "run " + std::string(builder) + " " + name);
}

}  // namespace

fs::path ProgramDirectory() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return fs::current_path();
  const fs::path here = program.parent_path();
  return fs::exists(here / "kevin-runner", error) ? here : here.parent_path() / "bin";
}

fs::path RequireProgram(const fs::path& folder, const std::string& name) {
  fs::path path = folder / name;
  if (access(path.c_str(), R_OK) == 0) return path;
  const char* builder = std::getenv("KEVIN_BUILD_PROGRAM");
  if (builder != nullptr && *builder != '\0') {
    BuildProgram(builder, name);
    if (access(path.c_str(), R_OK) == 0) return path;
  }
  throw Error(ExitCode::kMachine, "program " + path.string() + " is missing",
              "in a checkout, build it: tools/setup.sh " + name +
                  " (programs with torch in them need libtorch, which "
                  "that fetches); else install Kevin again");
}

// --- Starting a process ---

namespace {

// Everything that the child uses, prepared in the parent: between clone and exec only system calls are safe.
struct ChildPlan {
  std::vector<char*> argv, environment;
  std::vector<std::pair<int, int>> descriptors;
  std::string uid_map, gid_map;
  int maps_written = -1;  // the end of a pipe: the parent says whether it has written the maps
  int first_free_descriptor = 3;
  cpu_set_t processors{};
  int niceness = 0;
  std::string autogroup;
};

bool WriteProc(const char* path, const std::string& text) {
  const int fd = open(path, O_WRONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const bool ok = write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  close(fd);
  return ok;
}

bool MapUser(const std::string& uid_map, const std::string& gid_map) {
  WriteProc("/proc/self/setgroups", "deny");
  return WriteProc("/proc/self/uid_map", uid_map) && WriteProc("/proc/self/gid_map", gid_map);
}

bool ParentHasMapped(int pipe_end) {
  char answer = 'n';
  return pipe_end >= 0 && read(pipe_end, &answer, 1) == 1 && answer == 'y';
}

[[noreturn]] void RunChild(ChildPlan& plan, bool namespaces) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  setsid();  // not signalled by Ctrl-C; a process group for Kill()
  if (namespaces && !ParentHasMapped(plan.maps_written) && !MapUser(plan.uid_map, plan.gid_map)) _exit(126);
  // First move the sources to high numbers, so that no dup2 overwrites a source.
  for (auto& [ours, theirs] : plan.descriptors) ours = fcntl(ours, F_DUPFD, 100);
  const int nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
  for (int standard = 0; standard < 3; ++standard) dup2(nothing, standard);
  for (auto& [ours, theirs] : plan.descriptors) dup2(ours, theirs);
  close_range(static_cast<unsigned>(plan.first_free_descriptor), ~0U, 0);
  sched_setaffinity(0, sizeof(plan.processors), &plan.processors);
  if (plan.niceness != 0) {
    setpriority(PRIO_PROCESS, 0, getpriority(PRIO_PROCESS, 0) + plan.niceness);
    WriteProc("/proc/self/autogroup", plan.autogroup);  // setsid has made one
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execve(plan.argv[0], plan.argv.data(), plan.environment.data());
  _exit(127);
}

cpu_set_t FirstProcessors(int count) {
  cpu_set_t usable;
  CPU_ZERO(&usable);
  sched_getaffinity(0, sizeof(usable), &usable);
  if (count <= 0) return usable;
  cpu_set_t first;
  CPU_ZERO(&first);
  for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&first) < count; ++cpu) {
    if (CPU_ISSET(cpu, &usable)) CPU_SET(cpu, &first);
  }
  return first;
}

pid_t CloneWith(uint64_t flags) {
  clone_args arguments{};
  arguments.flags = flags;
  arguments.exit_signal = SIGCHLD;
  const auto pid = static_cast<pid_t>(syscall(SYS_clone3, &arguments, sizeof(arguments)));
  if (pid >= 0 || errno != ENOSYS) return pid;
  // Containers refuse clone3, whose flags their filters cannot read.
  return static_cast<pid_t>(syscall(SYS_clone, flags | SIGCHLD, nullptr, nullptr, nullptr, nullptr));
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& s : strings) pointers.push_back(const_cast<char*>(s.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

constexpr uint64_t kNamespaces =
    CLONE_NEWUSER | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWNS | CLONE_NEWIPC | CLONE_NEWUTS;

std::string IdMap(unsigned id) { return "0 " + std::to_string(id) + " 1"; }

NamespaceTrial TryNamespaces() {
  const std::string uid_map = IdMap(geteuid()), gid_map = IdMap(getegid());
  const pid_t pid = CloneWith(kNamespaces);
  if (pid == 0) {
    const bool ok = MapUser(uid_map, gid_map) &&
                    mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
                    mount("tmpfs", "/tmp", "tmpfs", 0, nullptr) == 0;
    _exit(ok ? 0 : 1);
  }
  if (pid < 0) return {errno, false};
  int status = 1;
  return {0, waitpid(pid, &status, 0) == pid && status == 0};
}

}  // namespace

// A limit of processes does not bind the user 0 of the whole machine.
bool MapTwoUsers(pid_t process) {
  if (geteuid() != 0) return false;
  const unsigned user = UnusedId("/proc/self/uid_map"), group = UnusedId("/proc/self/gid_map");
  const std::string folder = "/proc/" + std::to_string(process);
  const auto map = [](unsigned id) {
    return "0 0 1\n" + std::to_string(kSecondUser) + " " + std::to_string(id) + " 1\n";
  };
  return user != 0 && group != 0 && WriteProc((folder + "/uid_map").c_str(), map(user)) &&
         WriteProc((folder + "/gid_map").c_str(), map(group));
}

bool MapOwnUser(unsigned user, unsigned group) { return MapUser(IdMap(user), IdMap(group)); }

bool UnshareNamespaces() { return unshare(static_cast<int>(kNamespaces)) == 0; }

unsigned UnusedId(const char* map_file) {
  constexpr uint64_t kFirst = 0x70000000, kCount = 1 << 24;
  std::ifstream map(map_file);
  unsigned found = 0;
  for (uint64_t inside = 0, outside = 0, count = 0; map >> inside >> outside >> count;) {
    if (inside <= kFirst && inside + count >= kFirst + kCount)
      return static_cast<unsigned>(kFirst + std::random_device()() % kCount);
    if (inside + count > 1) found = static_cast<unsigned>(inside + count - 1);
  }
  return found;
}

const NamespaceTrial& TriedNamespaces() {
  static const NamespaceTrial kTrial = TryNamespaces();
  return kTrial;
}

ChildProcess Spawn(const SpawnOptions& options) {
  ChildPlan plan{
      Pointers(options.argv), Pointers(options.environment),   options.descriptors, {}, {}, -1, 3, {},
      options.niceness,       std::to_string(options.niceness)};
  for (const auto& [ours, theirs] : options.descriptors) {
    plan.first_free_descriptor = std::max(plan.first_free_descriptor, theirs + 1);
  }
  plan.processors = FirstProcessors(options.processors);
  plan.uid_map = IdMap(geteuid());
  plan.gid_map = IdMap(getegid());
  int maps[2] = {-1, -1};
  const bool maps_two = options.namespaces && geteuid() == 0 && pipe2(maps, O_CLOEXEC) == 0;
  const Fd read_end(maps[0]), write_end(maps[1]);
  plan.maps_written = maps[0];
  const pid_t pid = CloneWith(!options.namespaces      ? 0
                              : options.sees_processes ? kNamespaces & ~uint64_t{CLONE_NEWPID}
                                                       : kNamespaces);
  if (pid == 0) RunChild(plan, options.namespaces);
  if (pid > 0 && maps_two) {
    const char answer = MapTwoUsers(pid) ? 'y' : 'n';
    if (write(maps[1], &answer, 1) != 1) kill(pid, SIGKILL);
  }
  if (pid < 0) {
    throw Error(ExitCode::kBroken, "cannot start " + options.argv[0] + ": " + std::strerror(errno),
                "close other programs or raise the limit of processes");
  }
  return ChildProcess(pid);
}

ChildProcess::ChildProcess(ChildProcess&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}

ChildProcess& ChildProcess::operator=(ChildProcess&& other) noexcept {
  if (this != &other) {
    Kill();
    pid_ = std::exchange(other.pid_, -1);
  }
  return *this;
}

ChildProcess::~ChildProcess() { Kill(); }

bool ChildProcess::Wait(double timeout_s, int* status) {
  const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_s);
  auto pause = std::chrono::microseconds(50);
  while (pid_ > 0) {
    const pid_t ended = waitpid(pid_, status, WNOHANG);
    if (ended == pid_) {
      pid_ = -1;
      return true;
    }
    if (Clock::now() >= deadline) return false;
    std::this_thread::sleep_for(pause);
    pause = std::min(pause * 2, std::chrono::microseconds(5000));
  }
  return true;
}

void ChildProcess::Kill() {
  if (pid_ <= 0) return;
  kill(-pid_, SIGKILL);
  kill(pid_, SIGKILL);
  int status = 0;
  while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
  }
  pid_ = -1;
}

std::string DescribeStatus(int status) {
  if (WIFSIGNALED(status)) {
    const int number = WTERMSIG(status);
    return "killed by signal " + std::to_string(number) + " (" + strsignal(number) + ")";
  }
  if (WEXITSTATUS(status) == kAbortedStatus) return "aborted (abort() or an exception that nothing caught)";
  return "exited with status " + std::to_string(WEXITSTATUS(status));
}

// --- Running a process to its end ---

Ran RunToEnd(SpawnOptions spawn, double timeout_s, size_t limit, const std::atomic<bool>* stop,
             const UsageLimits& usage) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0)
    throw Error(ExitCode::kBroken, std::string("cannot make a pipe: ") + std::strerror(errno));
  const Fd read_end(ends[0]);
  Fd write_end(ends[1]);
  spawn.descriptors = {{write_end.get(), STDOUT_FILENO}, {write_end.get(), STDERR_FILENO}};
  ChildProcess child = Spawn(spawn);
  write_end.Reset();
  std::optional<UsageWatch> watch;
  if (usage.IsAny()) watch.emplace(child.pid(), usage);
  Ran ran;
  const auto deadline = Clock::now() + std::chrono::duration<double>(timeout_s);
  for (;;) {
    const double left_s = std::chrono::duration<double>(deadline - Clock::now()).count();
    if (left_s <= 0) {
      ran.timed_out = true;
      child.Kill();
      return ran;
    }
    if (stop != nullptr && *stop) {
      child.Kill();
      throw Error(ExitCode::kInterrupted, "interrupted while a program ran");
    }
    if (watch) ran.exceeded = watch->Exceeded();
    if (!ran.exceeded.empty()) {
      child.Kill();
      return ran;
    }
    pollfd ready{read_end.get(), POLLIN, 0};
    const int wait_ms = static_cast<int>(left_s * 1000) + 1;
    if (poll(&ready, 1, stop == nullptr && !watch ? wait_ms : std::min(wait_ms, 100)) == 0) continue;
    char chunk[65536];
    const ssize_t n = read(read_end.get(), chunk, sizeof(chunk));
    if (n <= 0 && errno != EINTR) break;
    if (n > 0)
      ran.output.append(chunk, std::min(static_cast<size_t>(n), limit - std::min(limit, ran.output.size())));
  }
  ran.timed_out =
      !child.Wait(std::max(std::chrono::duration<double>(deadline - Clock::now()).count(), 0.1), &ran.status);
  return ran;
}

}  // namespace kevin
