#pragma once
// Plots as inline SVG. Colours are the page's variables --s0 to --s6 (html.h), one a side; every mark has a
// title with its numbers. A label that is too long for its place ends in an ellipsis.

#include <string>
#include <vector>

#include "trajectories/records.h"

namespace kevin {

struct ChartPoint {
  double x = 0, y = 0;
  double low = 0, high = 0;  // equal to y: no interval
};
struct ChartSeries {
  std::string name;
  size_t color = 0;
  bool is_dashed = false;
  std::vector<ChartPoint> points;  // by x
};
struct ChartOptions {
  std::string title, x_label, y_label;
  bool is_percent = false;  // y is a share
  bool to_hundred = true;   // of shares: the axis ends at 100 %
  bool is_log2_x = false;
  bool with_dots = true;
  bool from_zero = true;  // else the axis spans the values alone
  double y_mark = 0;      // a line across, such as 1x; 0: none
};
// A <figure> with its legend; "" for series without points.
std::string LineChart(const ChartOptions& options, const std::vector<ChartSeries>& series);

struct DotRow {
  std::string label, link;  // link: an id on the page
  struct Dot {
    size_t color = 0;
    double value = 0, low = 0, high = 0;  // value 0: none
    std::string title;
  };
  std::vector<Dot> dots;
};
// Speed-ups on a logarithmic axis, one row a problem, with a line at 1x.
std::string DotPlot(const std::string& title, const std::vector<DotRow>& rows,
                    const std::vector<std::string>& legend);

struct BarPart {
  std::string name;
  double value = 0;
};
// One stacked bar a row; parts of all rows have the same names in the same order, at most seven. "" where all
// values are 0.
std::string StackedBars(const std::string& title, const std::vector<std::string>& rows,
                        const std::vector<std::vector<BarPart>>& parts);

struct LadderStep {
  int turn = 0;
  bool is_measured = false;
  double value = 0, low = 0, high = 0;
  std::string title;
};
// An episode: each turn's speed-up with its interval, failed turns as crosses below, and the best so far.
std::string Ladder(const std::vector<LadderStep>& steps, size_t color);

// Microseconds a call of each timed half, in the order of measuring; a line where a new process begins.
std::string SampleStrip(const std::vector<Sample>& samples);

// The colour as CSS: "var(--s1)".
std::string ColorOf(size_t color);

}  // namespace kevin
