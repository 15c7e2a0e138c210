#include "tools/report/page_charts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "tools/report/charts.h"
#include "tools/report/format.h"
#include "tools/report/html.h"

namespace kevin {
namespace {

std::vector<ChartSeries> FastSeries(const Report& report) {
  std::vector<ChartSeries> series;
  for (size_t i = 0; i < report.sides.size(); ++i) {
    const std::string name = report.sides.size() > 1 ? report.sides[i].side.name + ", " : "";
    ChartSeries avg{name + "of episodes", i, false, {}}, best{name + "of problems", i, true, {}};
    for (const FastPoint& p : report.sides[i].fast_curve) {
      avg.points.push_back({p.p, p.avg, p.avg, p.avg});
      best.points.push_back({p.p, p.best, p.best, p.best});
    }
    series.push_back(std::move(avg)), series.push_back(std::move(best));
  }
  return series;
}

std::vector<ChartSeries> TurnSeries(const Report& report, double CurvePoint::*value) {
  std::vector<ChartSeries> series;
  for (size_t i = 0; i < report.sides.size(); ++i) {
    ChartSeries one{report.sides[i].side.name, i, false, {}};
    for (const CurvePoint& p : report.sides[i].side.by_turn)
      one.points.push_back({static_cast<double>(p.turn), p.*value, p.*value, p.*value});
    series.push_back(std::move(one));
  }
  return series;
}

std::string BudgetChart(const Report& report, size_t side) {
  std::map<int, ChartSeries> by_turns;
  for (const BudgetCell& c : report.sides[side].budgets) {
    const auto color = static_cast<size_t>(std::lround(std::log2(c.turns)));
    ChartSeries& series = by_turns[c.turns];
    series.name = c.turns == 1 ? "1 turn (parallel)" : fmt::format("{} turns", c.turns), series.color = color;
    series.points.push_back(
        {static_cast<double>(c.turns * c.episodes), c.best, c.best_interval.low, c.best_interval.high});
  }
  std::vector<ChartSeries> series;
  for (auto& [turns, one] : by_turns) series.push_back(std::move(one));
  const std::string of = report.sides.size() > 1 ? report.sides[side].side.name : "";
  return LineChart({"Serial against parallel: mean best speed-up by kernels spent",
                    "kernels: turns x episodes", of, false, true, true, 1},
                   series);
}

std::string TimeChart(const Report& report) {
  std::vector<std::string> rows;
  std::vector<std::vector<BarPart>> parts;
  for (const SideReport& one : report.sides) {
    const TimeSplit& t = one.side.time;
    rows.push_back(one.side.name + ": " + SpanText(t.Total()));
    parts.push_back({{"generate", t.generate_s},
                     {"compile", t.compile_s},
                     {"verify", t.verify_s},
                     {"measure", t.measure_s},
                     {"wait", t.wait_s},
                     {"overhead", t.overhead_s}});
  }
  return StackedBars("Where the time of turns went", rows, parts);
}

std::string OutcomeChart(const Report& report) {
  constexpr OutcomeKind kOrder[] = {
      OutcomeKind::kMeasured, OutcomeKind::kWrong,   OutcomeKind::kCrashed,    OutcomeKind::kCompileFailed,
      OutcomeKind::kTimedOut, OutcomeKind::kRefused, OutcomeKind::kParseFailed};
  std::vector<std::string> rows;
  std::vector<std::vector<BarPart>> parts;
  for (const SideReport& one : report.sides) {
    rows.push_back(one.side.name + ": " + CountText(one.side.turns) + " turns");
    std::vector<BarPart> bar;
    for (const OutcomeKind kind : kOrder)
      bar.push_back(
          {OutcomeKindName(kind), static_cast<double>(one.side.outcomes[static_cast<size_t>(kind)])});
    parts.push_back(std::move(bar));
  }
  return StackedBars("What became of the turns", rows, parts);
}

}  // namespace

std::string ReportCharts(const Report& report) {
  std::string html = "<div class=\"charts\">";
  html += LineChart({"fast_p: share with a speed-up above p", "p", "", true, false, false, 0},
                    FastSeries(report));
  html += LineChart({"Best speed-up so far, failures 0", "turn", "", false, false, true, 1},
                    TurnSeries(report, &CurvePoint::best_so_far));
  html += LineChart({"Solved so far, of episodes", "turn", "", true, false, true, 0},
                    TurnSeries(report, &CurvePoint::solved_so_far));
  html += LineChart({"Right, of the turn's kernels", "turn", "", true, false, true, 0},
                    TurnSeries(report, &CurvePoint::correct));
  for (size_t i = 0; i < report.sides.size(); ++i) html += BudgetChart(report, i);
  return html + TimeChart(report) + OutcomeChart(report) + "</div>";
}

}  // namespace kevin
