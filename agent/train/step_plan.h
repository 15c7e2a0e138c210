#pragma once
// What an online step asks for, as functions of the run so far: which problems, which further ones in place of those
// whose turns do not differ, and how long a reply may be. Pure.

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "agent/train/turns.h"

namespace kevin {

// --- The length cap ---

// The most tokens of a reply, by the first step for which they hold; ascending. Kevin (arXiv 2507.11948, section 4.3)
// raised it from 16k to 22k within a run.
class LengthSchedule {
 public:
  LengthSchedule() = default;
  // "1:16384,31:22528". Throws Error(kBadRequest) unless steps and tokens ascend and the first step is 1.
  explicit LengthSchedule(const std::string& text);
  bool empty() const { return caps_.empty(); }
  int At(int64_t step) const;  // of a schedule that is not empty
  int Largest() const { return caps_.back().second; }

 private:
  std::vector<std::pair<int64_t, int>> caps_;
};

// --- The problems ---

// The share of correct turns of each problem, at its latest visit.
using SolveRates = std::map<std::string, double>;

// The rates of the problems in `turns`.
SolveRates SolveRatesOf(const LearnTurns& turns);

// `count` of `problems`, drawn without replacement with the weight 4 p (1 - p) of its solve rate p, at least 0.05:
// problems that are always or never solved come rarely, but are not forgotten. A problem without a rate has weight 1.
// `draw` and `seed` determine the result.
std::vector<std::string> DrawProblems(const std::vector<std::string>& problems, const SolveRates& rates,
                                      size_t count, uint64_t seed, uint64_t draw);

// The tasks of `turns` whose turns do not differ beyond the measurement error.
int64_t FlatTasks(const LearnTurns& turns);
// The tasks of a collection of `problems` that have none of its `turns`: no episode of theirs was completed, because all
// are parked.
int64_t ParkedTasks(const std::vector<std::string>& problems, const LearnTurns& turns);

}  // namespace kevin
