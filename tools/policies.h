#pragma once
// `--policy NAME` -> a policy.

#include <memory>
#include <optional>
#include <string>

#include "policies/policy.h"
#include "trajectories/store.h"

namespace kevin {

struct ChosenPolicy {
  std::unique_ptr<Policy> policy;
  std::optional<int> turns;  // how many it has answers for; none: any number
};

// "search", or "replay:EPISODE" with an episode in `store`. Throws Error(kBadRequest) for any other name.
ChosenPolicy MakePolicy(const std::string& name, Store& store);

}  // namespace kevin
