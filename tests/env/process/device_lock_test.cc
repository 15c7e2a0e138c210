// The lock of a device: fair, closed to strangers, and it says who holds it.

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "env/error.h"
#include "env/process/machine.h"
#include "tests/catch.h"
#include "tests/env/cpu/cpu_fixture.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

// A folder of locks of its own.
class Locks {
 public:
  Locks() { Use(folder_.path().string()); }
  ~Locks() { unsetenv("KEVIN_LOCK_DIRECTORY"); }
  static void Use(const std::string& folder) { setenv("KEVIN_LOCK_DIRECTORY", folder.c_str(), 1); }
  const fs::path& path() const { return folder_.path(); }

 private:
  TemporaryFolder folder_;
};

// A process that holds a lock until it is killed.
class Holder {
 public:
  Holder(const std::string& device, LockMode mode) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    pid_ = fork();
    if (pid_ == 0) {
      const DeviceLock lock(device, mode, nullptr);
      if (write(ends[1], "x", 1) != 1) _exit(1);
      for (;;) pause();
    }
    char byte = 0;
    REQUIRE(read(ends[0], &byte, 1) == 1);
    close(ends[0]);
    close(ends[1]);
  }
  ~Holder() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

}  // namespace

TEST_CASE("compiles that overlap without end do not starve a measurement") {
  const Locks locks;
  std::atomic<bool> done{false};
  std::vector<std::thread> compiles;
  for (int i = 0; i < 4; ++i) {
    compiles.emplace_back([&, i] {
      std::this_thread::sleep_for(milliseconds(10 * i));
      while (!done) {
        const DeviceLock lock("starve", LockMode::kShared, nullptr);
        std::this_thread::sleep_for(milliseconds(40));
      }
    });
  }
  std::this_thread::sleep_for(milliseconds(100));
  // Gives up after 5 s: were it not its turn by then, it never would be.
  std::atomic<bool> stop{false};
  std::thread deadline([&] {
    for (int i = 0; i < 100 && !done; ++i) std::this_thread::sleep_for(milliseconds(50));
    stop = true;
  });
  double wait_s = 0;
  bool measured = false;
  try {
    const DeviceLock lock("starve", LockMode::kExclusive, &wait_s, &stop);
    measured = true;
  } catch (const Error&) {
  }
  done = true;
  deadline.join();
  for (std::thread& compile : compiles) compile.join();
  INFO(wait_s);
  CHECK(measured);
  CHECK(wait_s < 1);
}

TEST_CASE("those who wait get the lock in their order") {
  const Locks locks;
  auto held = std::make_unique<DeviceLock>("order", LockMode::kExclusive, nullptr);
  std::atomic<int> next{0};
  std::vector<int> order(4, -1);
  std::vector<std::thread> waiting;
  for (int i = 0; i < 4; ++i) {
    waiting.emplace_back([&, i] {
      const DeviceLock lock("order", i % 2 ? LockMode::kShared : LockMode::kExclusive, nullptr);
      order[static_cast<size_t>(i)] = next++;
    });
    std::this_thread::sleep_for(milliseconds(50));
  }
  held.reset();
  for (std::thread& thread : waiting) thread.join();
  CHECK(order == std::vector<int>{0, 1, 2, 3});
}

TEST_CASE("the lock's files are closed to strangers") {
  unsetenv("KEVIN_LOCK_DIRECTORY");
  struct stat status {};
  REQUIRE(stat(DeviceLock::Directory().c_str(), &status) == 0);
  CHECK(status.st_uid == geteuid());
  CHECK((status.st_mode & 077) == 0);
  const Locks locks;
  { const DeviceLock lock("modes", LockMode::kShared, nullptr); }
  for (const char* name : {"modes.lock", "modes.gate"}) {
    REQUIRE(stat((locks.path() / name).c_str(), &status) == 0);
    CHECK((status.st_mode & 0777) == 0660);  // its group may share it
  }
  if (geteuid() != 0) return;
  // A stranger, who could hold the lock for ever if he could open it.
  chmod(locks.path().c_str(), 0755);
  const pid_t stranger = fork();
  if (stranger == 0) {
    if (setgid(65534) != 0 || setuid(65534) != 0) _exit(2);
    _exit(open((locks.path() / "modes.lock").c_str(), O_RDONLY) >= 0 ? 1 : 0);
  }
  int ended = 0;
  REQUIRE(waitpid(stranger, &ended, 0) == stranger);
  CHECK(ended == 0);
}

TEST_CASE("a folder that every user can write to is refused, and a missing one") {
  const Locks locks;
  chmod(locks.path().c_str(), 01777);
  CHECK_THROWS_AS(DeviceLock("open", LockMode::kShared, nullptr), Error);
  chmod(locks.path().c_str(), 02770);
  CHECK_NOTHROW(DeviceLock("open", LockMode::kShared, nullptr));
  Locks::Use((locks.path() / "missing").string());
  try {
    const DeviceLock lock("open", LockMode::kShared, nullptr);
    FAIL_CHECK("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kMachine);
    CHECK(error.next_step().find("install -d -m 2770") != std::string::npos);
  }
}

TEST_CASE("where a stranger has taken the name of a user's folder, the user has another") {
  if (geteuid() != 0) return;  // only root can be two users
  const TemporaryFolder cache;
  chmod(cache.path().c_str(), 0777);
  constexpr uid_t kUser = 70001;
  const fs::path usual = "/tmp/kevin-locks-70001";
  fs::remove_all(usual);
  REQUIRE(mkdir(usual.c_str(), 0777) == 0);  // root's
  const pid_t user = fork();
  if (user == 0) {
    unsetenv("KEVIN_LOCK_DIRECTORY");
    setenv("XDG_CACHE_HOME", cache.path().c_str(), 1);
    if (setuid(kUser) != 0) _exit(2);
    try {
      const DeviceLock lock("cpu", LockMode::kExclusive, nullptr);
      _exit(DeviceLock::Directory().string().rfind(cache.path().string(), 0) == 0 ? 0 : 1);
    } catch (const Error&) {
      _exit(3);
    }
  }
  int ended = 0;
  REQUIRE(waitpid(user, &ended, 0) == user);
  CHECK(ended == 0);
  fs::remove_all(usual);
}

TEST_CASE("the holder is named, to those who ask and to those who wait") {
  const Locks locks;
  CHECK(DeviceLock::HoldersOf("named").empty());
  const Holder holder("named", LockMode::kExclusive);
  const std::string text = DeviceLock::HoldersOf("named");
  INFO(text);
  CHECK(text.find("process " + std::to_string(holder.pid()) + " (") == 0);
  CHECK(text.find("process_test") != std::string::npos);
  CHECK(text.find(geteuid() == 0 ? "of user root" : "of user ") != std::string::npos);

  // A child of this process holds it, which is no news here; another child is told.
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t waiting = fork();
  if (waiting == 0) {
    dup2(ends[1], STDERR_FILENO);
    DeviceLock::notice_after_s = 0.1;
    const DeviceLock lock("named", LockMode::kShared, nullptr);
    _exit(0);
  }
  close(ends[1]);
  char line[512] = {};
  const ssize_t size = read(ends[0], line, sizeof(line) - 1);
  kill(waiting, SIGKILL);
  waitpid(waiting, nullptr, 0);
  close(ends[0]);
  REQUIRE(size > 0);
  CHECK(std::string(line).rfind("waiting for named, which is held by process " + std::to_string(holder.pid()),
                                0) == 0);
}

}  // namespace kevin
