#pragma once
// Which layer of a machine refuses the namespaces of the sandbox, and the setting that changes it. The layers
// are told apart by the error and by what /proc says. For `kevin doctor`.

#include <filesystem>
#include <string>

#include "env/process/spawn.h"

namespace kevin {

struct NamespaceObstacle {
  std::string layer;  // "the limit user.max_user_namespaces = 0"
  std::string fix;    // the command, or the container's option
};

// Where to look; tests give a folder of their own.
struct SystemView {
  std::filesystem::path proc = "/proc";
  std::filesystem::path root = "/";  // for the marks of containers: /.dockerenv, /run/.containerenv
  std::filesystem::path programs;    // the folder of Kevin's programs, for an AppArmor profile
  bool is_root = false;
};
SystemView ThisSystem();

// Of a trial that is not ok().
NamespaceObstacle ObstacleToNamespaces(const NamespaceTrial& trial, const SystemView& system);

// The container's option that lets the runner of a GPU mount a /proc of its own; empty where no part of /proc
// is covered.
std::string FixOfCoveredProc(const SystemView& system);

}  // namespace kevin
