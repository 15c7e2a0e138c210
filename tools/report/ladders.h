#pragma once
// The part of a page about single episodes: an episode as a ladder of turns.

#include <cstdint>
#include <string>

#include "trajectories/store.h"

namespace kevin {

// How many bytes of kernels, prompts, replies and samples may still be written, and what had to be left out.
struct TextBudget {
  int64_t bytes = 0;
  int64_t texts_left_out = 0, bytes_left_out = 0;
  // True, and paid for, if a text of this size still fits.
  bool Take(size_t size);
};

// Heading, ladder, and one closed <details> a turn. Kernels come first when the budget is short, then
// samples, replies, prompts; what does not fit is named with the command that shows it.
std::string EpisodeSection(Store& store, const std::string& episode, size_t color, TextBudget* budget);

}  // namespace kevin
