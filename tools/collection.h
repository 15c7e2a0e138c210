#pragma once
// What `kevin collect` and `kevin eval` have beside the rollout: budgets, the policies of a collection, and the
// text and events they print.

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/events.h"
#include "agent/rollout/collection.h"
#include "agent/rollout/rollout.h"
#include "tools/policies.h"

namespace CLI {
class App;
}

namespace kevin {

// --- Budget ---

// What a collection may use. --budget-usd, --budget-tokens and --budget-seconds are other names for --dollars,
// --tokens and --hours, as `kevin run` has them.
struct CollectBudget {
  Budget limits;
  std::optional<double> seconds;  // in place of limits.hours
  std::string price;              // "2.5/10": dollars per million prompt and completion tokens
};

// After AddPolicyOptions; `budget` must live as long as `command`.
void AddCollectBudgetOptions(CLI::App* command, CollectBudget* budget);

// Throws Error(kBadRequest) for an invalid price, and for dollars without the price of tokens.
Budget BudgetFrom(const CollectBudget& budget, const PolicyOptions& model);

// --- Policies ---

// The names as the run stores them: a model on a server with its address.
std::vector<std::string> StoredPolicyNames(const std::vector<std::string>& names,
                                           const PolicyOptions& options);

// The policies of a collection. Each is made once and shared by all episodes; all draw on one budget, and all
// sample as the run was begun, in every process.
class CollectPolicies {
 public:
  // Makes the policies of `spec`: the run that begins or, when it has `windows` already, is joined. `options`
  // must not contradict its model_options; `owner` ("run 01K9J4") is for that message. The limits of `budget`
  // on dollars (when the costs are known) and tokens hold to the request. Spends no money. Throws
  // Error(kBadRequest), also for options of models where no policy is a model.
  CollectPolicies(const CollectionSpec& spec, const PolicyOptions& options, const Budget& budget,
                  Store& store, const std::string& owner);

  // For a new run to store.
  const std::map<std::string, CollectionSpec::Window>& windows() const { return windows_; }

  // Continues a stored run. Throws Error(kBadRequest) when it samples in another way than `asked`, the request
  // of this command.
  void GoOnWith(const CollectionSpec& stored, const CollectionSpec& asked, const std::string& owner);

  void AddUsed(const CollectionUsage& usage);  // before this process began

  Policy& Get(const std::string& name) const;  // throws Error(kBadRequest)
  PolicySettings SettingsOf(const std::string& name) const;

 private:
  std::map<std::string, ChosenPolicy> policies_;
  std::map<std::string, CollectionSpec::Window> windows_;  // of those that are models
  std::shared_ptr<remote::Budget> budget_;
};

// --- Text and events: pure functions of a rollout's state ---

struct CollectTotals {
  std::string run;
  int problems = 0, policies = 1, turns = 8;  // of the whole collection
  int devices = 1;                            // of this process
  int64_t turns_at_start = 0;                 // stored before this process began
};

// "12/64 episodes, 3 running | 310 turns/h | solved 8/31 | best 3.1x level1/23 | device busy 87 % | 2 h 10
// min left"; shorter where a figure is not known yet.
std::string ProgressText(const RolloutStatus& status, const CollectTotals& totals, const Budget& budget);

// `progress`: run, waiting, running, done, parked, turns, turns_per_hour, solved, problems, best_problem,
// best_speedup, device_busy (0 to 1), prompt_tokens, completion_tokens, dollars, seconds, seconds_left.
Json ProgressEvent(const RolloutStatus& status, const CollectTotals& totals, const Budget& budget);

// "level1/19 ReLU ... done, 8 turns, 6 correct, best turn 2 with 1.5x (1.4x to 1.6x)"
std::string EpisodeLine(const EpisodeRecord& episode);

// `fault`: problem, policy, number, error, parked.
Json FaultEvent(const EpisodeSpec& spec, const std::string& error, bool parked);

// The table of results, the parked episodes with their reasons, and why the run is not complete.
std::string EndText(const std::vector<ProblemResult>& results, const std::vector<ParkedItem>& parked,
                    const RolloutEnd& end);

// One line a problem and policy, as a table.
std::string ResultTable(const std::vector<ProblemResult>& results);
Json ResultEvent(const ProblemResult& result);

// "45 s", "12 min", "2 h 10 min", "3 d 4 h"
std::string DurationText(double seconds);

}  // namespace kevin
