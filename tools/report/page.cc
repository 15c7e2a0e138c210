#include "tools/report/page.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <map>

#include "tools/report/charts.h"
#include "tools/report/html.h"
#include "tools/report/page_parts.h"

namespace kevin {
namespace {

std::string Cell(const std::string& html, const char* tag = "td") {
  return fmt::format("<{}>{}</{}>", tag, html, tag);
}

std::string SideSquare(const Report& report, size_t side) {
  return fmt::format("<i class=\"square\" style=\"background:{}\" title=\"{}\"></i>", ColorOf(side),
                     Escaped(report.sides[side].side.name));
}

std::string SideMark(const Report& report, size_t side) {
  return SideSquare(report, side) + " " + Escaped(report.sides[side].side.name);
}

std::string Tiles(const Report& report, size_t side) {
  std::string html = "<div class=\"tiles\">";
  const auto tile = [&](const std::string& label, const std::string& value, const std::string& more) {
    html += fmt::format(
        "<div class=\"tile\"><span class=\"quiet small\">{}</span><b>{}</b>"
        "<span class=\"quiet small\">{}</span></div>",
        label, value, more);
  };
  const auto metric = [&](const char* name, const char* label) {
    const MetricSpec& spec = report.specs[report.MetricIndex(name)];
    const Interval& i = report.Metric(side, name);
    const std::string text = IntervalText(i, spec.unit), value = ValueText(i.value, spec.unit);
    tile(label, value, text.substr(std::min(text.size(), value.size())));
  };
  metric("solved_best", "problems solved");
  metric("correct", "correct turns");
  metric("fast_1_best", "faster than eager");
  metric("geomean_avg", "geometric mean");
  metric("mean_avg", "mean, failures 0");
  metric("geomean_best", "best of each, geom. mean");
  const bool has_money = !std::isnan(report.Metric(side, "usd_per_solved").value);
  metric(has_money ? "usd_per_solved" : "seconds_per_solved",
         has_money ? "US dollars per solved problem" : "per solved problem");
  return html + "</div>";
}

std::string SideSummary(const Report& report, size_t side) {
  const Side& s = report.sides[side].side;
  std::string facts = fmt::format("{} problems, {} episodes, {} turns", s.problems.size(),
                                  CountText(s.episodes), CountText(s.turns));
  if (!s.rules.empty()) facts += "; " + SideRulesText(s);
  if (s.unconfirmed > 0)
    facts += fmt::format("; {} best kernels were not measured again; their speed-ups are too high",
                         CountText(s.unconfirmed));
  if (s.unfinished > 0) facts += fmt::format("; {} episodes are not done", CountText(s.unfinished));
  if (s.cost_usd > 0 || s.unknown_costs > 0) facts += "; " + MoneyText(s);
  const std::string warning = MixedRulesWarning(s);
  return fmt::format("<h3>{}</h3><p class=\"quiet\">{}</p>", SideMark(report, side), facts) +
         (warning.empty() ? "" : fmt::format("<p><b>Warning:</b> {}</p>", Escaped(warning))) +
         Tiles(report, side);
}

std::string MetricRows(const Report& report) {
  std::string head = Cell("metric", "th"), body;
  for (size_t side = 0; side < report.sides.size(); ++side) head += Cell(SideMark(report, side), "th");
  for (size_t m = 0; m < report.specs.size(); ++m) {
    std::string row = Cell(Escaped(report.specs[m].label), "th");
    bool is_known = false;
    for (const SideReport& one : report.sides) {
      const Interval& interval = one.groups.front().metrics[m];
      is_known |= !std::isnan(interval.value);
      row += Cell(IntervalText(interval, report.specs[m].unit));
    }
    if (is_known) body += "<tr>" + row + "</tr>";
  }
  return HtmlTable("<tr>" + head + "</tr>", body);
}

std::string ComparisonTable(const Report& report, const SideComparison& c, bool is_tested) {
  std::string body;
  for (size_t m = 0; m < report.specs.size(); ++m) {
    const Difference& d = c.differences[m];
    if (std::isnan(d.difference.value) || report.specs[m].is_tested != is_tested) continue;
    const std::string word = SignificanceWord(report, m, d);
    body += fmt::format("<tr><th>{}</th><td>{}</td><td>{}</td><td>{}</td><td class=\"{}\">{}</td></tr>",
                        Escaped(report.specs[m].label), DifferenceText(d.difference, report.specs[m].unit),
                        Escaped(PValueText(d.p_value)), is_tested ? Escaped(PValueText(d.p_adjusted)) : "",
                        word == "better" ? "measured" : "failed", word);
  }
  return HtmlTable("<tr><th>metric</th><th>difference</th><th>p</th><th>p adjusted</th><th></th></tr>", body);
}

std::string ComparisonRows(const Report& report, size_t index) {
  const SideComparison& c = report.comparisons[index];
  const std::string title = fmt::format("{} minus {}, on the {} problems that both have",
                                        SideMark(report, index + 1), SideMark(report, 0), c.problems.size());
  if (c.problems.empty()) return "<h3>" + title + "</h3>";
  return "<h3>" + title + "</h3>" + ComparisonTable(report, c, true) +
         "<p class=\"quiet small\">p by paired bootstrap over problems, episodes and measurements; adjusted "
         "by "
         "Holm's method for the metrics in this table.</p>" +
         Details("The other metrics, to look at", ComparisonTable(report, c, false));
}

std::string GroupRows(const Report& report) {
  std::string body;
  const auto cell = [&](const ReportGroup& group, const char* name) {
    const size_t m = report.MetricIndex(name);
    return Cell(IntervalText(group.metrics[m], report.specs[m].unit));
  };
  std::map<std::pair<std::string, std::string>, std::string> rows;  // by kind and name: the sides together
  for (size_t side = 0; side < report.sides.size(); ++side) {
    for (const ReportGroup& group : report.sides[side].groups) {
      const std::string name = group.kind == "all" ? "all" : Escaped(group.name);
      const std::string order = group.kind == "all" ? "0" : group.kind == "level" ? "1" : "2";
      rows[{order, group.name}] += "<tr>" + Cell(SideSquare(report, side) + " " + name, "th") +
                                   Cell(std::to_string(group.problems.size())) + cell(group, "solved_best") +
                                   cell(group, "fast_1_avg") + cell(group, "mean_avg") +
                                   cell(group, "geomean_avg") + cell(group, "geomean_best") + "</tr>";
    }
  }
  for (const auto& [group, html] : rows) body += html;
  return HtmlTable(
      "<tr><th></th><th>problems</th><th>solved</th><th>fast_1</th><th>mean, failures 0</th>"
      "<th>geometric mean</th><th>best: geometric mean</th></tr>",
      body);
}

const SideEpisode* BestOf(const SideProblem& problem) {
  return &*std::max_element(problem.episodes.begin(), problem.episodes.end(),
                            [](const SideEpisode& a, const SideEpisode& b) { return a.value < b.value; });
}

// All problems of all sides, in the order of their ids.
std::vector<std::string> ProblemIds(const Report& report) {
  std::vector<std::string> ids;
  for (const SideReport& one : report.sides) {
    for (const SideProblem& problem : one.side.problems) ids.push_back(problem.id);
  }
  std::sort(ids.begin(), ids.end(), ProblemIdLess);
  ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
  return ids;
}

const SideProblem* ProblemOnPage(const Side& side, const std::string& id) {
  const auto found = std::find_if(side.problems.begin(), side.problems.end(),
                                  [&](const SideProblem& p) { return p.id == id; });
  return found == side.problems.end() ? nullptr : &*found;
}

std::string Anchor(const std::string& id) {
  std::string anchor = "p-";
  for (const char c : id) anchor += std::isalnum(static_cast<unsigned char>(c)) ? c : '-';
  return anchor;
}

std::string ProblemDots(const Report& report, const std::vector<std::string>& ids) {
  std::vector<DotRow> rows;
  std::vector<std::string> names;
  for (const SideReport& one : report.sides) names.push_back(one.side.name);
  for (const std::string& id : ids) {
    DotRow row{id, Anchor(id), {}};
    for (size_t side = 0; side < report.sides.size(); ++side) {
      const SideProblem* problem = ProblemOnPage(report.sides[side].side, id);
      if (problem == nullptr) continue;
      const SideEpisode& best = *BestOf(*problem);
      const double reach = std::exp(2.576 * best.log_se);
      if (row.label == id) row.label += " " + problem->name;
      row.dots.push_back(
          {side, best.value, best.value / reach, best.value * reach,
           fmt::format("{} {}: {}", id, names[side],
                       best.value > 0 ? fmt::format("{:.3g}x", best.value) : "no correct kernel")});
    }
    rows.push_back(std::move(row));
  }
  return DotPlot("Best confirmed speed-up of each problem, with its 99 % measurement interval", rows, names);
}

class Sections {
 public:
  Sections(const Report& report, const ChosenSides& sides, const PageOptions& options)
      : report_(report), sides_(sides), options_(options) {}

  std::string Make(const std::vector<std::string>& ids) {
    std::string html;
    const auto total = static_cast<int64_t>(options_.megabytes * 1e6);
    TextBudget budget;
    int64_t given = 0;
    for (size_t i = 0; i < ids.size(); ++i) {
      // Later problems get what earlier ones left.
      const int64_t share = total * static_cast<int64_t>(i + 1) / static_cast<int64_t>(ids.size());
      budget.bytes += share - given, given = share;
      html += Problem(ids[i], &budget);
    }
    texts_left_out_ = budget.texts_left_out, bytes_left_out_ = budget.bytes_left_out;
    return html;
  }

  std::string LeftOut() const {
    std::string text;
    if (episodes_left_out_ > 0)
      text = fmt::format("{} of {} episodes are left out (--episodes)", CountText(episodes_left_out_),
                         CountText(episodes_left_out_ + episodes_));
    if (texts_left_out_ > 0)
      text += fmt::format("{}{} texts of {:.1f} MB are left out (--megabytes)", text.empty() ? "" : ", ",
                          CountText(texts_left_out_), static_cast<double>(bytes_left_out_) / 1e6);
    return text;
  }

 private:
  std::string Problem(const std::string& id, TextBudget* budget) {
    std::string summary, body, name;
    for (size_t side = 0; side < report_.sides.size(); ++side) {
      const SideProblem* problem = ProblemOnPage(report_.sides[side].side, id);
      if (problem == nullptr) continue;
      name = problem->name;
      const SideEpisode& best = *BestOf(*problem);
      summary += fmt::format(" <span style=\"color:{}\">{}</span>", ColorOf(side),
                             best.value > 0 ? fmt::format("{:.3g}x", best.value) : "unsolved");
      if (body.empty()) body = Statement(side, *problem, budget);
      body += Episodes(side, *problem, budget);
    }
    return fmt::format("<a id=\"{}\"></a>", Anchor(id)) +
           Details(Escaped(id) + " " + Escaped(name) + summary, body, "problem");
  }

  // The problem's own text.
  std::string Statement(size_t side, const SideProblem& problem, TextBudget* budget) {
    const ReportSource& source = sides_.sources[sides_.source_of[side]];
    const int index = source.figures.episodes[problem.episodes.front().figures_episode].problem;
    const auto record = source.store->FindProblem(source.figures.problems[static_cast<size_t>(index)].hash);
    if (!record || !budget->Take(record->text.size())) return "";
    return Details("the problem", "<pre>" + Escaped(record->text) + "</pre>", "plain");
  }

  std::string Episodes(size_t side, const SideProblem& problem, TextBudget* budget) {
    const ReportSource& source = sides_.sources[sides_.source_of[side]];
    std::vector<const SideEpisode*> order;
    for (const SideEpisode& e : problem.episodes) order.push_back(&e);
    std::stable_sort(order.begin(), order.end(),
                     [](const SideEpisode* a, const SideEpisode* b) { return a->value > b->value; });
    const size_t shown = std::min(order.size(), static_cast<size_t>(options_.episodes));
    std::string html =
        fmt::format("<p class=\"small\">{}: {} episodes{}</p>", SideMark(report_, side), order.size(),
                    shown < order.size() ? fmt::format(", the best {} shown", shown) : "");
    for (size_t i = 0; i < shown; ++i)
      html +=
          EpisodeSection(*source.store, source.figures.episodes[order[i]->figures_episode].id, side, budget);
    episodes_ += static_cast<int64_t>(shown);
    episodes_left_out_ += static_cast<int64_t>(order.size() - shown);
    return html;
  }

  const Report& report_;
  const ChosenSides& sides_;
  const PageOptions& options_;
  int64_t episodes_ = 0, episodes_left_out_ = 0, texts_left_out_ = 0, bytes_left_out_ = 0;
};

}  // namespace

Page MakePage(const Report& report, const ChosenSides& sides, const PageOptions& options) {
  const std::vector<std::string> ids = ProblemIds(report);
  Sections sections(report, sides, options);
  const std::string problems = sections.Make(ids);
  Page page;
  page.left_out = sections.LeftOut();
  const auto now = std::chrono::floor<std::chrono::seconds>(std::chrono::system_clock::now());
  page.html =
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" "
      "content=\"width=device-width, initial-scale=1\"><title>Kevin: report</title><style>" +
      std::string(kPageStyle) + "</style></head><body>\n<h1>Kevin: report</h1>\n";
  page.html += fmt::format(
      "<p class=\"quiet\">Made {:%Y-%m-%d %H:%M} UTC. Brackets are {:g} % intervals from a nested bootstrap "
      "over "
      "problems, episodes and measurements ({} draws). Speed-ups are against eager PyTorch; an episode's is "
      "that of "
      "its winner, measured again.</p>\n",
      fmt::gmtime(std::chrono::system_clock::to_time_t(now)), 100 * report.options.confidence,
      report.options.replicates);
  for (size_t side = 0; side < report.sides.size(); ++side) page.html += SideSummary(report, side);
  for (size_t i = 0; i < report.comparisons.size(); ++i) page.html += ComparisonRows(report, i);
  page.html += "<h2>Plots</h2>" + ReportCharts(report);
  page.html += "<h2>Levels and families</h2>" + GroupRows(report);
  page.html += "<h2>All metrics</h2>" + Details("All metrics with their intervals", MetricRows(report));
  page.html += "<h2>Problems</h2>" + ProblemDots(report, ids);
  if (!page.left_out.empty()) page.html += "<p class=\"quiet\">For size, " + page.left_out + ".</p>";
  page.html += problems + "</body></html>\n";
  return page;
}

}  // namespace kevin
