#include "tools/report/report_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <tuple>
#include <utility>

#include "agent/feedback.h"
#include "agent/journal.h"
#include "agent/json.h"
#include "tools/report/format.h"

namespace kevin {
namespace {

using Rows = std::vector<std::vector<std::string>>;

std::string SideHeading(const std::string& title) { return "\n--- " + title + "\n"; }

const char* Plural(int64_t count) { return count == 1 ? "" : "s"; }

// Nothing where all replies were whole files in a block.
std::string ReplyFormsText(const Side& s) {
  std::string text;
  const auto whole = s.reply_forms[static_cast<size_t>(ReplyForm::kWhole)];
  for (const auto& [form, name] : {std::pair(ReplyForm::kDiff, "diffs"),
                                   {ReplyForm::kFunction, "single functions"},
                                   {ReplyForm::kFile, "files without a fence"}}) {
    const int64_t count = s.reply_forms[static_cast<size_t>(form)];
    if (count > 0) text += fmt::format(", {} {}", CountText(count), name);
  }
  return text.empty() ? "" : fmt::format("; replies: {} whole files{}", CountText(whole), text);
}

std::string SideFacts(const SideReport& one) {
  const Side& s = one.side;
  std::string text = fmt::format("{}: {} problem{}, {} episode{}, {} turn{}", s.name, s.problems.size(),
                                 Plural(static_cast<int64_t>(s.problems.size())), CountText(s.episodes),
                                 Plural(s.episodes), CountText(s.turns), Plural(s.turns));
  if (!s.rules.empty()) text += "; " + SideRulesText(s);
  if (s.unfinished > 0) text += fmt::format("; {} episodes are not done", CountText(s.unfinished));
  if (s.unconfirmed > 0) {
    text +=
        fmt::format("; {} of the best kernels were not measured again, so that their speed-ups are too high",
                    CountText(s.unconfirmed));
  }
  if (s.cached > 0) text += fmt::format("; {} turns repeat a stored verdict", CountText(s.cached));
  if (s.cut_off > 0) text += fmt::format("; {} replies were cut off", CountText(s.cut_off));
  text += ReplyFormsText(s);
  if (s.cost_usd > 0 || s.unknown_costs > 0) text += "; " + MoneyText(s);
  text += "\n";
  const std::string warning = MixedRulesWarning(s);
  return warning.empty() ? text : text + "warning: " + warning + "\n";
}

std::string MetricTable(const Report& report) {
  Rows rows = {{"metric"}};
  for (const SideReport& one : report.sides) rows[0].push_back(one.side.name);
  for (size_t m = 0; m < report.specs.size(); ++m) {
    std::vector<std::string> row = {report.specs[m].label};
    bool is_known = false;
    for (const SideReport& one : report.sides) {
      const Interval& interval = one.groups.front().metrics[m];
      is_known |= !std::isnan(interval.value);
      row.push_back(IntervalText(interval, report.specs[m].unit));
    }
    if (is_known) rows.push_back(row);
  }
  return AlignedTable(rows);
}

std::string ComparisonText(const Report& report, size_t index) {
  const SideComparison& c = report.comparisons[index];
  const std::string names = report.sides[index + 1].side.name + " minus " + report.sides[0].side.name;
  if (c.problems.empty()) return SideHeading(names) + "They have no problem in common.\n";
  Rows rows = {{"metric", "difference", "p", "p adjusted", ""}};
  for (const bool is_tested : {true, false}) {
    for (size_t m = 0; m < report.specs.size(); ++m) {
      const Difference& d = c.differences[m];
      if (std::isnan(d.difference.value) || report.specs[m].is_tested != is_tested) continue;
      rows.push_back({report.specs[m].label, DifferenceText(d.difference, report.specs[m].unit),
                      PValueText(d.p_value), is_tested ? PValueText(d.p_adjusted) : "",
                      SignificanceWord(report, m, d)});
    }
  }
  return SideHeading(fmt::format("{}, on the {} problems that both have", names, c.problems.size())) +
         AlignedTable(rows) +
         "p by paired bootstrap over problems, episodes and measurements. The first rows are tested: "
         "adjusted by "
         "Holm's\nmethod for their number. The others are not tested.\n";
}

std::string GroupTable(const Report& report, const SideReport& one) {
  Rows rows = {{"", "problems", "solved", "fast_1", "mean", "geomean", "best: geomean"}};
  const auto cell = [&](const ReportGroup& group, const char* name) {
    const size_t m = report.MetricIndex(name);
    return IntervalText(group.metrics[m], report.specs[m].unit);
  };
  for (const ReportGroup& group : one.groups) {
    rows.push_back({group.kind == "all" ? "all" : group.name, std::to_string(group.problems.size()),
                    cell(group, "solved_best"), cell(group, "fast_1_avg"), cell(group, "mean_avg"),
                    cell(group, "geomean_avg"), cell(group, "geomean_best")});
  }
  return AlignedTable(rows);
}

std::string TurnCurve(const SideReport& one) {
  Rows rows = {{"turn", "episodes", "compiled", "correct", "fast_1", "solved so far", "best so far"}};
  for (const CurvePoint& p : one.side.by_turn) {
    rows.push_back({std::to_string(p.turn), CountText(p.episodes), ValueText(p.compiled, MetricUnit::kShare),
                    ValueText(p.correct, MetricUnit::kShare), ValueText(p.fast1, MetricUnit::kShare),
                    ValueText(p.solved_so_far, MetricUnit::kShare),
                    ValueText(p.best_so_far, MetricUnit::kRatio)});
  }
  return AlignedTable(rows);
}

// One row a budget, one column a number of turns.
std::string BudgetText(const SideReport& one) {
  int most_turns = 1, most_kernels = 1;
  for (const BudgetCell& cell : one.budgets) {
    most_turns = std::max(most_turns, cell.turns);
    most_kernels = std::max(most_kernels, cell.turns * cell.episodes);
  }
  Rows rows = {{"kernels"}};
  for (int turns = 1; turns <= most_turns; turns *= 2)
    rows[0].push_back(turns == 1 ? "1 turn" : fmt::format("{} turns", turns));
  for (int kernels = 1; kernels <= most_kernels; kernels *= 2) {
    std::vector<std::string> row = {std::to_string(kernels)};
    for (int turns = 1; turns <= most_turns; turns *= 2) {
      std::string text = "-";
      for (const BudgetCell& cell : one.budgets) {
        if (cell.turns == turns && cell.episodes * turns == kernels)
          text = fmt::format("{}, {}", IntervalText(cell.best_interval, MetricUnit::kRatio),
                             ValueText(cell.solved, MetricUnit::kShare));
      }
      row.push_back(text);
    }
    rows.push_back(row);
  }
  return AlignedTable(rows);
}

std::string TimeText(const SideReport& one) {
  const TimeSplit& t = one.side.time;
  const double total = std::max(t.Total(), 1e-9);
  std::string text = "turns took " + SpanText(t.Total());
  const auto part = [&](const char* name, double s) {
    if (s > 0) text += fmt::format(", {} {:.0f} %", name, 100 * s / total);
  };
  part("generate", t.generate_s), part("compile", t.compile_s), part("verify", t.verify_s);
  part("measure", t.measure_s), part("wait", t.wait_s), part("overhead", t.overhead_s);
  text += "\nturns ended as";
  for (size_t i = one.side.outcomes.size(); i-- > 0;) {
    if (one.side.outcomes[i] > 0)
      text += fmt::format("{} {} {}", text.back() == 's' ? "" : ",", CountText(one.side.outcomes[i]),
                          OutcomeKindName(static_cast<OutcomeKind>(i)));
  }
  return text + "\n";
}

}  // namespace

std::string ReportText(const Report& report) {
  std::string text;
  for (const SideReport& one : report.sides) text += SideFacts(one);
  text +=
      fmt::format("intervals: {:g} %, nested bootstrap over problems, episodes and measurements, {} draws\n",
                  100 * report.options.confidence, report.options.replicates);
  text += SideHeading("metrics") + MetricTable(report);
  for (size_t i = 0; i < report.comparisons.size(); ++i) text += ComparisonText(report, i);
  for (const SideReport& one : report.sides) {
    const std::string of = report.sides.size() > 1 ? ": " + one.side.name : "";
    text += SideHeading("levels and families" + of) + GroupTable(report, one);
    text += SideHeading("turn by turn" + of) + TurnCurve(one);
    text += SideHeading("serial and parallel at equal budgets: mean best speed-up, solved" + of) +
            BudgetText(one);
    text += SideHeading("time" + of) + TimeText(one);
  }
  return text;
}

namespace {

// Speed-up and turn of an episode's best kernel. What was not measured again, or whose confirmation does not count, is
// told as its own turn measured it.
std::pair<std::string, std::string> BestCells(Store& store, const EpisodeRecord& episode,
                                              const SideEpisode& best) {
  if (best.is_confirmed) {
    return {
        RatioText(best.value, episode.best_speedup_low.value_or(0), episode.best_speedup_high.value_or(0)),
        std::to_string(episode.best_turn.value_or(0))};
  }
  constexpr const char* kNotAgain = ", not measured again";
  for (const TurnRecord& turn : CurrentTurns(store, episode.id)) {
    const EvaluationRecord& e = turn.evaluation;
    if (turn.turn == 0 || !e.correct || !e.speedup || e.speedup->value != best.value) continue;
    return {RatioText(best.value, e.speedup->low, e.speedup->high) + kNotAgain, std::to_string(turn.turn)};
  }
  return {ValueText(best.value, MetricUnit::kRatio) + kNotAgain, "-"};
}

}  // namespace

std::string BestKernelsText(const Report& report, const ChosenSides& chosen) {
  Rows rows = {{"problem", "name", "best (99 % interval)", "turn", "episode"}};
  const bool many = report.sides.size() > 1;
  const bool mixed = std::any_of(report.sides.begin(), report.sides.end(),
                                 [](const SideReport& one) { return one.side.rules.size() > 1; });
  if (mixed) rows[0].push_back("rules");
  if (many) rows[0].push_back("side");
  for (size_t side = 0; side < report.sides.size(); ++side) {
    for (const SideProblem& problem : report.sides[side].side.problems) {
      const auto best =
          std::max_element(problem.episodes.begin(), problem.episodes.end(),
                           [](const SideEpisode& a, const SideEpisode& b) { return a.value < b.value; });
      std::vector<std::string> row = {problem.id, problem.name, "no correct kernel", "-", "-"};
      std::string rules = "-";
      if (best != problem.episodes.end() && best->value > 0) {
        const ReportSource& source = chosen.sources[chosen.source_of[side]];
        const EpisodeRecord episode =
            source.store->FindEpisode(source.figures.episodes[best->figures_episode].id);
        std::tie(row[2], row[3]) = BestCells(*source.store, episode, *best);
        row[4] = episode.id, rules = episode.workload.rules;
      }
      if (mixed) row.push_back(rules);
      if (many) row.push_back(report.sides[side].side.name);
      rows.push_back(std::move(row));
    }
  }
  return "--- best kernels (kevin export EPISODE --best takes one away)\n" + AlignedTable(rows) + "\n";
}

namespace {

Json IntervalJson(const Interval& i) {
  return {{"value", OrNull(i.value)}, {"low", OrNull(i.low)}, {"high", OrNull(i.high)}};
}

Json MetricsJson(const Report& report, const std::vector<Interval>& metrics) {
  Json json = Json::object();
  for (size_t m = 0; m < metrics.size(); ++m) json[report.specs[m].name] = IntervalJson(metrics[m]);
  return json;
}

Json GroupsJson(const Report& report, const SideReport& one, const std::string& kind) {
  Json json = Json::object();
  for (const ReportGroup& group : one.groups) {
    if (group.kind == kind)
      json[group.name] = {{"problems", group.problems.size()},
                          {"metrics", MetricsJson(report, group.metrics)}};
  }
  return json;
}

Json CurvesJson(const SideReport& one) {
  Json json = {{"fast_curve", Json::array()}, {"by_turn", Json::array()}, {"budgets", Json::array()}};
  for (const FastPoint& p : one.fast_curve)
    json["fast_curve"].push_back({{"p", p.p}, {"avg", p.avg}, {"best", p.best}});
  for (const CurvePoint& p : one.side.by_turn) {
    json["by_turn"].push_back({{"turn", p.turn},
                               {"episodes", p.episodes},
                               {"compiled", p.compiled},
                               {"correct", p.correct},
                               {"fast_1", p.fast1},
                               {"solved_so_far", p.solved_so_far},
                               {"best_so_far", p.best_so_far}});
  }
  for (const BudgetCell& c : one.budgets) {
    json["budgets"].push_back({{"turns", c.turns},
                               {"episodes", c.episodes},
                               {"kernels", c.turns * c.episodes},
                               {"best", IntervalJson(c.best_interval)},
                               {"solved", c.solved},
                               {"problems", c.problems}});
  }
  return json;
}

Json SideJson(const Report& report, size_t index) {
  const SideReport& one = report.sides[index];
  const Side& s = one.side;
  Json event = {{"event", "report"},
                {"part", "side"},
                {"side", s.name},
                {"problems", s.problems.size()},
                {"episodes", s.episodes},
                {"turns", s.turns},
                {"unconfirmed", s.unconfirmed},
                {"unfinished", s.unfinished},
                {"cached", s.cached},
                {"cut_off", s.cut_off},
                {"rules", s.rules},
                {"warning", OrNull(MixedRulesWarning(s))}};
  for (size_t i = 0; i < s.outcomes.size(); ++i)
    event["outcomes"][OutcomeKindName(static_cast<OutcomeKind>(i))] = s.outcomes[i];
  for (size_t i = 1; i < kReplyForms; ++i)
    event["reply_forms"][ReplyFormName(static_cast<ReplyForm>(i))] = s.reply_forms[i];
  event["confidence"] = report.options.confidence;
  event["replicates"] = report.options.replicates;
  event["metrics"] = MetricsJson(report, one.groups.front().metrics);
  event["levels"] = GroupsJson(report, one, "level");
  event["families"] = GroupsJson(report, one, "family");
  event.update(CurvesJson(one));
  event["time"] = {{"generate_s", s.time.generate_s}, {"compile_s", s.time.compile_s},
                   {"verify_s", s.time.verify_s},     {"measure_s", s.time.measure_s},
                   {"wait_s", s.time.wait_s},         {"overhead_s", s.time.overhead_s}};
  event["requests"] = s.requests;
  event["unknown_costs"] = s.unknown_costs;
  event["cost_usd"] = s.requests > 0 || s.cost_usd > 0 ? Json(s.cost_usd) : Json(nullptr);
  event["money_per_solved"] = OrNull(report.Metric(index, "usd_per_solved").value);
  return event;
}

Json ComparisonJson(const Report& report, size_t index) {
  const SideComparison& c = report.comparisons[index];
  Json event = {{"event", "report"},
                {"part", "comparison"},
                {"base", report.sides[0].side.name},
                {"other", report.sides[index + 1].side.name},
                {"problems", c.problems.size()}};
  event["metrics"] = Json::object();
  for (size_t m = 0; m < c.differences.size(); ++m) {
    const Difference& d = c.differences[m];
    const bool is_known = !std::isnan(d.difference.value);
    event["metrics"][report.specs[m].name] = {
        {"base", OrNull(c.base[m])},
        {"other", OrNull(c.other[m])},
        {"difference", OrNull(d.difference.value)},
        {"low", OrNull(d.difference.low)},
        {"high", OrNull(d.difference.high)},
        {"p", is_known ? OrNull(d.p_value) : Json(nullptr)},
        {"p_adjusted", is_known && report.specs[m].is_tested ? OrNull(d.p_adjusted) : Json(nullptr)},
        {"significant", !SignificanceWord(report, m, d).empty()}};
  }
  return event;
}

}  // namespace

std::vector<Json> ReportEvents(const Report& report) {
  std::vector<Json> events;
  for (size_t i = 0; i < report.sides.size(); ++i) events.push_back(SideJson(report, i));
  for (size_t i = 0; i < report.comparisons.size(); ++i) events.push_back(ComparisonJson(report, i));
  return events;
}

}  // namespace kevin
