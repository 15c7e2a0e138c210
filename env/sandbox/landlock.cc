#include <fcntl.h>
#include <linux/landlock.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "env/sandbox/sandbox_layers.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

// Missing in older kernel headers; the numbers are the kernel's ABI.
constexpr uint64_t kFsRefer = 1ULL << 13, kFsTruncate = 1ULL << 14, kFsIoctlDev = 1ULL << 15;
constexpr uint64_t kNetAll = 3;    // bind and connect TCP, ABI 4
constexpr uint64_t kScopeAll = 3;  // abstract Unix sockets and signals, ABI 6

struct RulesetV6 {
  uint64_t handled_access_fs, handled_access_net, scoped;
};

constexpr uint64_t kRead =
    LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_READ_DIR;

uint64_t AllFileRights(int abi) {
  uint64_t rights = (1ULL << 13) - 1;
  if (abi >= 2) rights |= kFsRefer;
  if (abi >= 3) rights |= kFsTruncate;
  if (abi >= 5) rights |= kFsIoctlDev;
  return rights;
}

void Allow(int ruleset, const fs::path& path, uint64_t rights) {
  const int fd = open(path.c_str(), O_PATH | O_CLOEXEC);
  if (fd < 0) return;
  std::error_code error;
  if (!fs::is_directory(path, error)) {
    rights &= LANDLOCK_ACCESS_FS_EXECUTE | LANDLOCK_ACCESS_FS_READ_FILE | LANDLOCK_ACCESS_FS_WRITE_FILE |
              kFsTruncate | kFsIoctlDev;
  }
  landlock_path_beneath_attr rule{};
  rule.allowed_access = rights;
  rule.parent_fd = fd;
  syscall(SYS_landlock_add_rule, ruleset, LANDLOCK_RULE_PATH_BENEATH, &rule, 0);
  close(fd);
}

}  // namespace

bool RestrictWithLandlock(const std::vector<fs::path>& readable, const std::vector<fs::path>& writable) {
  const auto abi =
      static_cast<int>(syscall(SYS_landlock_create_ruleset, nullptr, 0, LANDLOCK_CREATE_RULESET_VERSION));
  if (abi < 1) return false;
  const uint64_t all = AllFileRights(abi);
  RulesetV6 attributes{all, abi >= 4 ? kNetAll : 0, abi >= 6 ? kScopeAll : 0};
  const size_t size = abi >= 6 ? 24 : abi >= 4 ? 16 : 8;
  const auto ruleset = static_cast<int>(syscall(SYS_landlock_create_ruleset, &attributes, size, 0));
  if (ruleset < 0) return false;
  for (const char* path : kSystemFolders) Allow(ruleset, path, kRead);
  for (const auto& path : readable) Allow(ruleset, path, kRead);
  for (const auto& path : writable)
    Allow(ruleset, path,
          all & ~uint64_t{LANDLOCK_ACCESS_FS_MAKE_BLOCK} & ~uint64_t{LANDLOCK_ACCESS_FS_MAKE_CHAR});
  const bool ok = syscall(SYS_landlock_restrict_self, ruleset, 0) == 0;
  close(ruleset);
  return ok;
}

}  // namespace kevin
