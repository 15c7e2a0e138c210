#include "agent/attribution/attribution.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

#include "trajectories/figures.h"

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
  return {Known(turn.speedup) > rule.margin ? 2.0 : 1.0, 0};
}

using ReturnKind = ReturnRule::Kind;

std::vector<Scored> DiscountedSums(std::span<const Scored> turns, double gamma) {
  std::vector<Scored> returns(turns.size());
  Scored after;
  for (size_t i = turns.size(); i-- > 0;) {
    after = {turns[i].score + gamma * after.score, std::hypot(turns[i].se, gamma * after.se)};
    returns[i] = after;
  }
  return returns;
}

std::vector<Scored> DiscountedMaxima(std::span<const Scored> turns, double gamma) {
  std::vector<Scored> returns(turns.size());
  for (size_t i = turns.size(); i-- > 0;) {
    returns[i] = turns[i];
    if (i + 1 == turns.size()) continue;
    const Scored later = {gamma * returns[i + 1].score, gamma * returns[i + 1].se};
    if (later.score > returns[i].score) returns[i] = later;
  }
  return returns;
}

std::vector<Scored> Outcomes(std::span<const Scored> turns) {
  Scored best = turns.front();
  for (const Scored& turn : turns) {
    if (turn.score > best.score) best = turn;
  }
  return std::vector<Scored>(turns.size(), best);
}

struct NamedReturn {
  const char* name;
  ReturnKind kind;
};
constexpr NamedReturn kReturnNames[] = {{"sum", ReturnKind::kSum},
                                        {"max", ReturnKind::kMax},
                                        {"outcome", ReturnKind::kOutcome},
                                        {"own", ReturnKind::kOwn}};

using Kind = AdvantageRule::Kind;

struct NamedKind {
  const char* name;
  Kind kind;
};
constexpr NamedKind kNames[] = {{"group", Kind::kGroup},
                                {"turn", Kind::kTurn},
                                {"turn-loo", Kind::kTurnLeaveOneOut},
                                {"group-loo", Kind::kGroupLeaveOneOut},
                                {"group-mean", Kind::kGroupMean},
                                {"turn-mean", Kind::kTurnMean}};

struct Moments {
  double mean = 0, deviation = 0, error = 0;
};

Moments MomentsOf(std::span<const Scored> returns) {
  const auto n = static_cast<double>(returns.size());
  Moments m;
  for (const Scored& r : returns) m.mean += r.score / n;
  double squares = 0, errors = 0;
  for (const Scored& r : returns) {
    squares += (r.score - m.mean) * (r.score - m.mean);
    errors += r.se * r.se;
  }
  m.deviation = std::sqrt(squares / n), m.error = std::sqrt(errors / n);
  return m;
}

Scheme Make(const std::string& name, const std::string& score, ReturnRule returns, AdvantageRule::Kind kind) {
  Scheme scheme{name, {}, returns, {kind, 2}};
  FindScoreRule(score, &scheme.score);
  return scheme;
}

struct Group {
  std::vector<size_t> members;            // indices of turns
  std::vector<Scored> returns, compared;  // compared: those that tell whether the group is flat
};

std::string TaskOf(const EpisodeFigures& e) {
  const Workload& w = e.workload;
  std::string task = e.run;
  for (const std::string& part : {std::to_string(e.problem), e.policy, e.kind, w.size, w.inputs, w.precision})
    task += '\n' + part;
  return task + (w.tf32 ? "\ntf32" : "");
}

TurnFacts FactsOf(const TurnFigures& t) {
  return {t.outcome != OutcomeKind::kParseFailed, t.compiled, t.correct, t.speedup, t.log_se, 0, 0, 0, 0};
}

Scheme WithOverlongTerm(Scheme scheme) {
  scheme.name = "dapo", scheme.score.overlong = 1;
  return scheme;
}

std::vector<Scored> ScoresOf(const ScoreRule& rule, const AttributedEpisode& episode) {
  std::vector<Scored> scores;
  scores.reserve(episode.turns.size());
  for (const TurnFacts& turn : episode.turns) scores.push_back(ScoreOf(rule, turn));
  return scores;
}

}  // namespace

Scored ScoreOf(const ScoreRule& rule, const TurnFacts& turn) {
  Scored scored =
      rule.kind == ScoreRule::Kind::kMilestones ? MilestoneScore(rule, turn) : LinearScore(rule, turn);
  scored.score += rule.tags * turn.tags + rule.similarity * turn.similarity + rule.staged * turn.staged +
                  rule.overlong * turn.overlong;
  return scored;
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

std::vector<Scored> Returns(const ReturnRule& rule, std::span<const Scored> turns) {
  if (turns.empty()) return {};
  switch (rule.kind) {
    case ReturnKind::kSum:
      return DiscountedSums(turns, rule.gamma);
    case ReturnKind::kMax:
      return DiscountedMaxima(turns, rule.gamma);
    case ReturnKind::kOutcome:
      return Outcomes(turns);
    case ReturnKind::kOwn:
      return {turns.begin(), turns.end()};
  }
  return {};
}

bool FindReturnKind(const std::string& name, ReturnKind* kind) {
  for (const NamedReturn& known : kReturnNames) {
    if (name != known.name) continue;
    *kind = known.kind;
    return true;
  }
  return false;
}

const char* ReturnKindName(ReturnKind kind) {
  for (const NamedReturn& known : kReturnNames) {
    if (kind == known.kind) return known.name;
  }
  return "";
}

bool IsPerTurn(Kind kind) {
  return kind == Kind::kTurn || kind == Kind::kTurnLeaveOneOut || kind == Kind::kTurnMean;
}

GroupResult Advantages(const AdvantageRule& rule, std::span<const Scored> returns) {
  GroupResult result;
  result.advantages.assign(returns.size(), 0.0);
  const Moments m = MomentsOf(returns);
  const double rounding = 1e-9 * std::max(1.0, std::abs(m.mean));
  result.flat = returns.size() < 2 || m.deviation <= rounding || m.deviation <= rule.noise * m.error;
  if (result.flat) return result;
  const auto n = static_cast<double>(returns.size());
  double factor = 1;
  if (rule.kind == Kind::kGroup || rule.kind == Kind::kTurn) factor = 1 / m.deviation;
  if (rule.kind == Kind::kTurnLeaveOneOut || rule.kind == Kind::kGroupLeaveOneOut) factor = n / (n - 1);
  for (size_t i = 0; i < returns.size(); ++i) result.advantages[i] = factor * (returns[i].score - m.mean);
  return result;
}

bool FindAdvantageKind(const std::string& name, Kind* kind) {
  for (const NamedKind& known : kNames) {
    if (name != known.name) continue;
    *kind = known.kind;
    return true;
  }
  return false;
}

const char* AdvantageKindName(Kind kind) {
  for (const NamedKind& known : kNames) {
    if (kind == known.kind) return known.name;
  }
  return "";
}

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
      Make("outcome", "kevin", {Return::kOutcome, 1.0}, Advantage::kGroup),
      WithOverlongTerm(Make("kevin", "kevin", {Return::kSum, 0.4}, Advantage::kGroup))};
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
  ScoreRule of_any_length = scheme.score;
  of_any_length.overlong = 0;
  std::unordered_map<uint64_t, size_t> group_of;
  std::vector<Group> groups;
  for (const AttributedEpisode& episode : episodes) {
    const std::vector<Scored> scores = ScoresOf(scheme.score, episode);
    const std::vector<Scored> returns = Returns(scheme.returns, scores);
    const std::vector<Scored> compared = Returns(scheme.returns, ScoresOf(of_any_length, episode));
    for (size_t t = 0; t < returns.size(); ++t) {
      const uint64_t key = static_cast<uint64_t>(episode.task) << 32 | (per_turn ? t : 0);
      const auto [slot, is_new] = group_of.try_emplace(key, groups.size());
      if (is_new) groups.emplace_back();
      groups[slot->second].members.push_back(result.turns.size());
      groups[slot->second].returns.push_back(returns[t]);
      groups[slot->second].compared.push_back(compared[t]);
      result.turns.push_back({scores[t], returns[t].score, 0});
    }
  }
  for (const Group& group : groups) {
    GroupResult one = Advantages(scheme.advantage, group.returns);
    if (Advantages(scheme.advantage, group.compared).flat)
      one = {std::vector<double>(group.members.size(), 0.0), true};
    for (size_t i = 0; i < group.members.size(); ++i)
      result.turns[group.members[i]].advantage = one.advantages[i];
    result.flat_groups += one.flat;
  }
  result.groups = static_cast<int64_t>(groups.size());
  return result;
}

std::vector<AttributedEpisode> ToAttributed(const Figures& figures) {
  std::unordered_map<std::string, int> tasks;
  std::vector<AttributedEpisode> episodes;
  episodes.reserve(figures.episodes.size());
  for (const EpisodeFigures& e : figures.episodes) {
    AttributedEpisode one;
    one.task = tasks.try_emplace(TaskOf(e), static_cast<int>(tasks.size())).first->second;
    for (size_t i = e.first_turn; i < e.first_turn + e.turn_count; ++i) {
      if (figures.turns[i].turn > 0) one.turns.push_back(FactsOf(figures.turns[i]));
    }
    episodes.push_back(std::move(one));
  }
  return episodes;
}

bool NeedsLaterTurns(const Scheme& scheme) { return scheme.returns.kind != ReturnRule::Kind::kOwn; }

Unfinished LeaveOutUnfinished(Figures* figures) {
  Unfinished unfinished;
  std::erase_if(figures->episodes,
                [&](const EpisodeFigures& e) { return e.state != "done" && ++unfinished[e.state] > 0; });
  return unfinished;
}

std::string UnfinishedText(const Unfinished& unfinished) {
  int64_t count = 0;
  std::string states;
  for (const auto& [state, episodes] : unfinished) {
    count += episodes;
    states += (states.empty() ? "" : ", ") + std::to_string(episodes) + " " + state;
  }
  if (count == 0) return "";
  return std::to_string(count) + (count == 1 ? " unfinished episode was" : " unfinished episodes were") +
         " left out (" + states + "): the returns of their turns are not known yet";
}

nlohmann::ordered_json SchemeJson(const Scheme& scheme) {
  const ScoreRule& s = scheme.score;
  nlohmann::ordered_json json;
  if (s.kind == ScoreRule::Kind::kMilestones) {
    json["score"] = {{"kind", "milestones"}, {"margin", s.margin}};
  } else {
    json["score"] = {{"kind", "linear"},       {"format", s.format},
                     {"compiled", s.compiled}, {"correct", s.correct},
                     {"speedup", s.speedup},   {"log2_speedup", s.log2_speedup},
                     {"faster", s.faster},     {"margin", s.margin},
                     {"wrong", s.wrong},       {"cap", s.cap > 0 ? nlohmann::ordered_json(s.cap) : nullptr}};
  }
  // Left out where they are off, so that parameters of earlier programs stay equal.
  const std::pair<const char*, double> terms[] = {{"tags", s.tags},
                                                  {"similarity", s.similarity},
                                                  {"staged", s.staged},
                                                  {"overlong", s.overlong},
                                                  {"overlong_cache", s.overlong != 0 ? s.overlong_cache : 0}};
  for (const auto& [name, weight] : terms) {
    if (weight != 0) json["score"][name] = weight;
  }
  json["return"] = {{"kind", ReturnKindName(scheme.returns.kind)}, {"gamma", scheme.returns.gamma}};
  json["advantage"] = {{"kind", AdvantageKindName(scheme.advantage.kind)}, {"noise", scheme.advantage.noise}};
  return json;
}

}  // namespace kevin
