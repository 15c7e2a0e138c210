#pragma once
// A report as text for a terminal and as JSON for scripts.

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "agent/report/report.h"
#include "tools/report/format.h"
#include "tools/report/sides.h"

namespace kevin {

// Sides beside each other, then levels and families, turns, budgets, time. Ends in a line end.
std::string ReportText(const Report& report);

// The best kernel of each problem and side: speed-up, episode, turn. Ends in a line end.
std::string BestKernelsText(const Report& report, const ChosenSides& chosen);

// A side: `event`, `part` "side", `side`, `problems`, `episodes`, `turns`, `outcomes`, `confidence`,
// `replicates`, `metrics` (by name: `value`, `low`, `high`), `levels` and `families` (by name, with
// `problems` and `metrics`), `fast_curve`, `by_turn`, `budgets`, `time`, `requests`, `unknown_costs`,
// `cost_usd`, `money_per_solved`. A comparison: `part` "comparison", `base`, `other`, `problems`, `metrics`
// (by name: `base`, `other`, `difference`, `low`, `high`, `p`, `p_adjusted`, `significant`).
std::vector<nlohmann::ordered_json> ReportEvents(const Report& report);

}  // namespace kevin
