#include "env/sandbox/namespace_obstacle.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

namespace kevin {
namespace {

namespace fs = std::filesystem;

// The first line of a file; empty if it cannot be read.
std::string LineOf(const fs::path& path) {
  std::ifstream in(path);
  std::string line;
  std::getline(in, line);
  while (!line.empty() && (line.back() == '\0' || line.back() == '\n')) line.pop_back();
  return line;
}

std::string StatusOf(const SystemView& system, const std::string& key) {
  std::ifstream in(system.proc / "self/status");
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string name, value;
    if (words >> name >> value && name == key + ":") return value;
  }
  return "";
}

bool HasSeccompFilter(const SystemView& system) { return StatusOf(system, "Seccomp") == "2"; }

// The program that runs the container: its options have one syntax.
std::string ContainerProgram(const SystemView& system) {
  std::error_code error;
  return fs::exists(system.root / "run/.containerenv", error) ? "podman" : "docker";
}

std::string Setting(const std::string& name, const std::string& value) {
  return "sudo sysctl -w " + name + "=" + value + " (to keep it: echo " + name + "=" + value +
         " | sudo tee /etc/sysctl.d/90-kevin.conf)";
}

NamespaceObstacle SeccompObstacle(const SystemView& system) {
  return {"the seccomp profile of a container",
          "start the container with `" + ContainerProgram(system) +
              " run --security-opt seccomp=tools/container/seccomp.json`"};
}

// Linux returns ENOSPC where a count of namespaces is at its limit.
NamespaceObstacle CountObstacle(const SystemView& system) {
  for (const char* kind : {"user", "mnt", "pid", "net", "ipc", "uts"}) {
    const std::string name = std::string("max_") + kind + "_namespaces";
    if (LineOf(system.proc / "sys/user" / name) == "0")
      return {"the limit user." + name + " = 0", Setting("user." + name, "15000")};
  }
  const std::string limit = LineOf(system.proc / "sys/user/max_user_namespaces");
  return {"a limit of the number of namespaces (user.max_user_namespaces = " +
              (limit.empty() ? "unknown" : limit) + ")",
          Setting("user.max_user_namespaces", "15000") + "; inside a container, raise it on the host"};
}

// "docker-default (enforce)"; empty where there is none.
std::string ConfiningProfile(const SystemView& system) {
  const std::string profile = LineOf(system.proc / "self/attr/current");
  const bool confines = profile.ends_with("(enforce)");
  return confines ? profile.substr(0, profile.find(" (")) : "";
}

NamespaceObstacle AppArmorObstacle(const SystemView& system) {
  const std::string programs = system.programs.string();
  return {
      "AppArmor (kernel.apparmor_restrict_unprivileged_userns = 1, as on Ubuntu 24.04)",
      "allow them for Kevin's programs: printf 'abi <abi/4.0>,\\ninclude <tunables/global>\\nprofile kevin " +
          programs +
          "/kevin* flags=(unconfined) {\\n  userns,\\n}\\n' | sudo tee /etc/apparmor.d/kevin && "
          "sudo apparmor_parser -r /etc/apparmor.d/kevin; or for all programs: " +
          Setting("kernel.apparmor_restrict_unprivileged_userns", "0")};
}

// A root folder that is no mount point: the kernel makes no user namespaces there.
bool IsInChroot(const SystemView& system) {
  std::ifstream in(system.proc / "self/mountinfo");
  bool has_lines = false;
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string id, parent, device, root, place;
    if (words >> id >> parent >> device >> root >> place && place == "/") return false;
    has_lines = true;
  }
  return has_lines;
}

}  // namespace

// The kernel mounts a second /proc only where the first is whole.
std::string FixOfCoveredProc(const SystemView& system) {
  std::ifstream in(system.proc / "self/mountinfo");
  for (std::string line; std::getline(in, line);) {
    std::istringstream words(line);
    std::string id, parent, device, root, place;
    if (!(words >> id >> parent >> device >> root >> place) || place.rfind("/proc/", 0) != 0) continue;
    if (place.rfind("/proc/sys/fs/binfmt_misc", 0) == 0) continue;
    const std::string program = ContainerProgram(system);
    return "for kernels on a GPU start the container with `" + program + " run --security-opt " +
           (program == "podman" ? "unmask=ALL`" : "systempaths=unconfined`");
  }
  return "";
}

SystemView ThisSystem() { return {"/proc", "/", ProgramDirectory(), geteuid() == 0}; }

NamespaceObstacle ObstacleToNamespaces(const NamespaceTrial& trial, const SystemView& system) {
  const int error = trial.clone_error;
  if (error == ENOSPC || error == EUSERS) return CountObstacle(system);
  if (error == ENOSYS) {
    if (HasSeccompFilter(system)) return SeccompObstacle(system);
    return {"a kernel without namespaces", "use a kernel of Linux 5.13 or newer with CONFIG_USER_NS"};
  }
  if (error == EINVAL) return {"a kernel without user namespaces", "use a kernel with CONFIG_USER_NS"};
  const bool is_debian_switch = LineOf(system.proc / "sys/kernel/unprivileged_userns_clone") == "0";
  if (error != 0 && is_debian_switch && !system.is_root)
    return {"the setting kernel.unprivileged_userns_clone = 0",
            Setting("kernel.unprivileged_userns_clone", "1")};
  const std::string profile = ConfiningProfile(system);
  const bool is_restricted = LineOf(system.proc / "sys/kernel/apparmor_restrict_unprivileged_userns") == "1";
  // AppArmor's restriction lets a program make namespaces and takes its rights in them.
  if (profile.empty() && is_restricted && !system.is_root && (error == 0 || !HasSeccompFilter(system)))
    return AppArmorObstacle(system);
  if (error != 0 && HasSeccompFilter(system)) return SeccompObstacle(system);
  if (!profile.empty()) {
    return {"the AppArmor profile " + profile, profile.find("default") != std::string::npos
                                                   ? "start the container with `" + ContainerProgram(system) +
                                                         " run --security-opt apparmor=unconfined`"
                                                   : "allow `userns,` and `mount,` in that profile"};
  }
  if (error != 0 && IsInChroot(system))
    return {"chroot: its root folder is no mount point", "bind-mount the folder onto itself before chroot"};
  if (error != 0) {
    return {std::string("the kernel (") + std::strerror(error) + ")",
            "as root: sysctl user.max_user_namespaces kernel.unprivileged_userns_clone; SELinux: setsebool "
            "user_namespace 1"};
  }
  return {"a security module: namespaces are made, but nothing can be mounted in them",
          "see the kernel's log (dmesg) for the module that denies mount"};
}

}  // namespace kevin
