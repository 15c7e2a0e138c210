#pragma once
// Numbers of a report as text, and tables for a terminal.

#include <string>
#include <vector>

#include "agent/report/report.h"

namespace kevin {

// "83.1 %", "1.24x", "12.5 s", "3.1k"; "-" where unknown.
std::string ValueText(double value, MetricUnit unit);
// "83.1 % (79.0 % to 87.2 %)", "1.62x (1.21x to 2.18x)"; without an interval where it is unknown.
std::string IntervalText(const Interval& interval, MetricUnit unit);
// The same for a difference: "+2.6 points (0.6 to 4.5)".
std::string DifferenceText(const Interval& interval, MetricUnit unit);
std::string PValueText(double p);  // "0.004", "< 0.001"
std::string CountText(int64_t n);  // "1,234,567"
std::string SpanText(double s);    // "1.2 s", "3 min 20 s", "5 h 12 min"
// "cost $12.3", "cost $12.3 without 4 of 400 requests, whose cost is unknown", "cost of 28 requests unknown".
std::string MoneyText(const Side& side);
// By which the side's episodes were judged: "rules kevin", "rules kevin (3 episodes), open (1 episode)"; "" without episodes.
std::string SideRulesText(const Side& side);
// A side whose figures mix several rules: what that means and the next step, without a line end. "": it does not.
std::string MixedRulesWarning(const Side& side);

// "better" or "worse" where a tested metric differs beyond chance at the report's confidence; else "".
std::string SignificanceWord(const Report& report, size_t metric, const Difference& difference);

// --- Tables ---

// Columns as wide as their widest cell (in UTF-8 characters), two spaces apart, no trailing spaces; every
// line ends in a line end. Rows may be short. Line ends within cells become spaces.
std::string AlignedTable(const std::vector<std::vector<std::string>>& rows);

}  // namespace kevin
