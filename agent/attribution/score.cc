#include "agent/attribution/score.h"

#include <algorithm>
#include <cmath>

namespace kevin {
namespace {

double Known(double value) { return std::isnan(value) ? 0 : value; }

Scored LinearScore(const ScoreRule& rule, const TurnFacts& turn) {
  Scored scored;
  scored.score = rule.format * turn.has_source + rule.compiled * turn.compiled;
  const double raw = Known(turn.speedup);
  if (!turn.correct || raw <= 0) {
    scored.score += turn.correct ? rule.correct : rule.wrong;
    return scored;
  }
  const bool capped = rule.cap > 0 && raw >= rule.cap;
  const double s = capped ? rule.cap : raw;
  scored.score += rule.correct + rule.speedup * s + rule.log2_speedup * std::log2(s);
  if (raw > rule.margin) scored.score += rule.faster;
  if (!capped)
    scored.se = std::abs(rule.speedup * s + rule.log2_speedup / std::log(2.0)) * Known(turn.log_se);
  return scored;
}

Scored MilestoneScore(const ScoreRule& rule, const TurnFacts& turn) {
  if (!turn.correct) return {-1, 0};
  const double s = Known(turn.speedup), compiled = Known(turn.speedup_compiled);
  if (s <= rule.margin) return {1, 0};
  const bool strong = compiled > 0 ? compiled > rule.margin : rule.strong > 0 && s > rule.strong;
  return {strong ? 3.0 : 2.0, 0};
}

}  // namespace

Scored ScoreOf(const ScoreRule& rule, const TurnFacts& turn) {
  return rule.kind == ScoreRule::Kind::kMilestones ? MilestoneScore(rule, turn) : LinearScore(rule, turn);
}

bool FindScoreRule(const std::string& name, ScoreRule* rule) {
  ScoreRule found;
  if (name == "dr-kernel") {
    found.correct = 1, found.cap = 3;
  } else if (name == "shaped") {
    found.format = 0.1, found.compiled = 0.1;
  } else if (name == "correct") {
    found.correct = 1, found.speedup = 0;
  } else if (name == "milestones") {
    found.kind = ScoreRule::Kind::kMilestones;
  } else if (name != "kevin") {
    return false;
  }
  *rule = found;
  return true;
}

}  // namespace kevin
