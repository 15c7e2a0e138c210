#include "agent/attribution/attribution.h"

#include <algorithm>
#include <unordered_map>

namespace kevin {
namespace {

Scheme Make(const std::string& name, const std::string& score, ReturnRule returns, AdvantageRule::Kind kind) {
  Scheme scheme{name, {}, returns, {kind, 2}};
  FindScoreRule(score, &scheme.score);
  return scheme;
}

struct Group {
  std::vector<size_t> members;  // indices of turns
  std::vector<Scored> returns;
};

}  // namespace

const std::vector<Scheme>& KnownSchemes() {
  using Return = ReturnRule::Kind;
  using Advantage = AdvantageRule::Kind;
  static const std::vector<Scheme> kSchemes = {
      Make("kevin", "kevin", {Return::kSum, 0.4}, Advantage::kGroup),
      Make("kevin-max", "kevin", {Return::kMax, 0.8}, Advantage::kGroup),
      Make("trloo", "dr-kernel", {Return::kSum, 1.0}, Advantage::kTurnLeaveOneOut),
      Make("dr-grpo", "kevin", {Return::kSum, 0.4}, Advantage::kGroupMean),
      Make("rloo", "kevin", {Return::kSum, 0.4}, Advantage::kGroupLeaveOneOut),
      Make("milestones", "milestones", {Return::kOwn, 0.0}, Advantage::kGroup),
      Make("first", "kevin", {Return::kFirst, 0.4}, Advantage::kTurn),
      Make("outcome", "kevin", {Return::kOutcome, 1.0}, Advantage::kGroup)};
  return kSchemes;
}

std::optional<Scheme> FindScheme(const std::string& name) {
  for (const Scheme& scheme : KnownSchemes()) {
    if (scheme.name == name) return scheme;
  }
  return std::nullopt;
}

Attribution Attribute(const Scheme& scheme, std::span<const AttributedEpisode> episodes) {
  Attribution result;
  const bool per_turn = IsPerTurn(scheme.advantage.kind);
  std::unordered_map<uint64_t, size_t> group_of;
  std::vector<Group> groups;
  for (const AttributedEpisode& episode : episodes) {
    std::vector<Scored> scores;
    scores.reserve(episode.turns.size());
    for (const TurnFacts& turn : episode.turns) scores.push_back(ScoreOf(scheme.score, turn));
    const std::vector<Scored> returns = Returns(scheme.returns, scores);
    for (size_t t = 0; t < returns.size(); ++t) {
      const uint64_t key = static_cast<uint64_t>(episode.task) << 32 | (per_turn ? t : 0);
      const auto [slot, is_new] = group_of.try_emplace(key, groups.size());
      if (is_new) groups.emplace_back();
      groups[slot->second].members.push_back(result.turns.size());
      groups[slot->second].returns.push_back(returns[t]);
      result.turns.push_back({scores[t], returns[t].score, 0});
    }
  }
  for (const Group& group : groups) {
    const GroupResult one = Advantages(scheme.advantage, group.returns);
    for (size_t i = 0; i < group.members.size(); ++i)
      result.turns[group.members[i]].advantage = one.advantages[i];
    result.flat_groups += one.flat;
  }
  result.groups = static_cast<int64_t>(groups.size());
  return result;
}

}  // namespace kevin
