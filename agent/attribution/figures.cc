#include "agent/attribution/figures.h"

#include <unordered_map>

namespace kevin {
namespace {

std::string TaskOf(const EpisodeFigures& e) {
  const Workload& w = e.workload;
  std::string task = e.run;
  for (const std::string& part : {std::to_string(e.problem), e.policy, e.kind, w.size, w.inputs, w.precision})
    task += '\n' + part;
  return task + (w.tf32 ? "\ntf32" : "");
}

TurnFacts FactsOf(const TurnFigures& t) {
  return {t.outcome != OutcomeKind::kParseFailed, t.compiled, t.correct, t.speedup, t.log_se, 0};
}

}  // namespace

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

nlohmann::ordered_json SchemeJson(const Scheme& scheme) {
  const ScoreRule& s = scheme.score;
  nlohmann::ordered_json json;
  if (s.kind == ScoreRule::Kind::kMilestones) {
    json["score"] = {{"kind", "milestones"}, {"margin", s.margin}, {"strong", s.strong}};
  } else {
    json["score"] = {{"kind", "linear"},       {"format", s.format},
                     {"compiled", s.compiled}, {"correct", s.correct},
                     {"speedup", s.speedup},   {"log2_speedup", s.log2_speedup},
                     {"faster", s.faster},     {"margin", s.margin},
                     {"wrong", s.wrong},       {"cap", s.cap > 0 ? nlohmann::ordered_json(s.cap) : nullptr}};
  }
  json["return"] = {{"kind", ReturnKindName(scheme.returns.kind)}, {"gamma", scheme.returns.gamma}};
  json["advantage"] = {{"kind", AdvantageKindName(scheme.advantage.kind)}, {"noise", scheme.advantage.noise}};
  return json;
}

}  // namespace kevin
