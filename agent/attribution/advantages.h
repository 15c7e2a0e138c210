#pragma once
// From returns to advantages: a return against those of the same group. Pure arithmetic; any thread.
// With the n returns R_i of a group, their mean M and standard deviation S (of the population, divided by n):
//
//   group       A_i = (R_i - M) / S           the group is all m episodes x n turns of one task. Kevin, arXiv
//                                             2507.11948, section 4 step 4 and equation 1
//   turn        A_i = (R_i - M) / S           one group per task and turn number: the baseline "per
//   refinement
//                                             step" that Kevin's authors name
//   turn-loo    A_i = R_i - mean of the other R_j = n / (n - 1) (R_i - M)
//                                             per task and turn number. TRLOO, Dr. Kernel, arXiv 2602.05885
//   group-loo   A_i = R_i - mean of the others   the same over all of a task. RLOO, arXiv 2402.14740
//   group-mean  A_i = R_i - M                 over all of a task, without the division that favours easy and
//                                             hard tasks. Dr. GRPO, arXiv 2503.20783
//   turn-mean   A_i = R_i - M                 the same per task and turn number
//
// A group without a difference has advantage 0 throughout: one sample; S of no more than rounding; or S
// within `noise` (2) times the measurement error, the root mean square of the returns' standard errors. Such
// a group would only teach the noise of the clock.

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "agent/attribution/score.h"

namespace kevin {

struct AdvantageRule {
  enum class Kind { kGroup, kTurn, kTurnLeaveOneOut, kGroupLeaveOneOut, kGroupMean, kTurnMean };
  Kind kind = Kind::kGroup;
  double noise = 2;  // 0: every difference counts
};

// True where turns of one task are compared by turn number.
bool IsPerTurn(AdvantageRule::Kind kind);

struct GroupResult {
  std::vector<double> advantages;  // as many as returns
  bool flat = false;               // no difference
};
// `returns` is one whole group.
GroupResult Advantages(const AdvantageRule& rule, std::span<const Scored> returns);

// "group", "turn", "turn-loo", "group-loo", "group-mean", "turn-mean"; false for any other name.
bool FindAdvantageKind(const std::string& name, AdvantageRule::Kind* kind);
const char* AdvantageKindName(AdvantageRule::Kind kind);

}  // namespace kevin
