#pragma once
// Inside the writers: which stages have equal texts, so that the stages that a deep network repeats are written once.

#include <string>
#include <vector>

#include "policies/search/program.h"

namespace kevin::search {

// Equal for stages that compute the same from and to buffers alike, but for the numbers of their variables and buffers and
// for the places of buffers. The numbers are in the same order in both, so that sums have the same order of terms
// too. `buffers`: all that the stage uses. Bytes, not text; empty where the stage has loops around it, or is too large
// to compare.
std::string StageKey(const Program& program, const Stage& stage, const std::vector<int>& buffers);

}  // namespace kevin::search
