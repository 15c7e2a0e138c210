#pragma once
// Runs the sandbox self-test from the trusted side: each forbidden act in a process of its own, all at once.

#include <filesystem>
#include <string>
#include <vector>

#include "env/sandbox/sandbox.h"

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
  SandboxProfile profile =
      SandboxProfile::kCandidate;  // kGpuRunner: without the acts that are candidate_only
  double spin_deadline_s = 0.2;    // after which an endless act is killed
  double timeout_s = 20;           // for the others to report; later is an Error, not "blocked"
};

// Throws Error(kBroken) when the runner cannot be started, or breaks before it tries anything;
// Error(kMachine) when this machine does not let it lock itself in.
std::vector<ActResult> RunSelfTest(const SelfTestOptions& options);

// Runs it and names what succeeded, "fork, ..."; empty: nothing did. Unless `accept_holes` (--isolation
// reduced), throws Error(kSandbox) instead of giving names.
std::string RequireSandbox(const SelfTestOptions& options, bool accept_holes);

}  // namespace kevin
