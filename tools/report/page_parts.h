#pragma once
// Two parts of a report's page: the plots above the problems, and an episode as a ladder of turns.

#include <cstdint>
#include <string>

#include "agent/report/report.h"
#include "trajectories/store.h"

namespace kevin {

// fast_p, turn by turn, serial against parallel, time and outcomes: figures in a grid.
std::string ReportCharts(const Report& report);

// The bytes of kernels, prompts, replies and samples that may still be written, and what was left out.
struct TextBudget {
  int64_t bytes = 0;
  int64_t texts_left_out = 0, bytes_left_out = 0;
  // True if a text of this size still fits; its bytes are then used.
  bool Take(size_t size);
};

// Heading, ladder, and one closed <details> a turn. Kernels come first when the budget is short, then
// samples, replies, prompts; what does not fit is named with the command that shows it.
std::string EpisodeSection(Store& store, const std::string& episode, size_t color, TextBudget* budget);

}  // namespace kevin
