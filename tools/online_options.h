#pragma once
// The options of `kevin train` about making turns (agent/train/rollouts.h), and the judges they name.

#include <memory>

#include "agent/train/rollouts.h"
#include "env/environment.h"

namespace CLI {
class App;
}

namespace kevin {

void AddOnlineSettings(CLI::App* command, OnlineSettings* settings);

// Throws Error(kBadRequest) for options that need one another.
void CheckOnlineSettings(const OnlineSettings& settings);

// One environment over all judges. Takes seconds.
std::unique_ptr<Environment> StartJudges(const OnlineSettings& settings);

}  // namespace kevin
