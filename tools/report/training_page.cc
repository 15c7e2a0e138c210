// Training runs as a page.

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>

#include "tools/report/charts.h"
#include "tools/report/format.h"
#include "tools/report/html.h"
#include "tools/report/training.h"

namespace kevin {
namespace {

constexpr size_t kMostPoints = 400;  // of one curve; longer ones are drawn as means of some steps
constexpr size_t kMostDots = 60;

ChartSeries SeriesOf(const Curve& curve, const std::string& name, size_t color) {
  ChartSeries series{name, color, false, {}};
  const size_t n = curve.values.size(), points = std::min(n, kMostPoints);
  for (size_t i = 0; i < points; ++i) {
    const size_t begin = i * n / points, end = (i + 1) * n / points;
    const auto count = static_cast<double>(end - begin);
    ChartPoint mean;
    for (size_t j = begin; j < end; ++j) {
      const CurveValue& v = curve.values[j];
      mean.x += static_cast<double>(v.step) / count, mean.y += v.value / count;
      mean.low += v.low / count, mean.high += v.high / count;
    }
    series.points.push_back(mean);
  }
  return series;
}

// One curve of some runs' groups; colours are the runs'.
struct RunGroup {
  const TrainingRun* run;
  size_t color;
  const CurveGroup* group;
};

std::string ChartOf(const std::string& name, const std::vector<RunGroup>& groups) {
  const CurveStyle style = StyleOf(name);
  std::vector<ChartSeries> series;
  size_t longest = 0;
  double most = 0;
  for (const RunGroup& one : groups) {
    const Curve* curve = one.group->Find(name);
    if (curve == nullptr) continue;
    series.push_back(SeriesOf(*curve, one.run->name, one.color));
    longest = std::max(longest, curve->values.size());
    for (const CurveValue& v : curve->values) most = std::max(most, v.value);
  }
  ChartOptions options;
  options.title = style.label, options.x_label = "step";
  options.is_percent = style.is_share, options.from_zero = style.from_zero, options.y_mark = style.mark;
  options.to_hundred = most > 0.5;
  options.with_dots = longest <= kMostDots;
  return LineChart(options, series);
}

std::string ChartsOf(const std::vector<RunGroup>& groups) {
  std::vector<const CurveGroup*> all;
  for (const RunGroup& one : groups) all.push_back(one.group);
  std::string known, others;
  for (const std::string& name : CurveNames(all))
    (IsKnownCurve(name) ? known : others) += ChartOf(name, groups);
  std::string html = "<div class=\"charts\">" + known + "</div>\n";
  if (!others.empty()) html += Details("More curves", "<div class=\"charts\">" + others + "</div>");
  return html;
}

std::string TrainingTiles(const TrainingRun& run, size_t color) {
  std::string html = fmt::format("<h3><span class=\"square\" style=\"background:{}\"></span> {}</h3>",
                                 ColorOf(color), Escaped(run.name));
  html += fmt::format("<p class=\"quiet\">{}: steps {} to {}{}{}</p><div class=\"tiles\">",
                      Escaped(run.folder), run.first_step, run.last_step,
                      run.steps_asked > 0 ? fmt::format(" of {}", run.steps_asked) : "",
                      run.seconds > 0 ? ", " + SpanText(run.seconds) : "");
  for (const char* name : {"reward", "correct", "speedup", "loss", "delta_logprob", "tokens_per_s", "mfu"}) {
    const Curve* curve = run.steps.Find(name);
    if (curve == nullptr) continue;
    const CurveStyle style = StyleOf(name);
    html += fmt::format(
        "<div class=\"tile\"><span class=\"quiet small\">{}</span><b>{}</b><span class=\"quiet small\">{} at "
        "step {}</span></div>",
        Escaped(style.label), CurveValueText(curve->values.back().value, style),
        CurveValueText(curve->values.front().value, style), curve->values.front().step);
  }
  return html + "</div>\n";
}

std::string Evaluations(const std::vector<TrainingRun>& runs) {
  std::vector<std::pair<std::string, std::vector<RunGroup>>> by_title;
  for (size_t r = 0; r < runs.size(); ++r) {
    for (const CurveGroup& group : runs[r].others) {
      const std::string title = group.event == "evaluation_step" ? "Evaluation" : group.event;
      const std::string whole = group.label.empty() ? title : title + ": " + group.label;
      auto known =
          std::find_if(by_title.begin(), by_title.end(), [&](const auto& o) { return o.first == whole; });
      if (known == by_title.end()) known = by_title.insert(by_title.end(), {whole, {}});
      known->second.push_back({&runs[r], r, &group});
    }
  }
  std::string html;
  for (const auto& [title, groups] : by_title) html += "<h2>" + Escaped(title) + "</h2>" + ChartsOf(groups);
  return html;
}

}  // namespace

std::string TrainingPage(const std::vector<TrainingRun>& runs) {
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  std::string html =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\"><title>Kevin: training</title><style>" +
      std::string(kPageStyle) + "</style></head><body>\n<h1>Kevin: training</h1>\n";
  html += fmt::format(
      "<p class=\"quiet\">Made {:%Y-%m-%d %H:%M} UTC. Long curves are drawn as means of some steps; bars are "
      "intervals.</p>\n",
      fmt::gmtime(std::chrono::system_clock::to_time_t(now)));
  std::vector<RunGroup> steps;
  for (size_t r = 0; r < runs.size(); ++r) {
    html += TrainingTiles(runs[r], r);
    steps.push_back({&runs[r], r, &runs[r].steps});
  }
  html += Evaluations(runs);
  return html + "<h2>Steps</h2>" + ChartsOf(steps) + "</body></html>\n";
}

}  // namespace kevin
