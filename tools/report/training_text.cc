// Training runs for a terminal and for programs.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "tools/report/format.h"
#include "tools/report/training.h"
#include "tools/table.h"

namespace kevin {
namespace {

constexpr size_t kSparkWidth = 40;

// Means of `width` stretches of the curve; fewer where it is shorter.
std::vector<double> Thinned(const Curve& curve, size_t width) {
  const size_t n = curve.values.size();
  std::vector<double> means;
  for (size_t i = 0; i < std::min(n, width); ++i) {
    const size_t begin = i * n / std::min(n, width), end = (i + 1) * n / std::min(n, width);
    double sum = 0;
    for (size_t j = begin; j < end; ++j) sum += curve.values[j].value;
    means.push_back(sum / static_cast<double>(end - begin));
  }
  return means;
}

std::string Sparkline(const Curve& curve) {
  constexpr const char* kLevels[] = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  const std::vector<double> means = Thinned(curve, kSparkWidth);
  const auto [low, high] = std::minmax_element(means.begin(), means.end());
  std::string text;
  for (const double mean : means) {
    const double share = *high > *low ? (mean - *low) / (*high - *low) : 0;
    text += kLevels[static_cast<size_t>(std::lround(share * 7))];
  }
  return text;
}

using Rows = std::vector<std::vector<std::string>>;

struct NamedGroup {
  std::string run;
  const CurveGroup* group;
};

std::string GroupText(const std::vector<NamedGroup>& groups) {
  std::vector<const CurveGroup*> all;
  for (const NamedGroup& one : groups) all.push_back(one.group);
  const bool has_many = groups.size() > 1;
  Rows rows = {{"curve", "first", "last", "lowest", "highest", "from the first step to the last"}};
  if (has_many) rows[0].insert(rows[0].begin() + 1, "run");
  for (const std::string& name : CurveNames(all)) {
    const CurveStyle style = StyleOf(name);
    std::string label = style.label;
    for (const NamedGroup& one : groups) {
      const Curve* curve = one.group->Find(name);
      if (curve == nullptr) continue;
      const auto [low, high] =
          std::minmax_element(curve->values.begin(), curve->values.end(),
                              [](const auto& a, const auto& b) { return a.value < b.value; });
      rows.push_back({label, CurveValueText(curve->values.front().value, style),
                      CurveValueText(curve->values.back().value, style), CurveValueText(low->value, style),
                      CurveValueText(high->value, style), Sparkline(*curve)});
      if (has_many) rows.back().insert(rows.back().begin() + 1, one.run);
      label.clear();
    }
  }
  return AlignedTable(rows);
}

std::string RunFacts(const TrainingRun& run) {
  std::string text = fmt::format("{}: steps {} to {}", run.folder, run.first_step, run.last_step);
  if (run.steps_asked > 0) text += fmt::format(" of {}", run.steps_asked);
  if (run.seconds > 0) text += ", " + SpanText(run.seconds);
  if (run.unreadable > 0) text += fmt::format("; {} lines are no events and were left out", run.unreadable);
  return text + "\n";
}

Json TrainingCurves(const CurveGroup& group) {
  Json curves = Json::object();
  for (const Curve& curve : group.curves) {
    for (const CurveValue& v : curve.values) curves[curve.name].push_back({v.step, v.value});
  }
  return curves;
}

}  // namespace

std::string TrainingText(const std::vector<TrainingRun>& runs) {
  std::string text;
  std::vector<NamedGroup> steps;
  std::vector<std::pair<std::string, std::vector<NamedGroup>>> others;  // by event and label
  for (const TrainingRun& run : runs) {
    text += RunFacts(run);
    steps.push_back({run.name, &run.steps});
    for (const CurveGroup& group : run.others) {
      const std::string title = group.event + (group.label.empty() ? "" : ": " + group.label);
      auto known =
          std::find_if(others.begin(), others.end(), [&](const auto& o) { return o.first == title; });
      if (known == others.end()) known = others.insert(others.end(), {title, {}});
      known->second.push_back({run.name, &group});
    }
  }
  text += "\nsteps\n" + GroupText(steps);
  for (const auto& [title, groups] : others) text += "\n" + title + "\n" + GroupText(groups);
  return text;
}

std::vector<Json> TrainingEvents(const std::vector<TrainingRun>& runs) {
  std::vector<Json> events;
  for (const TrainingRun& run : runs) {
    Json event = {{"event", "report"},
                  {"part", "training"},
                  {"run", run.name},
                  {"folder", run.folder},
                  {"first_step", run.first_step},
                  {"steps", run.last_step},
                  {"steps_asked", run.steps_asked},
                  {"seconds", run.seconds},
                  {"curves", TrainingCurves(run.steps)},
                  {"evaluations", Json::array()}};
    for (const CurveGroup& group : run.others)
      event["evaluations"].push_back(
          {{"event", group.event}, {"label", group.label}, {"curves", TrainingCurves(group)}});
    events.push_back(std::move(event));
  }
  return events;
}

}  // namespace kevin
