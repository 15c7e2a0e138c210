#pragma once
// What `kevin collect` shows: pure functions from a rollout's state to lines for people and objects for
// scripts.

#include <cstdint>
#include <string>
#include <vector>

#include "agent/events.h"
#include "agent/rollout/rollout.h"

namespace kevin {

struct CollectTotals {
  std::string run;
  int problems = 0, policies = 1, turns = 8;  // of the whole collection
  int devices = 1;                            // of this process
  int64_t turns_at_start = 0;                 // stored before this process began
};

// "12/64 episodes, 3 running | 310 turns/h | solved 8/31 | best 3.1x level1/23 | device busy 87 % | 2 h 10
// min left"; shorter where something is not known yet.
std::string ProgressText(const RolloutStatus& status, const CollectTotals& totals, const Budget& budget);

// `progress`: run, waiting, running, done, parked, turns, turns_per_hour, solved, problems, best_problem,
// best_speedup, device_busy (0 to 1), prompt_tokens, completion_tokens, dollars, seconds, seconds_left.
Json ProgressEvent(const RolloutStatus& status, const CollectTotals& totals, const Budget& budget);

// "level1/19 ReLU ... done, 8 turns, 6 right, best turn 2 with 1.5x (1.4x to 1.6x)"
std::string EpisodeLine(const EpisodeRecord& episode);

// One line a problem and policy, as a table.
std::string ResultTable(const std::vector<ProblemResult>& results);
Json ResultEvent(const ProblemResult& result);

// "45 s", "12 min", "2 h 10 min", "3 d 4 h"
std::string DurationText(double seconds);

}  // namespace kevin
