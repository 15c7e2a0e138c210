// Each layer that can refuse namespaces, as /proc and the error show it.

#include "env/sandbox/namespace_obstacle.h"

#include <cerrno>

#include "tests/catch.h"
#include "tests/env/cpu/cpu_fixture.h"

namespace kevin {
namespace {

// A machine of files.
class Machine {
 public:
  Machine() {
    view_.proc = folder_.path() / "proc";
    view_.root = folder_.path();
    view_.programs = "/opt/kevin/bin";
    Put("proc/self/status", "Name:\tkevin\nNoNewPrivs:\t0\nSeccomp:\t0\n");
    Put("proc/self/mountinfo", "21 1 254:0 / / rw - ext4 /dev/vda rw\n");
    Put("proc/sys/user/max_user_namespaces", "95000\n");
  }
  Machine& Put(const std::string& path, const std::string& text) {
    std::filesystem::create_directories((folder_.path() / path).parent_path());
    std::ofstream(folder_.path() / path) << text;
    return *this;
  }
  Machine& UnderSeccomp() { return Put("proc/self/status", "Name:\tkevin\nNoNewPrivs:\t0\nSeccomp:\t2\n"); }
  Machine& AsRoot() {
    view_.is_root = true;
    return *this;
  }
  const SystemView& view() const { return view_; }
  // "layer | fix"
  std::string Refuses(const NamespaceTrial& trial) const {
    const NamespaceObstacle obstacle = ObstacleToNamespaces(trial, view_);
    return obstacle.layer + " | " + obstacle.fix;
  }

 private:
  TemporaryFolder folder_;
  SystemView view_;
};

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

constexpr NamespaceTrial kNoMount{0, false};

}  // namespace

TEST_CASE("a limit of zero namespaces is named, whichever it is") {
  Machine machine;
  machine.Put("proc/sys/user/max_user_namespaces", "0\n");
  CHECK(Has(machine.Refuses({ENOSPC, false}),
            "user.max_user_namespaces = 0 | sudo sysctl -w user.max_user_namespaces=15000"));
  Machine nets;
  nets.Put("proc/sys/user/max_net_namespaces", "0\n");
  CHECK(Has(nets.Refuses({ENOSPC, false}),
            "user.max_net_namespaces = 0 | sudo sysctl -w user.max_net_namespaces="));
  CHECK(Has(Machine().Refuses({ENOSPC, false}), "user.max_user_namespaces = 95000"));
}

TEST_CASE("Debian's switch is named, but not to root, whom it does not concern") {
  Machine machine;
  machine.Put("proc/sys/kernel/unprivileged_userns_clone", "0\n");
  CHECK(Has(machine.Refuses({EPERM, false}),
            "kernel.unprivileged_userns_clone = 0 | sudo sysctl -w kernel.unprivileged_userns_clone=1"));
  CHECK(!Has(machine.AsRoot().UnderSeccomp().Refuses({EPERM, false}), "unprivileged_userns_clone = 0"));
}

TEST_CASE("Ubuntu's AppArmor makes namespaces without rights") {
  Machine machine;
  machine.Put("proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1\n")
      .Put("proc/self/attr/current", "unconfined\n");
  const std::string said = machine.Refuses(kNoMount);
  CHECK(Has(said, "apparmor_restrict_unprivileged_userns = 1"));
  CHECK(Has(said, "profile kevin /opt/kevin/bin/kevin* flags=(unconfined)"));
  CHECK(Has(said, "kernel.apparmor_restrict_unprivileged_userns=0"));
  CHECK(Has(machine.Refuses({EACCES, false}), "apparmor_restrict_unprivileged_userns = 1"));
}

TEST_CASE("Docker's and podman's seccomp are told from a missing kernel feature") {
  Machine docker;
  docker.UnderSeccomp().Put("proc/self/attr/current", "docker-default (enforce)\n").Put(".dockerenv", "");
  for (const int error : {EPERM, ENOSYS}) {
    const std::string said = docker.Refuses({error, false});
    CHECK(Has(said, "seccomp profile of a container"));
    CHECK(Has(said, "docker run --security-opt seccomp=tools/container/seccomp.json"));
  }
  Machine podman;
  podman.UnderSeccomp().Put("run/.containerenv", "");
  CHECK(Has(podman.Refuses({EPERM, false}), "podman run --security-opt seccomp="));
  CHECK(Has(Machine().Refuses({ENOSYS, false}), "kernel without namespaces"));
  CHECK(Has(Machine().Refuses({EINVAL, false}), "CONFIG_USER_NS"));
}

TEST_CASE("a container's AppArmor profile forbids to mount") {
  Machine docker;
  docker.UnderSeccomp().Put("proc/self/attr/current", "docker-default (enforce)\n");
  CHECK(Has(
      docker.Refuses(kNoMount),
      "profile docker-default | start the container with `docker run --security-opt apparmor=unconfined`"));
  Machine own;
  own.Put("proc/self/attr/current", "site-policy (enforce)\n");
  CHECK(Has(own.Refuses(kNoMount), "profile site-policy | allow `userns,`"));
}

TEST_CASE("a chroot and an unknown layer are said to be that") {
  Machine machine;
  machine.Put("proc/self/mountinfo", "21 1 254:0 / /home rw - ext4 /dev/vda rw\n");
  CHECK(Has(machine.Refuses({EPERM, false}), "chroot"));
  CHECK(Has(Machine().Refuses({EPERM, false}), "the kernel (Operation not permitted)"));
  CHECK(Has(Machine().Refuses(kNoMount), "security module"));
}

TEST_CASE("a /proc that a container covers in part is noticed") {
  Machine machine;
  CHECK(FixOfCoveredProc(machine.view()).empty());
  machine.Put("proc/self/mountinfo",
              "21 1 0:5 / / rw - overlay o rw\n22 21 0:6 / /proc rw - proc proc rw\n"
              "23 22 0:7 / /proc/sys/fs/binfmt_misc rw - binfmt_misc b rw\n");
  CHECK(FixOfCoveredProc(machine.view()).empty());
  machine.Put("proc/self/mountinfo", "23 22 0:7 /null /proc/kcore rw - tmpfs t rw\n");
  CHECK(Has(FixOfCoveredProc(machine.view()), "docker run --security-opt systempaths=unconfined"));
  machine.Put("run/.containerenv", "");
  CHECK(Has(FixOfCoveredProc(machine.view()), "podman run --security-opt unmask=ALL"));
}

}  // namespace kevin
