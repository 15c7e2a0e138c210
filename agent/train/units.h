#pragma once
// From turns to what is learnt from together, and which of it each step takes. Pure arithmetic.

#include <cstdint>
#include <string>
#include <vector>

#include "agent/train/algorithm.h"
#include "agent/train/turns.h"

namespace kevin {

// Indices into LearnTurns::turns().
//   rollouts   all turns of one task: m episodes of n turns
//   answers    one turn
//   pairs      {p, c, r}: to the prompt of turn p, the answer of turn c is better than that of turn r
struct Unit {
  std::vector<size_t> turns;
};

struct UnitOptions {
  double noise = 2;        // pairs: scores differ by more than this many standard errors
  double min_speedup = 0;  // answers: of right kernels
  bool keep_flat = false;  // rollouts: tasks whose turns do not differ, too
};

struct Units {
  std::vector<Unit> units;
  int64_t dropped = 0;  // tasks without a difference, turns that were not picked, prompts without a pair
  int64_t too_long = 0, voided = 0;  // units without a usable sample (WithoutUnusable, batches.h)
};

// Rollouts: tasks whose advantages are all 0 teach nothing and are dropped.
// Answers: cut-off replies are never imitated; "best" takes the fastest right turn of each problem over all
// databases.
// Pairs come from ladders: turn t of an episode against its best later turn, if that is better, on the prompt
// of turn t; and from first turns of one task, whose prompt is the same: the best against each worse one.
Units MakeUnits(const Algorithm& algorithm, const LearnTurns& turns, const UnitOptions& options);

// Which units step `step` (from 1) takes: every epoch all of them once, in an order of its own; no unit twice
// in a step.
std::vector<size_t> UnitsOfStep(size_t units, size_t per_step, int64_t step, uint64_t seed);
// Of one epoch.
int64_t StepsPerEpoch(size_t units, size_t per_step);

}  // namespace kevin
