#pragma once
// A policy that answers with stored replies, one a turn: `--policy replay:EPISODE` repeats an episode, and
// tests use it as a scripted policy. Its kernels are evaluated as usual.
// Threads: any; the policy keeps no state.

#include <memory>
#include <string>
#include <vector>

#include "policies/policy.h"

namespace kevin {

// `name` is the result of Name() ("replay:EPISODE"). `replies` holds complete replies, that of turn 1 first.
// Task.turn selects the reply, so that several episodes may share one policy and an interrupted one may
// continue. After the last reply Complete throws NothingLeft.
std::unique_ptr<Policy> MakeReplayPolicy(std::string name, std::vector<std::string> replies);

}  // namespace kevin
