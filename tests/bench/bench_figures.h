#pragma once
// The figures of a benchmark: printed one by one with their goals, then all as a table.

#include <optional>
#include <string>
#include <vector>

namespace kevin {

// The value below which a share (0 to 1) of the values lies: 0.5 is the median, 1 the largest. NaN for no
// values; a goal for NaN counts as missed.
double QuantileOf(std::vector<double> values, double share);

struct Goal {
  bool at_most = true;  // else at least
  double value = 0;
};

struct Figure {
  std::string name;  // with its unit: "held_s"
  double value = 0;
  int digits = 3;  // after the point, in the table
  std::optional<Goal> goal;
};

// All rows of one part have the same figures in the same order; other parts may come between them.
struct FigureRow {
  std::string part, subject;  // "turn", "level1/19"
  std::vector<Figure> figures;
};

class BenchFigures {
 public:
  explicit BenchFigures(bool json) : json_(json) {}
  // Stores the row for Table(). With --json also prints it to stdout, as {"part", "subject", "held_s",
  // "held_s_goal": "<= 0.3", "held_s_met": true, ...}.
  void Add(FigureRow row);
  // A line on stdout, or on stderr with --json.
  void Note(const std::string& text) const;
  // One block a part, in the order of their first rows, with the goals below it, met or missed.
  std::string Table() const;

 private:
  bool json_;
  std::vector<std::string> parts_;  // in the order of their first rows
  std::vector<FigureRow> rows_;
};

}  // namespace kevin
