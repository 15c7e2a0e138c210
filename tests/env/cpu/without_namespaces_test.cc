// The whole judge in a process as a container makes them: no namespaces, and root without the capabilities that would show
// it other users' processes. The first case restricts this process for good, so this is a program of its own.

#include <linux/capability.h>
#include <sched.h>
#include <seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <string>

#include "env/cpu/cpu_environment.h"
#include "env/process/spawn.h"
#include "tests/catch.h"
#include "tests/env/cpu/cpu_fixture.h"

namespace kevin {
namespace {

// Of the capabilities that Docker leaves by default; no more.
constexpr uint32_t kKept = 1u << CAP_CHOWN | 1u << CAP_DAC_OVERRIDE | 1u << CAP_FOWNER | 1u << CAP_FSETID |
                           1u << CAP_KILL | 1u << CAP_SETGID | 1u << CAP_SETUID | 1u << CAP_SETPCAP |
                           1u << CAP_NET_BIND_SERVICE | 1u << CAP_SYS_CHROOT;

bool DropCapabilities() {
  for (int capability = 0; prctl(PR_CAPBSET_READ, capability) >= 0; ++capability) {
    if (capability < 32 && (kKept >> capability & 1)) continue;
    if (prctl(PR_CAPBSET_DROP, capability) != 0) return false;
  }
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct data[2] = {{kKept, kKept, 0}, {0, 0, 0}};
  return syscall(SYS_capset, &header, data) == 0;
}

bool RefuseNamespaces() {
  const scmp_filter_ctx filter = seccomp_init(SCMP_ACT_ALLOW);
  if (filter == nullptr) return false;
  const uint64_t made = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC;
  bool is_made = seccomp_rule_add(filter, SCMP_ACT_ERRNO(ENOSYS), SCMP_SYS(clone3), 0) == 0;
  for (uint64_t flag = 1; flag <= made; flag <<= 1) {
    if ((made & flag) == 0) continue;
    for (const int call : {SCMP_SYS(unshare), SCMP_SYS(clone)})
      is_made &= seccomp_rule_add(filter, SCMP_ACT_ERRNO(EPERM), call, 1,
                                  SCMP_A0(SCMP_CMP_MASKED_EQ, flag, flag)) == 0;
  }
  is_made &= seccomp_load(filter) == 0;
  seccomp_release(filter);
  return is_made;
}

}  // namespace

TEST_CASE("without namespaces a right kernel is measured time after time, as root too") {
  if (geteuid() == 0) REQUIRE(DropCapabilities());
  REQUIRE(RefuseNamespaces());
  REQUIRE_FALSE(NamespacesAvailable());

  const TemporaryFolder cache;
  EnvironmentOptions options = SmallLimits(cache.path());
  options.reduced_isolation = true;
  const auto environment = MakeCpuEnvironment(options);
  for (int i = 0; i < 4; ++i) {
    // Of a text of its own each time, because equal ones are compiled once.
    const std::string source = "constexpr int kNumber = " + std::to_string(i) + R"(;
extern "C" void launch(const float* x, float* out) {
#pragma omp parallel for simd
  for (long i = 0; i < B * N; ++i) out[i] = x[i] > 0 ? x[i] : 0;
}
)";
    const Evaluation evaluation = environment->Evaluate(ListedProblem("level1/19"), {"cpp", source}, {});
    INFO(OutcomeReason(evaluation.outcome));
    CHECK(std::string(OutcomeName(evaluation.outcome)) == "measured");
  }
}

}  // namespace kevin
