#pragma once
// A report for a terminal.

#include <string>

#include "agent/report/report.h"
#include "tools/report/format.h"

namespace kevin {

// Sides beside each other, then levels and families, turns, budgets, time. Ends in a line end.
std::string ReportText(const Report& report);

}  // namespace kevin
