#pragma once
// START HERE for attribution: which turn of which episode earned how much. A scheme is a score (score.h), a
// return over the turns of an episode (returns.h) and an advantage within a group (advantages.h). Pure
// arithmetic, no database and no torch, so that the same records can be attributed anew at any time.
//
//   Attribution result = Attribute(FindScheme("kevin"), episodes);
//   result.turns[i]     belongs to the i-th turn of all episodes in their order

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "agent/attribution/advantages.h"
#include "agent/attribution/returns.h"
#include "agent/attribution/score.h"

namespace kevin {

struct Scheme {
  std::string name;
  ScoreRule score;
  ReturnRule returns;
  AdvantageRule advantage;
};

// Ready-made schemes, each as its paper has it (see the parts' headers):
//   kevin       kevin's score, sum with 0.4, group
//   kevin-max   kevin's score, max with 0.8, group
//   trloo       dr-kernel's score, sum with 1, turn-loo
//   dr-grpo     kevin's score, sum with 0.4, group-mean
//   rloo        kevin's score, sum with 0.4, group-loo
//   milestones  milestones, own, group
//   first       kevin's score, first with 0.4, turn
//   outcome     kevin's score, outcome, group
const std::vector<Scheme>& KnownSchemes();
std::optional<Scheme> FindScheme(const std::string& name);

// The turns of one episode, in order, without turn 0.
struct AttributedEpisode {
  int task = 0;  // equal for episodes that are compared: same run, problem, policy and conditions
  std::vector<TurnFacts> turns;
};

struct TurnAttribution {
  Scored score;
  double value = 0;  // the return
  double advantage = 0;
};

struct Attribution {
  std::vector<TurnAttribution> turns;
  int64_t groups = 0, flat_groups = 0;
};

Attribution Attribute(const Scheme& scheme, std::span<const AttributedEpisode> episodes);

}  // namespace kevin
