#include <grp.h>
#include <linux/prctl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <string>
#include <utility>

#include "env/process/spawn.h"
#include "env/sandbox/sandbox_layers.h"

namespace kevin {
namespace {

// Where a limit of tasks counts all of the user's: room for what the user starts meanwhile.
constexpr int64_t kOtherTasks = 1024;

struct CapabilityHeader {
  uint32_t version = 0x20080522;  // _LINUX_CAPABILITY_VERSION_3
  int pid = 0;
};

struct CapabilityWord {
  uint32_t effective, permitted, inheritable;
};

void BecomeUser(const OtherUser& user) {
  if (setgroups(0, nullptr) != 0 || setresgid(user.group, user.group, user.group) != 0 ||
      setresuid(user.user, user.user, user.user) != 0) {
    Die("cannot change the user");
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);  // the change has cleared it
}

int64_t TasksOfUser(unsigned user) {
  int64_t tasks = 0;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", error)) {
    std::ifstream status(entry.path() / "status");
    unsigned owner = ~0U;
    for (std::string key; status >> key;) {
      if (key == "Uid:") status >> owner;
      int64_t threads = 0;
      if (key == "Threads:" && status >> threads && owner == user) tasks += threads;
    }
  }
  return tasks;
}

}  // namespace

bool CanChangeUser() {
  CapabilityHeader header;
  CapabilityWord words[2] = {};
  return geteuid() == 0 && syscall(SYS_capget, &header, words) == 0 &&
         (words[0].effective & kChangeUser) == kChangeUser;
}

OtherUser FindOtherUser(bool namespaces) {
  if (!CanChangeUser()) return {};
  if (!namespaces) {
    const OtherUser user{UnusedId("/proc/self/uid_map"), UnusedId("/proc/self/gid_map")};
    return user.group == 0 ? OtherUser{} : user;
  }
  std::ifstream map("/proc/self/uid_map");
  for (uint64_t inside = 0, outside = 0, count = 0; map >> inside >> outside >> count;) {
    if (inside == kSecondUser) return {kSecondUser, kSecondUser};
  }
  return {};
}

void DropPrivileges(uint64_t kept, const OtherUser& user) {
  for (int capability = 0; capability <= 63; ++capability) {
    if (!(kept >> capability & 1)) prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
  }
  if (user.user != 0) BecomeUser(user);
  CapabilityHeader header;
  const auto low = static_cast<uint32_t>(kept);
  const CapabilityWord words[2] = {{low, low, 0}, {}};
  if (syscall(SYS_capset, &header, words) != 0) Die("cannot drop capabilities");
}

int64_t MaxCandidateThreads() { return 256 + 4 * sysconf(_SC_NPROCESSORS_CONF); }

// RLIMIT_NPROC counts the tasks of a user in a user namespace since Linux 5.14; before, and without a
// namespace, those of the user on the machine.
int64_t TaskLimit(const SandboxOptions& options, const OtherUser& other_user) {
  const int64_t own = options.max_tasks > 0 ? options.max_tasks : MaxCandidateThreads();
  utsname kernel{};
  int major = 0, minor = 0;
  uname(&kernel);
  std::sscanf(kernel.release, "%d.%d", &major, &minor);
  const bool counts_by_namespace = options.namespaces && std::pair(major, minor) >= std::pair(5, 14);
  return counts_by_namespace || other_user.user != 0 ? own : own + kOtherTasks + TasksOfUser(geteuid());
}

}  // namespace kevin
