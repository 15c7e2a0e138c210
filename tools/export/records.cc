#include "tools/export/records.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "agent/attribution/attribution.h"
#include "agent/attribution/shaping.h"
#include "agent/events.h"
#include "agent/journal.h"
#include "agent/json.h"
#include "agent/shape_records.h"
#include "env/error.h"
#include "tools/record_options.h"
#include "trajectories/blob.h"

namespace kevin {
namespace {

// The returns and advantages of unfinished episodes are not known, and take no part in those of others.
std::vector<TurnAttribution> AttributionOf(const Scheme& scheme, const Figures& figures, Store& store) {
  std::vector<TurnAttribution> all = Attribute(scheme, ToAttributed(figures, scheme.score, store)).turns;
  if (!NeedsLaterTurns(scheme)) return all;
  Figures finished = figures;
  if (LeaveOutUnfinished(&finished).empty()) return all;
  const std::vector<TurnAttribution> known =
      Attribute(scheme, ToAttributed(finished, scheme.score, store)).turns;
  size_t turn = 0, next = 0;
  for (const EpisodeFigures& e : figures.episodes) {
    for (size_t i = e.first_turn; i < e.first_turn + e.turn_count; ++i) {
      if (figures.turns[i].turn == 0) continue;
      if (e.state == "done") {
        all[turn++] = known[next++];
      } else {
        all[turn].value = all[turn].advantage = kNotKnown, ++turn;
      }
    }
  }
  return all;
}

bool IsCorrectTurn(const ChosenTurn& turn) {
  return turn.outcome == OutcomeKind::kMeasured && !std::isnan(turn.speedup);
}

}  // namespace

ChosenTurns::ChosenTurns(const RecordsRequest& request) {
  LeftOutVerdicts left_out;
  std::string problem, advice;
  for (const std::string& database : request.databases) {
    auto source = std::make_unique<Source>(Source{database, Store::Open(database, OpenMode::kRead), {}});
    std::vector<std::string> runs;
    for (const std::string& prefix : request.runs) {
      try {
        runs.push_back(FindRunId(source->store.ListRuns(), prefix, database));
      } catch (const Error& error) {
        problem = error.what(), advice = error.next_step();
      }
    }
    if (!request.runs.empty() && runs.empty()) continue;  // it may be in another one
    source->figures = source->store.LoadFigures(runs);
    left_out += LeaveOutDoubtful(LeaveOut::kEpisodes, request.accept, &source->figures);
    sources_.push_back(std::move(source));
    AddSource(request, *sources_.back());
  }
  if (sources_.empty()) throw Error(ExitCode::kBadRequest, problem, advice);
  doubtful_verdicts_ = LeftOutText(left_out, request.databases);
  if (request.selection == Selection::kBest) KeepBest();
  std::erase_if(episodes_, [](const ChosenEpisode& e) { return e.turns.empty(); });
}

void ChosenTurns::AddSource(const RecordsRequest& request, Source& source) {
  const std::vector<TurnAttribution> attributed = AttributionOf(request.scheme, source.figures, source.store);
  size_t next = 0;
  for (const EpisodeFigures& e : source.figures.episodes) {
    ChosenEpisode chosen;
    chosen.store = &source.store;
    chosen.figures = &e;
    chosen.problem = &source.figures.problems[static_cast<size_t>(e.problem)];
    const bool is_wanted = chosen.problem->id.starts_with(request.problems) &&
                           (request.rules.empty() || e.workload.rules == request.rules);
    for (size_t i = e.first_turn; i < e.first_turn + e.turn_count; ++i) {
      const TurnFigures& t = source.figures.turns[i];
      if (t.turn == 0) continue;
      const ChosenTurn turn{t.turn, t.outcome, t.speedup, attributed[next++]};
      const bool is_correct = IsCorrectTurn(turn) && turn.speedup >= request.min_speedup;
      if (is_wanted && (is_correct || request.selection == Selection::kAll)) chosen.turns.push_back(turn);
    }
    episodes_.push_back(std::move(chosen));
  }
}

// The fastest turn of each problem and rules; a confirmed winner counts with its confirmed speed-up.
void ChosenTurns::KeepBest() {
  struct Best {
    size_t episode = 0, turn = 0;
    double speedup = 0;
  };
  std::map<std::pair<std::string, std::string>, Best> best;
  for (size_t e = 0; e < episodes_.size(); ++e) {
    const EpisodeFigures& figures = *episodes_[e].figures;
    for (size_t t = 0; t < episodes_[e].turns.size(); ++t) {
      const bool is_winner =
          episodes_[e].turns[t].turn == figures.best_turn && !std::isnan(figures.best_speedup);
      if (figures.best_turn >= 0 && !is_winner) continue;
      const double speedup = is_winner ? figures.best_speedup : episodes_[e].turns[t].speedup;
      Best& leader = best[{episodes_[e].problem->id, figures.workload.rules}];
      if (speedup > leader.speedup) leader = {e, t, speedup};
    }
  }
  std::vector<std::vector<ChosenTurn>> kept(episodes_.size());
  for (const auto& [question, leader] : best) {
    if (leader.speedup > 0) kept[leader.episode].push_back(episodes_[leader.episode].turns[leader.turn]);
  }
  for (size_t e = 0; e < episodes_.size(); ++e) episodes_[e].turns = std::move(kept[e]);
}

int64_t ChosenTurns::turns() const {
  int64_t count = 0;
  for (const ChosenEpisode& e : episodes_) count += static_cast<int64_t>(e.turns.size());
  return count;
}

Json PromptMessagesJson(const TurnRecord& turn) {
  Json messages = Json::array();
  for (const MessageRecord& m : turn.messages) messages.push_back({{"role", m.role}, {"content", m.content}});
  return messages;
}

namespace {

Json Answer(const TurnRecord& turn) {
  Json message = {{"role", "assistant"}, {"content", turn.reply}};
  if (!turn.reasoning.empty()) message["reasoning_content"] = turn.reasoning;
  return message;
}

}  // namespace

Json PlaceJson(const ChosenEpisode& e, int turn) {
  return {{"problem", e.problem->id},    {"run", e.figures->run},
          {"episode", e.figures->id},    {"turn", turn},
          {"policy", e.figures->policy}, {"rules", e.figures->workload.rules}};
}

void AddPythonJson(const EvaluationRecord& verdict, Json* line) {
  (*line)["backend"] = OrNull(verdict.backend);
  (*line)["own_share"] = OrNull(verdict.own_share);
}

void AddAttributionJson(const TurnAttribution& a, Json* line) {
  (*line)["reward"] = a.score.score;
  (*line)["reward_se"] = a.score.se;
  (*line)["return"] = OrNull(a.value);
  (*line)["advantage"] = OrNull(a.advantage);
}

namespace {

Json TurnLine(const ChosenEpisode& e, const ChosenTurn& chosen, const TurnRecord& t) {
  const EvaluationRecord& v = t.evaluation;
  Json line = PlaceJson(e, chosen.turn);
  line["kind"] = e.figures->kind, line["device"] = e.figures->device, line["size"] = e.figures->workload.size;
  line["messages"] = PromptMessagesJson(t);
  line["completion"] = t.reply, line["reasoning"] = OrNull(t.reasoning);
  line["prompt_token_ids"] = OrNull(t.prompt_token_ids), line["token_ids"] = OrNull(t.token_ids);
  line["logprobs"] = OrNull(t.logprobs);
  line["sampling"] = {{"temperature", OrNull(t.sampling.temperature)},
                      {"top_p", OrNull(t.sampling.top_p)},
                      {"top_k", OrNull(t.sampling.top_k)},
                      {"min_p", OrNull(t.sampling.min_p)},
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
  AddPythonJson(v, &line);
  AddAttributionJson(chosen.attribution, &line);
  return line;
}

}  // namespace

void ForEachTurn(const ChosenTurns& chosen, const UseTurn& use) {
  for (const ChosenEpisode& e : chosen.episodes()) {
    const std::vector<TurnRecord> records = CurrentTurns(*e.store, e.figures->id);
    for (const ChosenTurn& turn : e.turns) {
      const auto record = std::find_if(records.begin(), records.end(),
                                       [&](const TurnRecord& r) { return r.turn == turn.turn; });
      if (record != records.end()) use(e, turn, *record);
    }
  }
}

std::string PromptHash(const TurnRecord& turn) {
  std::string bytes;
  for (const MessageRecord& m : turn.messages)
    bytes += fmt::format("{} {}\n", m.role, m.content.size()) + m.content;
  return ContentHash(bytes);
}

namespace {

struct Answered {
  const ChosenEpisode* episode = nullptr;
  ChosenTurn turn;
};

bool Differ(const TurnAttribution& better, const TurnAttribution& worse, double noise) {
  return better.score.score - worse.score.score > noise * std::hypot(better.score.se, worse.score.se);
}

Json PairLine(const Answered& better, const Answered& worse) {
  const auto chosen = better.episode->store->LoadTurn(better.episode->figures->id, better.turn.turn);
  const auto rejected = worse.episode->store->LoadTurn(worse.episode->figures->id, worse.turn.turn);
  Json line = {{"prompt", PromptMessagesJson(*chosen)},
               {"chosen", {Answer(*chosen)}},
               {"rejected", {Answer(*rejected)}}};
  line["chosen_reward"] = better.turn.attribution.score.score;
  line["rejected_reward"] = worse.turn.attribution.score.score;
  line["chosen_from"] = PlaceJson(*better.episode, better.turn.turn);
  line["rejected_from"] = PlaceJson(*worse.episode, worse.turn.turn);
  return line;
}

}  // namespace

RecordsWritten WriteJsonLines(const RecordsRequest& request, const WriteLine& write) {
  const ChosenTurns chosen(request);
  RecordsWritten written = chosen.BeginWritten();
  ForEachTurn(chosen, [&](const ChosenEpisode& e, const ChosenTurn& t, const TurnRecord& record) {
    write(TurnLine(e, t, record));
    written.lines++;
  });
  return written;
}

RecordsWritten WriteSft(const RecordsRequest& request, const WriteLine& write) {
  const ChosenTurns chosen(request);
  RecordsWritten written = chosen.BeginWritten();
  ForEachTurn(chosen, [&](const ChosenEpisode& e, const ChosenTurn& t, const TurnRecord& record) {
    Json line = {{"messages", PromptMessagesJson(record)}};
    line["messages"].push_back(Answer(record));
    line.update(PlaceJson(e, t.turn));
    line["speedup"] = std::isnan(t.speedup) ? Json(nullptr) : Json(t.speedup);
    AddPythonJson(record.evaluation, &line);
    AddAttributionJson(t.attribution, &line);
    write(line);
    written.lines++;
  });
  return written;
}

RecordsWritten WritePreferences(const RecordsRequest& request, const WriteLine& write) {
  const ChosenTurns chosen(request);
  std::map<std::string, std::vector<Answered>> by_prompt;
  ForEachTurn(chosen, [&](const ChosenEpisode& e, const ChosenTurn& t, const TurnRecord& record) {
    by_prompt[e.figures->workload.rules + PromptHash(record)].push_back({&e, t});
  });
  RecordsWritten written = chosen.BeginWritten();
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
