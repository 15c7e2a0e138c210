#pragma once
// What a collection may use, on the command lines of `collect` and `eval`. --budget-usd, --budget-tokens and
// --budget-seconds are other names for --dollars, --tokens and --hours, as `run` has them.

#include <optional>
#include <string>

#include "agent/rollout/collection.h"
#include "tools/policy_flags.h"

namespace CLI {
class App;
}

namespace kevin {

struct CollectBudget {
  Budget limits;
  std::optional<double> seconds;  // in place of limits.hours
  std::string price;              // "2.5/10": dollars per million prompt and completion tokens
};

// After AddPolicyOptions; `budget` must live as long as `command`.
void AddCollectBudgetOptions(CLI::App* command, CollectBudget* budget);

// Throws Error(kBadRequest) for a price that is none, and for dollars where nobody says what tokens cost.
Budget BudgetFrom(const CollectBudget& budget, const PolicyOptions& model);

}  // namespace kevin
