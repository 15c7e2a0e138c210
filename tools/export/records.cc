#include "tools/export/records.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "agent/journal.h"
#include "agent/json.h"
#include "agent/shape_records.h"
#include "tools/export/chosen_turns.h"
#include "trajectories/blob.h"

namespace kevin {
namespace {

Json Messages(const TurnRecord& turn) {
  Json messages = Json::array();
  for (const MessageRecord& m : turn.messages) messages.push_back({{"role", m.role}, {"content", m.content}});
  return messages;
}

Json Answer(const TurnRecord& turn) {
  Json message = {{"role", "assistant"}, {"content", turn.reply}};
  if (!turn.reasoning.empty()) message["reasoning_content"] = turn.reasoning;
  return message;
}

Json Where(const ChosenEpisode& e, int turn) {
  return {{"problem", e.problem->id},
          {"run", e.figures->run},
          {"episode", e.figures->id},
          {"turn", turn},
          {"policy", e.figures->policy}};
}

void AddAttribution(const TurnAttribution& a, Json* line) {
  (*line)["reward"] = a.score.score;
  (*line)["reward_se"] = a.score.se;
  (*line)["return"] = a.value;
  (*line)["advantage"] = a.advantage;
}

Json TurnLine(const ChosenEpisode& e, const ChosenTurn& chosen, const TurnRecord& t) {
  const EvaluationRecord& v = t.evaluation;
  Json line = Where(e, chosen.turn);
  line["kind"] = e.figures->kind, line["device"] = e.figures->device, line["size"] = e.figures->workload.size;
  line["messages"] = Messages(t);
  line["completion"] = t.reply, line["reasoning"] = OrNull(t.reasoning);
  line["prompt_token_ids"] = OrNull(t.prompt_token_ids), line["token_ids"] = OrNull(t.token_ids);
  line["logprobs"] = OrNull(t.logprobs);
  line["sampling"] = {{"temperature", OrNull(t.sampling.temperature)},
                      {"top_p", OrNull(t.sampling.top_p)},
                      {"max_tokens", OrNull(t.sampling.max_tokens)},
                      {"seed", t.sampling.seed ? Json(std::to_string(*t.sampling.seed)) : Json(nullptr)}};
  line["stop_reason"] = t.stop_reason, line["model"] = OrNull(t.model.name);
  line["weights_hash"] = OrNull(t.model.weights_hash),
  line["tokenizer_hash"] = OrNull(t.model.tokenizer_hash);
  line["chat_template_hash"] = OrNull(t.model.template_hash);
  line["prompt_template"] = t.prompt_template, line["parser_version"] = t.parser_version;
  line["source"] = OrNull(v.source), line["summary"] = OrNull(t.summary),
  line["feedback"] = OrNull(t.feedback);
  line["outcome"] = v.outcome, line["reason"] = OrNull(v.reason);
  line["compiled"] = v.compiled, line["correct"] = v.correct;
  line["speedup"] = v.speedup ? Json(v.speedup->value) : Json(nullptr);
  line["speedup_low"] = v.speedup ? Json(v.speedup->low) : Json(nullptr);
  line["speedup_high"] = v.speedup ? Json(v.speedup->high) : Json(nullptr);
  line["log_se"] = v.speedup ? OrNull(v.speedup->log_se) : Json(nullptr);
  line["shapes"] = ShapesJson(v.shapes);
  AddAttribution(chosen.attribution, &line);
  return line;
}

// Calls `use` with each selected turn and its record.
void ForEachTurn(const ChosenTurns& chosen,
                 const std::function<void(const ChosenEpisode&, const ChosenTurn&, const TurnRecord&)>& use) {
  for (const ChosenEpisode& e : chosen.episodes()) {
    const std::vector<TurnRecord> records = CurrentTurns(*e.store, e.figures->id);
    for (const ChosenTurn& turn : e.turns) {
      const auto record = std::find_if(records.begin(), records.end(),
                                       [&](const TurnRecord& r) { return r.turn == turn.turn; });
      if (record != records.end()) use(e, turn, *record);
    }
  }
}

struct Answered {
  const ChosenEpisode* episode = nullptr;
  ChosenTurn turn;
};

std::string PromptHash(const TurnRecord& turn) {
  std::string bytes;
  for (const MessageRecord& m : turn.messages)
    bytes += fmt::format("{} {}\n", m.role, m.content.size()) + m.content;
  return ContentHash(bytes);
}

bool Differ(const TurnAttribution& better, const TurnAttribution& worse, double noise) {
  return better.score.score - worse.score.score > noise * std::hypot(better.score.se, worse.score.se);
}

Json PairLine(const Answered& better, const Answered& worse) {
  const auto chosen = better.episode->store->LoadTurn(better.episode->figures->id, better.turn.turn);
  const auto rejected = worse.episode->store->LoadTurn(worse.episode->figures->id, worse.turn.turn);
  Json line = {
      {"prompt", Messages(*chosen)}, {"chosen", {Answer(*chosen)}}, {"rejected", {Answer(*rejected)}}};
  line["chosen_reward"] = better.turn.attribution.score.score;
  line["rejected_reward"] = worse.turn.attribution.score.score;
  line["chosen_from"] = Where(*better.episode, better.turn.turn);
  line["rejected_from"] = Where(*worse.episode, worse.turn.turn);
  return line;
}

}  // namespace

RecordsWritten WriteJsonLines(const RecordsRequest& request, const WriteLine& write) {
  RecordsWritten written;
  ForEachTurn(ChosenTurns(request),
              [&](const ChosenEpisode& e, const ChosenTurn& t, const TurnRecord& record) {
                write(TurnLine(e, t, record));
                written.lines++;
              });
  return written;
}

RecordsWritten WriteSft(const RecordsRequest& request, const WriteLine& write) {
  RecordsWritten written;
  ForEachTurn(ChosenTurns(request),
              [&](const ChosenEpisode& e, const ChosenTurn& t, const TurnRecord& record) {
                Json line = {{"messages", Messages(record)}};
                line["messages"].push_back(Answer(record));
                line.update(Where(e, t.turn));
                line["speedup"] = std::isnan(t.speedup) ? Json(nullptr) : Json(t.speedup);
                AddAttribution(t.attribution, &line);
                write(line);
                written.lines++;
              });
  return written;
}

RecordsWritten WritePreferences(const RecordsRequest& request, const WriteLine& write) {
  const ChosenTurns chosen(request);
  std::map<std::string, std::vector<Answered>> by_prompt;
  ForEachTurn(chosen, [&](const ChosenEpisode& e, const ChosenTurn& t, const TurnRecord& record) {
    by_prompt[PromptHash(record)].push_back({&e, t});
  });
  RecordsWritten written;
  for (auto& [prompt, answers] : by_prompt) {
    std::stable_sort(answers.begin(), answers.end(), [](const Answered& a, const Answered& b) {
      return a.turn.attribution.score.score > b.turn.attribution.score.score;
    });
    const size_t most = std::min(answers.size() / 2, static_cast<size_t>(request.pairs));
    size_t made = 0;
    for (; made < most; ++made) {
      const Answered &better = answers[made], &worse = answers[answers.size() - 1 - made];
      if (!Differ(better.turn.attribution, worse.turn.attribution, request.scheme.advantage.noise)) break;
      write(PairLine(better, worse));
    }
    written.lines += static_cast<int64_t>(made);
    written.skipped += made == 0;
  }
  if (written.skipped > 0)
    written.remark = fmt::format("{} prompts had one answer, or answers that do not differ", written.skipped);
  return written;
}

}  // namespace kevin
