#pragma once
// The sandbox self-test: every act that a candidate must not be able to do, tried for real from inside the
// candidate's sandbox, or the GPU runner's. One act per process, because most of them end it.

#include <string>
#include <vector>

#include "env/sandbox/sandbox.h"

namespace kevin {

struct Attempt {
  const char* name;                                               // "read a file of the user's home"
  bool (*act)(const std::string& canary_folder, int parent_pid);  // true: it succeeded, which it must not
  bool endless = false;         // never returns by itself: what is tested is the watchdog
  bool candidate_only = false;  // not forbidden, or without meaning, where no host code of a candidate runs
};

// In the order in which they are reported.
const std::vector<Attempt>& ForbiddenActs();

inline constexpr int kAttemptBlocked = 0;  // exit status of `kevin-runner attempt` when the act was refused;
inline constexpr int kAttemptSucceeded = 42;  // ... when it worked

// "candidate", "gpu-runner", "compiler".
const char* ProfileName(SandboxProfile profile);

// Arguments: index of the act, folder with the file `canary`, process id of the trusted parent, profile.
int RunAttempt(bool namespaces, const std::vector<std::string>& arguments);

}  // namespace kevin
