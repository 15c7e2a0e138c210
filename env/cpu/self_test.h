#pragma once
// Runs the sandbox self-test from the trusted side: each forbidden act in a process of its own, all at once.

#include <filesystem>
#include <string>
#include <vector>

namespace kevin {

struct ActResult {
  std::string act;  // "open an internet socket"
  bool blocked = false;
  std::string detail;  // how it was stopped: "refused", "killed at the deadline", "killed by signal ..."
};

struct SelfTestOptions {
  std::filesystem::path runner;  // the program kevin-runner
  std::filesystem::path
      canary_folder;  // a folder of the user's that must stay invisible; a file is put into it
  bool namespaces = true;
  double spin_deadline_s = 0.2;  // after which an endless act is killed
  double timeout_s = 20;         // for the others to report; later is an Error, not "blocked"
};

// Throws Error(kBroken) when the runner cannot be started, or breaks before it tries anything.
std::vector<ActResult> RunSelfTest(const SelfTestOptions& options);

}  // namespace kevin
