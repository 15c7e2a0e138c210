#include "agent/train/evaluation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "agent/json.h"
#include "agent/report/report.h"
#include "env/error.h"

namespace kevin {
namespace {

Json IntervalJson(const Interval& interval) {
  return {{"value", OrNull(interval.value)}, {"low", OrNull(interval.low)}, {"high", OrNull(interval.high)}};
}

Json CellJson(const BudgetCell& cell) {
  return {{"turns", cell.turns},           {"episodes", cell.episodes},
          {"best", OrNull(cell.best)},     {"best_low", OrNull(cell.best_interval.low)},
          {"solved", OrNull(cell.solved)}, {"best_high", OrNull(cell.best_interval.high)},
          {"problems", cell.problems}};
}

Json FindCell(const std::vector<BudgetCell>& cells, int turns, int episodes) {
  const auto found = std::find_if(cells.begin(), cells.end(), [&](const BudgetCell& cell) {
    return cell.turns == turns && cell.episodes == episodes;
  });
  return found == cells.end() ? Json(nullptr) : CellJson(*found);
}

std::string Best(const Json& cell) {
  return cell.is_null() || cell.at("best").is_null() ? "unknown"
                                                     : fmt::format("{:.3g}x", cell.at("best").get<double>());
}

// The largest power of two up to it: budgets are counted in those.
int PowerBelow(int n) {
  int power = 1;
  while (2 * power <= n) power *= 2;
  return power;
}

}  // namespace

void RequireMetric(const std::string& name) {
  std::string known;
  for (const MetricSpec& spec : MetricList({1})) {
    if (!spec.higher_is_better) continue;
    if (spec.name == name) return;
    known += (known.empty() ? "" : ", ") + spec.name;
  }
  throw Error(ExitCode::kBadRequest, "--best-by " + name + ": no such metric", "there are: " + known);
}

Json EvaluationEvent(Store& store, const std::string& run, const EvaluationTerms& terms) {
  const Figures figures = store.LoadFigures({run});
  std::vector<size_t> episodes(figures.episodes.size());
  std::iota(episodes.begin(), episodes.end(), size_t{0});
  const Report report = MakeReport({MakeSide(terms.suite, figures, episodes)}, {});
  const SideReport& side = report.sides.front();
  const int budget = PowerBelow(std::min(terms.episodes, terms.turns));
  Json event = {{"event", "evaluation_step"},
                {"step", terms.step},
                {"suite", terms.suite},
                {"split", terms.split},
                {"run", run},
                {"problems", side.side.problems.size()},
                {"episodes", terms.episodes},
                {"turns", terms.turns},
                {"budget", budget},
                {"serial", FindCell(side.budgets, budget, 1)},
                {"parallel", FindCell(side.budgets, 1, budget)},
                {"budgets", Json::array()},
                {"metrics", Json::object()}};
  for (const BudgetCell& cell : side.budgets) event["budgets"].push_back(CellJson(cell));
  for (size_t i = 0; i < report.specs.size(); ++i)
    event["metrics"][report.specs[i].name] = IntervalJson(side.groups.front().metrics[i]);
  event["best_by"] = terms.best_by;
  event["value"] = event["metrics"].at(terms.best_by).at("value");
  return event;
}

std::string EvaluationLine(const Json& e) {
  const auto metric = [&](const char* name) {
    const Json& value = e.at("metrics").at(name).at("value");
    return value.is_null() ? 0.0 : value.get<double>();
  };
  const auto problems = e.at("problems").get<double>();
  return fmt::format(
      "{}  step {}  {}: solved {:.0f}/{:.0f}, mean speed-up {:.3g}x; {} kernels a problem: "
      "one after the other {}, side by side {}",
      e.at("split") == "test" ? "test      " : "evaluation", e.at("step").get<int64_t>(),
      e.at("suite").get<std::string>(), metric("solved_best") * problems, problems, metric("mean_avg"),
      e.at("budget").get<int>(), Best(e.at("serial")), Best(e.at("parallel")));
}

}  // namespace kevin
