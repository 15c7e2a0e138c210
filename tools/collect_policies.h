#pragma once
// The policies of a collection. Each is made once and shared by all episodes; all draw on one budget, and all
// sample as the run was begun with, whoever goes on with it.

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "agent/rollout/collection.h"
#include "agent/rollout/rollout.h"
#include "tools/policies.h"

namespace kevin {

// As the run keeps them: a model on a server with the address that is meant here.
std::vector<std::string> StoredPolicyNames(const std::vector<std::string>& names,
                                           const PolicyOptions& options);

class CollectPolicies {
 public:
  // `spec`: of the run that is begun or, when it has `windows` already, joined; its policies are made, and
  // `options` must not contradict its model_options. `owner`: "run 01K9J4", for that. Limits of `budget` on
  // dollars (when the costs are known) and tokens are kept to the request. Spends nothing. Throws
  // Error(kBadRequest), also for options for models where no policy is one.
  CollectPolicies(const CollectionSpec& spec, const PolicyOptions& options, const Budget& budget,
                  Store& store, const std::string& owner);

  // For a new run to keep.
  const std::map<std::string, CollectionSpec::Window>& windows() const { return windows_; }

  // A run that was begun earlier, as it is stored, goes on; throws Error(kBadRequest) when it samples in
  // another way than `asked`, the request of this command.
  void GoOnWith(const CollectionSpec& stored, const CollectionSpec& asked, const std::string& owner);

  void AddUsed(const CollectionUsage& usage);  // before this process began

  Policy& Get(const std::string& name) const;  // throws Error(kBadRequest)
  PolicySettings SettingsOf(const std::string& name) const;

 private:
  std::map<std::string, ChosenPolicy> policies_;
  std::map<std::string, CollectionSpec::Window> windows_;  // of those that are models
  std::shared_ptr<remote::Budget> budget_;
};

}  // namespace kevin
