#include "tools/collect_policies.h"

#include <fmt/format.h>

#include <algorithm>

#include "env/error.h"
#include "policies/local/serve/local_policy.h"
#include "tools/stored_sampling.h"

namespace kevin {
namespace {

bool IsModel(const std::string& name) { return remote::IsRemoteSpec(name) || local::IsLocalSpec(name); }

// What of `options` is for this one of `names`. Options that none of them has a use for are left to the first
// to refuse.
PolicyOptions OptionsFor(const std::string& name, const std::vector<std::string>& names,
                         const PolicyOptions& options) {
  PolicyOptions its = options;
  if (remote::IsRemoteSpec(name)) {
    its.base_url.clear();  // its name has it
  } else if (local::IsLocalSpec(name)) {
    if (std::none_of(names.begin(), names.end(), remote::IsRemoteSpec)) return its;
    its.base_url = its.key_file = its.key_variable = its.ca_file = "";
    its.token_ids = "off";
  } else if (std::any_of(names.begin(), names.end(), IsModel)) {
    its = {};
  }
  return its;
}

}  // namespace

std::vector<std::string> StoredPolicyNames(const std::vector<std::string>& names,
                                           const PolicyOptions& options) {
  std::vector<std::string> stored;
  for (const std::string& name : names) {
    stored.push_back(remote::IsRemoteSpec(name) ? remote::ParseSpec(name, options.base_url).Spec() : name);
  }
  return stored;
}

CollectPolicies::CollectPolicies(const CollectionSpec& spec, const PolicyOptions& options,
                                 const Budget& budget, Store& store, const std::string& owner) {
  PolicyOptions all = WithStoredSampling(options, spec.model_options, owner);
  if (budget.costs_are_known) all.budget_usd = budget.dollars;
  all.budget_tokens = budget.tokens;
  budget_ = std::make_shared<remote::Budget>(
      remote::BudgetOptions{all.budget_usd, std::nullopt, all.budget_tokens});
  all.shared_budget = budget_;
  for (const std::string& name : spec.policies) {
    ChosenPolicy chosen = MakePolicy(name, store, OptionsFor(name, spec.policies, all));
    if (IsModel(name)) windows_[name] = {chosen.sampling.max_tokens, chosen.prompt_token_budget};
    policies_[name] = std::move(chosen);
  }
  for (const auto& [name, window] : spec.windows) windows_[name] = window;
}

void CollectPolicies::GoOnWith(const CollectionSpec& stored, const CollectionSpec& asked,
                               const std::string& owner) {
  const std::string difference = SamplingDifference(stored.model_options, asked.model_options);
  if (!difference.empty()) {
    throw Error(
        ExitCode::kBadRequest,
        fmt::format("{} of the same request is unfinished and samples otherwise: {}", owner, difference),
        "give the same options to go on with it, or begin another with --new-run");
  }
  for (const auto& [name, window] : stored.windows) windows_[name] = window;
}

void CollectPolicies::AddUsed(const CollectionUsage& usage) {
  budget_->Add(static_cast<int>(usage.turns), usage.prompt_tokens + usage.completion_tokens, usage.dollars);
}

Policy& CollectPolicies::Get(const std::string& name) const {
  const auto found = policies_.find(name);
  if (found != policies_.end()) return *found->second.policy;
  throw Error(ExitCode::kBadRequest, fmt::format("policy {}: not part of this run", name), "use --new-run");
}

PolicySettings CollectPolicies::SettingsOf(const std::string& name) const {
  const ChosenPolicy& chosen = policies_.at(name);
  PolicySettings settings{chosen.sampling, chosen.prompt_token_budget};
  if (const auto window = windows_.find(name); window != windows_.end()) {
    settings.sampling.max_tokens = window->second.max_tokens;
    settings.prompt_token_budget = window->second.prompt_tokens;
  }
  return settings;
}

}  // namespace kevin
