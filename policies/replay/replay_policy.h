#pragma once
// Answers with replies that were stored earlier, in order: re-running history, and scripted policies in
// tests.

#include <memory>
#include <string>
#include <vector>

#include "policies/policy.h"

namespace kevin {

// `name` is what Name() gives ("replay:EPISODE"). `replies` are whole replies, one for each turn from 1;
// Task.turn picks, so that a policy shared by several episodes, or one that goes on later, answers the right
// one. Past the last reply Complete throws Error(kBadRequest).
std::unique_ptr<Policy> MakeReplayPolicy(std::string name, std::vector<std::string> replies);

}  // namespace kevin
