#pragma once
// The plots above the problems of a report's page.

#include <string>

#include "agent/report/report.h"

namespace kevin {

// fast_p, turn by turn, serial against parallel, time and outcomes: figures in a grid.
std::string ReportCharts(const Report& report);

}  // namespace kevin
