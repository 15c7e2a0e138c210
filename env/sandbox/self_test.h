#pragma once
// The self-test of the sandbox: every act that a candidate must not be able to do is tried from inside the
// sandbox of a candidate, or of the GPU runner. Each act has a process of its own, because most acts end it.

#include <filesystem>
#include <string>
#include <vector>

#include "env/sandbox/sandbox.h"

namespace kevin {

// --- The trusted side ---

struct ActResult {
  std::string act;  // "open an internet socket"
  bool blocked = false;
  std::string detail;  // how it was stopped: "refused", "killed at the deadline", "killed by signal ..."
};

struct SelfTestOptions {
  std::filesystem::path runner;         // the program kevin-runner
  std::filesystem::path canary_folder;  // a folder of the user that must be invisible; gets a file `canary`
  bool namespaces = true;
  SandboxProfile profile = SandboxProfile::kCandidate;  // its acts: IsForbidden
  double spin_deadline_s = 0.2;                         // an endless act is killed after this time
  double timeout_s = 20;  // of the others; exceeding it is an Error, not "blocked"
};

// Runs all acts at once. Throws Error(kBroken) when the runner cannot be started or fails before the act;
// Error(kMachine) when the sandbox cannot be entered on this machine.
std::vector<ActResult> RunSelfTest(const SelfTestOptions& options);

// Runs the self-test and returns the acts that succeeded, "fork, ..."; empty: none. Without `accept_holes`
// (--isolation reduced), throws Error(kSandbox) instead of returning acts.
std::string RequireSandbox(const SelfTestOptions& options, bool accept_holes);

// --- Inside the sandbox: `kevin-runner attempt` ---

struct Attempt {
  const char* name;                                               // "read a file of the user's home"
  bool (*act)(const std::string& canary_folder, int parent_pid);  // true: it succeeded, which is an error
  bool endless = false;                                           // never returns: a test of the watchdog
  bool candidate_only =
      false;                // allowed, or without meaning, in a process that runs no host code of a candidate
  bool python_may = false;  // an interpreter has temporary folders of its own
  bool gpu_python = false;  // `candidate_only`, and forbidden to a Python process on a GPU too
  bool build_may = false;   // a Python process on a GPU may do it while it starts compilers
};

// In the order of the report.
const std::vector<Attempt>& ForbiddenActs();
// Whether a process of the profile may not do it.
bool IsForbidden(const Attempt& attempt, SandboxProfile profile);

// Exit status of `kevin-runner attempt`.
inline constexpr int kAttemptBlocked = 0;
inline constexpr int kAttemptSucceeded = 42;

// "candidate", "gpu-runner", "compiler", "gpu-tool", "gpu-python", "gpu-python-build".
const char* ProfileName(SandboxProfile profile);

// Arguments: the index of the act, the folder with the file `canary`, the process id of the trusted parent,
// the profile.
int RunAttempt(bool namespaces, const std::vector<std::string>& arguments);

}  // namespace kevin
