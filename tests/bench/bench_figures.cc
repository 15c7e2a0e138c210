#include "tests/bench/bench_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/report/format.h"

namespace kevin {
namespace {

std::string GoalText(const Goal& goal) {
  return fmt::format("{} {:g}", goal.at_most ? "<=" : ">=", goal.value);
}

bool IsMet(const Figure& figure) {
  return figure.goal->at_most ? figure.value <= figure.goal->value : figure.value >= figure.goal->value;
}

nlohmann::ordered_json Line(const FigureRow& row) {
  nlohmann::ordered_json line = {{"part", row.part}, {"subject", row.subject}};
  for (const Figure& figure : row.figures) {
    line[figure.name] = figure.value;
    if (!figure.goal) continue;
    line[figure.name + "_goal"] = GoalText(*figure.goal);
    line[figure.name + "_met"] = IsMet(figure);
  }
  return line;
}

std::string GoalLines(const FigureRow& row) {
  std::string text;
  for (const Figure& figure : row.figures) {
    if (!figure.goal) continue;
    text += fmt::format("  {} {} {}: {:.{}f}, wanted {}\n", IsMet(figure) ? "met   " : "MISSED", row.subject,
                        figure.name, figure.value, figure.digits, GoalText(*figure.goal));
  }
  return text;
}

}  // namespace

double QuantileOf(std::vector<double> values, double share) {
  if (values.empty()) return std::nan("");
  std::sort(values.begin(), values.end());
  const auto index = static_cast<size_t>(share * static_cast<double>(values.size()));
  return values[std::min(index, values.size() - 1)];
}

void BenchFigures::Add(FigureRow row) {
  if (json_) {
    fmt::print("{}\n", Line(row).dump());
    std::fflush(stdout);
  }
  if (std::find(parts_.begin(), parts_.end(), row.part) == parts_.end()) parts_.push_back(row.part);
  rows_.push_back(std::move(row));
}

void BenchFigures::Note(const std::string& text) const {
  std::FILE* to = json_ ? stderr : stdout;
  fmt::print(to, "{}\n", text);
  std::fflush(to);
}

std::string BenchFigures::Table() const {
  std::string text;
  for (const std::string& part : parts_) {
    std::vector<std::vector<std::string>> cells = {{part}};
    std::string goals;
    for (const FigureRow& row : rows_) {
      if (row.part != part) continue;
      if (cells.size() == 1)
        for (const Figure& figure : row.figures) cells[0].push_back(figure.name);
      cells.push_back({row.subject});
      for (const Figure& figure : row.figures)
        cells.back().push_back(fmt::format("{:.{}f}", figure.value, figure.digits));
      goals += GoalLines(row);
    }
    text += "\n" + AlignedTable(cells) + goals;
  }
  return text;
}

}  // namespace kevin
