#pragma once
// A report as one HTML page that needs nothing else: no network, no scripts. Summary, plots, and a section
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
  double megabytes = 20;  // that texts and samples may take together; each problem gets an even share
};

struct Page {
  std::string html;
  std::string left_out;  // a sentence without its full stop; empty: everything is there
};

// `sides` are those the report was made of (their Side values may have been moved from); their stores are
// read.
Page MakePage(const Report& report, const ChosenSides& sides, const PageOptions& options);

}  // namespace kevin
