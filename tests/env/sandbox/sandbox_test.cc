// Every forbidden act fails in the sandbox, and would succeed without it.

#include "env/sandbox/sandbox.h"

#include <fcntl.h>
#include <seccomp.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <map>

#include "env/error.h"
#include "env/process/shared_memory.h"
#include "env/sandbox/self_test.h"
#include "tests/catch.h"
#include "tests/env/cpu/cpu_fixture.h"

namespace kevin {
namespace {

SelfTestOptions OptionsFor(SandboxProfile profile, bool namespaces, const std::filesystem::path& home) {
  SelfTestOptions options;
  options.runner = BuiltPrograms() / "kevin-runner";
  options.canary_folder = home;
  options.namespaces = namespaces;
  options.profile = profile;
  return options;
}

// Of ForbiddenActs(), in its order.
std::vector<Attempt> ActsFor(SandboxProfile profile) {
  std::vector<Attempt> acts = ForbiddenActs();
  std::erase_if(acts, [&](const Attempt& act) { return !IsForbidden(act, profile); });
  return acts;
}

void CheckAllBlocked(SandboxProfile profile, bool namespaces) {
  const TemporaryFolder home;
  const std::vector<Attempt> acts = ActsFor(profile);
  const std::vector<ActResult> results = RunSelfTest(OptionsFor(profile, namespaces, home.path()));
  REQUIRE(results.size() == acts.size());
  int blocked = 0;
  for (size_t i = 0; i < results.size(); ++i) {
    INFO(results[i].act << ": " << results[i].detail);
    CHECK(results[i].act == acts[i].name);
    CHECK(results[i].blocked);
    // Only endless acts may be stopped by the watchdog; any other was not tried to its end.
    CHECK((results[i].detail == "killed at the deadline") == acts[i].endless);
    blocked += results[i].blocked;
  }
  std::printf("forbidden acts blocked %d/%zu (%s, %s)\n", blocked, results.size(), ProfileName(profile),
              namespaces ? "with namespaces" : "without namespaces");
}

// Acts that are not tried outside the sandbox, and why.
const std::map<std::string, std::string> kNotTried = {
    {"link, remove or make files", "would change the root folder"},
    {"make its inputs writable", "needs the runner's buffers: tried below"},
    {"take pages away under shared buffers", "needs the runner's buffers: tried below"},
    {"move pages of shared buffers", "needs the runner's buffers"},
    {"punch holes into its outputs", "needs the runner's buffers: tried below"},
    {"resize or punch shared buffers", "would cut this program's own files: tried below"}};

// Acts that a machine may refuse to everybody.
const std::map<std::string, std::string> kMayFail = {
    {"use io_uring", "switched off on this machine"},
    {"use perf, bpf or userfaultfd", "not for ordinary users of this machine"},
    {"enter other namespaces or mount", "not for ordinary users of this machine"},
    {"trace the parent", "not allowed on this machine"},
    {"open the parent's memory", "not allowed on this machine"},
    {"read another process's memory", "not allowed on this machine"},
    {"open descriptors without end", "limited for everybody on this machine"}};

// Exit status of a child that does the act with no sandbox around it. The "parent" is a process of its own
// making.
int StatusOutside(const Attempt& attempt, const std::string& folder) {
  const pid_t child = fork();
  if (child == 0) {
    const int nothing = open("/dev/null", O_RDONLY);
    dup2(nothing, STDIN_FILENO);
    const pid_t victim = fork();
    if (victim == 0) {
      // An act may replace the program that would end this one.
      alarm(20);
      for (int descriptor = 0; descriptor < 256; ++descriptor) close(descriptor);
      pause();
      _exit(0);
    }
    alarm(10);  // an act that waits for ever has not succeeded
    const bool succeeded = attempt.act(folder, victim);
    kill(victim, SIGKILL);
    _exit(succeeded ? kAttemptSucceeded : kAttemptBlocked);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

}  // namespace

TEST_CASE("every forbidden act is blocked, with namespaces") {
  if (!NamespacesAvailable()) {
    std::printf("skipped: this machine has no unprivileged namespaces\n");
    return;
  }
  CheckAllBlocked(SandboxProfile::kCandidate, true);
  CheckAllBlocked(SandboxProfile::kGpuRunner, true);
  CheckAllBlocked(SandboxProfile::kPython, true);
  CheckAllBlocked(SandboxProfile::kGpuPython, true);
  CheckAllBlocked(SandboxProfile::kGpuPythonBuild, true);
}

TEST_CASE(
    "a Python process on a GPU is tried with its shared memory, and may start compilers only while it builds") {
  const auto has = [](SandboxProfile profile, const std::string& name) {
    const std::vector<Attempt> acts = ActsFor(profile);
    return std::any_of(acts.begin(), acts.end(), [&](const Attempt& act) { return act.name == name; });
  };
  for (const SandboxProfile profile : {SandboxProfile::kGpuPython, SandboxProfile::kGpuPythonBuild}) {
    CHECK(has(profile, "take pages away under shared buffers"));
    CHECK(has(profile, "move pages of shared buffers"));
    CHECK(has(profile, "punch holes into its outputs"));
    CHECK(has(profile, "open descriptors without end"));
    CHECK(has(profile, "fork") == (profile == SandboxProfile::kGpuPython));
  }
  CHECK_FALSE(has(SandboxProfile::kGpuRunner, "take pages away under shared buffers"));
}

TEST_CASE("every forbidden act is blocked, without namespaces") {
  CheckAllBlocked(SandboxProfile::kCandidate, false);
  CheckAllBlocked(SandboxProfile::kGpuRunner, false);
}

// The compiler's filter is the GPU runner's but for new processes, which a compiler needs.
TEST_CASE("a sandbox with a rule less is seen to leak, by what it lets through") {
  const TemporaryFolder home;
  const SelfTestOptions options = OptionsFor(SandboxProfile::kCompiler, NamespacesAvailable(), home.path());
  CHECK(RequireSandbox(options, true) == "fork, execute another program");
  try {
    RequireSandbox(options, false);
    FAIL_CHECK("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kSandbox);
    CHECK(std::string(error.what()).ends_with("a candidate could fork, execute another program"));
  }
}

// What remains possible in the processes that run references is what their work needs.
TEST_CASE("a reference's processes reach no file of the user and no network") {
  const TemporaryFolder home;
  CHECK(RequireSandbox(OptionsFor(SandboxProfile::kReference, false, home.path()), true) ==
        "raise its limits of time and file sizes");
  const std::string starts_runners = "open a Unix socket, fork, execute another program, ";
  const std::string alone = "change its processors or priority, raise its limits of time and file sizes";
  if (NamespacesAvailable()) {
    CHECK(RequireSandbox(OptionsFor(SandboxProfile::kEvaluator, true, home.path()), true) ==
          starts_runners + "enter other namespaces or mount, " + alone +
              ", change settings in /proc or /sys");
  }
}

TEST_CASE("a candidate's threads are limited, for root and for others, and the limit leaves room for work") {
  CHECK(MaxCandidateThreads() >= 256);
  if (geteuid() != 0) return;  // root has tried it above
  const TemporaryFolder home;
  chmod(home.path().c_str(), 0777);
  // The build folder may be closed to other users.
  const std::filesystem::path runner = home.path() / "kevin-runner";
  std::filesystem::copy_file(BuiltPrograms() / "kevin-runner", runner);
  const pid_t child = fork();
  if (child == 0) {
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(2);
    prctl(PR_SET_DUMPABLE, 1);  // as after exec: its children own their files in /proc
    try {
      for (const bool namespaces : {true, false}) {
        SelfTestOptions options = OptionsFor(SandboxProfile::kCandidate, namespaces, home.path());
        options.runner = runner;
        const std::string holes = RequireSandbox(options, true);
        if (!holes.empty()) std::fprintf(stderr, "%s\n", holes.c_str());
        if (!holes.empty()) _exit(1);
      }
    } catch (const Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      _exit(3);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("processes start where a container's filter knows no clone3") {
  const pid_t child = fork();
  if (child == 0) {
    scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
    seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0);
    if (seccomp_load(filter) != 0) _exit(2);
    SpawnOptions options;
    options.argv = {"/bin/sh", "-c", "exit 7"};
    int status = 0;
    ChildProcess started = Spawn(options);
    _exit(started.Wait(10, &status) && WIFEXITED(status) && WEXITSTATUS(status) == 7 ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  CHECK(status == 0);
}

TEST_CASE("the acts would succeed without the sandbox") {
  const TemporaryFolder home;
  std::ofstream(home.path() / "canary") << "secret\n";
  for (const Attempt& attempt : ForbiddenActs()) {
    if (attempt.endless) {
      std::printf("  %-40s not tried: never returns\n", attempt.name);
      continue;
    }
    if (const auto reason = kNotTried.find(attempt.name); reason != kNotTried.end()) {
      std::printf("  %-40s not tried: %s\n", attempt.name, reason->second.c_str());
      continue;
    }
    const bool succeeded = StatusOutside(attempt, home.path()) == kAttemptSucceeded;
    const auto excuse = kMayFail.find(attempt.name);
    std::printf("  %-40s %s\n", attempt.name,
                succeeded                  ? "succeeds outside"
                : excuse != kMayFail.end() ? excuse->second.c_str()
                                           : "FAILS OUTSIDE TOO");
    INFO(attempt.name);
    CHECK((succeeded || excuse != kMayFail.end()));
  }
}

TEST_CASE("what seals and filters keep away from shared buffers works without them") {
  constexpr size_t kBytes = 1 << 20;
  const Fd open_file = CreateSharedFile("open", kBytes), sealed = CreateSharedFile("sealed", kBytes);
  const Mapping readable(open_file.get(), kBytes, Access::kReadOnly, true);
  CHECK(mprotect(readable.data(), kBytes, PROT_READ | PROT_WRITE) == 0);
  CHECK(ftruncate(open_file.get(), 0) == 0);
  SealContents(sealed.get());
  const Mapping inputs(sealed.get(), kBytes, Access::kReadOnly, true);
  CHECK(mprotect(inputs.data(), kBytes, PROT_READ | PROT_WRITE) != 0);
  CHECK(ftruncate(sealed.get(), 0) != 0);
  // A hole is not a shorter file: only the system call filter stands against it.
  const Fd outputs_file = CreateSharedFile("outputs", kBytes);
  SealSize(outputs_file.get());
  const Mapping outputs(outputs_file.get(), kBytes, Access::kReadWrite, true);
  CHECK(ftruncate(outputs_file.get(), 0) != 0);
  CHECK(madvise(outputs.data(), kBytes, MADV_REMOVE) == 0);
  CHECK(fallocate(outputs_file.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, 4096) == 0);
}

TEST_CASE("a spawned program gets the descriptors it is given and no others") {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  int secret[2];  // not to be passed on: takes the place of standard input here
  REQUIRE(pipe(secret) == 0);
  REQUIRE(write(secret[1], "secret", 6) == 6);
  const int before = dup(STDIN_FILENO);
  dup2(secret[0], STDIN_FILENO);
  SpawnOptions options;
  options.argv = {"/bin/sh", "-c",
                  "cat; for fd in /proc/$$/fd/*; do [ -e $fd ] && echo \"[${fd##*/}]\"; done"};
  options.descriptors = {{ends[1], STDOUT_FILENO}};
  ChildProcess child = Spawn(options);
  close(ends[1]);
  std::string said;
  for (char chunk[256]; true;) {
    const ssize_t n = read(ends[0], chunk, sizeof(chunk));
    if (n <= 0) break;
    said.append(chunk, static_cast<size_t>(n));
  }
  dup2(before, STDIN_FILENO);
  int status = 0;
  CHECK(child.Wait(10, &status));
  INFO(said);
  CHECK(said.find("secret") == std::string::npos);
  CHECK(said.find("[1]") != std::string::npos);
  for (int descriptor = 3; descriptor <= secret[1]; ++descriptor) {
    CHECK(said.find("[" + std::to_string(descriptor) + "]") == std::string::npos);
  }
}

TEST_CASE("the self-test says when the runner itself is broken") {
  const TemporaryFolder home;
  SelfTestOptions options;
  options.runner = "/nonexistent/kevin-runner";
  options.canary_folder = home.path();
  options.namespaces = false;
  CHECK_THROWS_AS(RunSelfTest(options), Error);
}

}  // namespace kevin
