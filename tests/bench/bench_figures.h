#pragma once
// The figures of a benchmark as they come in, and all of them as a table.

#include <optional>
#include <string>
#include <vector>

namespace kevin {

// The value below which `share` of the values lie, 0 to 1; 0.5 is the median, 1 the largest. NaN for no
// values; a goal for NaN is missed.
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

class Figures {
 public:
  explicit Figures(bool json) : json_(json) {}
  // With --json prints the row to stdout at once, as {"part", "subject", "held_s", "held_s_goal": "<= 0.3",
  // "held_s_met": true, ...}. Table() has it in any case.
  void Add(FigureRow row);
  // A line on stdout, or on stderr with --json.
  void Note(const std::string& text) const;
  // One block a part, in the order of their first rows, and below it which goals were met.
  std::string Table() const;

 private:
  bool json_;
  std::vector<std::string> parts_;  // in the order of their first rows
  std::vector<FigureRow> rows_;
};

}  // namespace kevin
