#pragma once
// A report as one self-contained HTML page: no network, no scripts. Summary, plots, and a section
// per problem with its episodes turn by turn: what changed in the kernel, outcome, timing samples, prompt and
// reply.

#include <optional>
#include <string>

#include "agent/report/report.h"
#include "tools/report/format.h"
#include "tools/report/sides.h"

namespace kevin {

struct PageOptions {
  int episodes = 2;       // of each problem and side, those with the best kernels
  double megabytes = 20;  // for texts and samples together, the same share for each problem
};

struct Page {
  std::string html;
  std::string left_out;  // what was left out, without a full stop; empty: nothing
};

// `sides` are the sides of the report (their Side values may have been moved from); reads their stores.
Page MakePage(const Report& report, const ChosenSides& sides, const PageOptions& options);

}  // namespace kevin
