#pragma once
// From the scores of an episode's turns to what each turn is credited with. Pure arithmetic; any thread.
// With scores r_1 ... r_T and discount g:
//
//   sum      R_t = sum over i >= t of g^(i-t) r_i      Kevin, arXiv 2507.11948, section 4.3 (g = 0.4 there;
//                                                      g = 1 in Dr. Kernel, arXiv 2602.05885)
//   max      R_t = max over i >= t of g^(i-t) r_i      Kevin, section 4.3 (best with g = 0.8 and few turns)
//   outcome  R_t = max over all i of r_i               Kevin, section 4.3: the best of the episode for every
//                                                      turn
//   own      R_t = r_t                                 Kevin, section 4.3: greedy, the same as sum with g = 0
//   first    R_1 = r_1;  R_t = r_1 + g (R'_t - r_1) for t > 1, with R' the sum above
//                                                      A formula of our own in the spirit of MusaCoder (arXiv
//                                                      2606.04847), whose rewards are anchored at the first
//                                                      turn: turn 1 gains nothing by leaving work for later,
//                                                      and later turns count by how far they get beyond it.
//
// The error of a return: for a sum the root of the sum of squared discounted errors, for a maximum that of
// the score it comes from.

#include <span>
#include <string>
#include <vector>

#include "agent/attribution/score.h"

namespace kevin {

struct ReturnRule {
  enum class Kind { kSum, kMax, kOutcome, kOwn, kFirst };
  Kind kind = Kind::kSum;
  double gamma = 0.4;  // from 0 to 1
};

// One per turn, in the same order: the turns of one episode as they came.
std::vector<Scored> Returns(const ReturnRule& rule, std::span<const Scored> turns);

// "sum", "max", "outcome", "own", "first"; false for any other name.
bool FindReturnKind(const std::string& name, ReturnRule::Kind* kind);
const char* ReturnKindName(ReturnRule::Kind kind);

}  // namespace kevin
