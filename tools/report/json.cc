#include "tools/report/json.h"

#include <cmath>

namespace kevin {
namespace {

using Json = nlohmann::ordered_json;

Json Number(double value) { return std::isfinite(value) ? Json(value) : Json(nullptr); }

Json IntervalJson(const Interval& i) {
  return {{"value", Number(i.value)}, {"low", Number(i.low)}, {"high", Number(i.high)}};
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
                {"cut_off", s.cut_off}};
  for (size_t i = 0; i < s.outcomes.size(); ++i)
    event["outcomes"][OutcomeKindName(static_cast<OutcomeKind>(i))] = s.outcomes[i];
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
  event["money_per_solved"] = Number(report.Metric(index, "usd_per_solved").value);
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
        {"base", Number(c.base[m])},
        {"other", Number(c.other[m])},
        {"difference", Number(d.difference.value)},
        {"low", Number(d.difference.low)},
        {"high", Number(d.difference.high)},
        {"p", is_known ? Number(d.p_value) : Json(nullptr)},
        {"p_adjusted", is_known && report.specs[m].is_tested ? Number(d.p_adjusted) : Json(nullptr)},
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
