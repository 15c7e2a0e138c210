#pragma once
// An episode's attempts as the parts of a later turn's prompt. Pure; any thread.
//
// Two kernels are shown in full, with summary and feedback: the best (agent/ranking.h) and the latest. Each other attempt
// is a line of the table of all attempts, and, where it is short, a difference from a kernel that is shown. Kernels that
// were repeated in full in every turn made most of a long episode's prompts, and none of them was the one to continue from.

#include <cstddef>
#include <limits>
#include <string>
#include <vector>

#include "trajectories/records.h"

namespace kevin {

struct HistoryLimits {
  size_t differences = 3;                            // of attempts that are not shown: the newest
  size_t rows = std::numeric_limits<size_t>::max();  // of the table: the newest, and that of the best
};

struct History {
  std::vector<std::string> attempts;  // shown in full, oldest first
  // Whether attempts.front() is the best one, which stays in the prompts of the next turns while it leads.
  bool begins_with_best = false;
  std::string best;        // "turn 3 with 1.5x (1.4x to 1.6x)"; empty: none is correct
  std::string table;       // a line for each attempt; empty below two
  std::string difference;  // unified diffs, of the latest kernel from the best one first; may be empty
};

// `turns`: all of an episode so far, in order, at least one. `kind`: of turns that do not say theirs.
History HistoryOf(const std::vector<TurnRecord>& turns, const std::string& kind, const HistoryLimits& limits);

// One attempt: kernel, summary, feedback.
std::string AttemptText(const TurnRecord& turn, const std::string& kind);

const TurnRecord* LatestWithSource(const std::vector<TurnRecord>& turns);  // null: none has a kernel

}  // namespace kevin
