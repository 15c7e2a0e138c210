#pragma once
// `--policy NAME` -> a policy.

#include <memory>
#include <optional>
#include <string>

#include "agent/policy_options.h"
#include "policies/policy.h"
#include "trajectories/store.h"

namespace kevin {

struct ChosenPolicy {
  std::unique_ptr<Policy> policy;
  std::optional<int> turns;  // how many it has answers for; none: any number
  // For EpisodeOptions: how it samples, and how long a prompt may be.
  Sampling sampling = {};
  int64_t prompt_token_budget = 8192;
};

// "search", "replay:EPISODE" with an episode in `store`, or a model's spec (remote::ParseSpec,
// local::LocalSpec). Throws Error(kBadRequest) for any other name, and when options are given that the policy
// has no use for. Spends nothing; asks a server of one's own how long its model's window is. A local model is
// loaded here, its progress on stderr, and lives as long as the calling thread.
ChosenPolicy MakePolicy(const std::string& name, Store& store, const PolicyOptions& options = {});

}  // namespace kevin
