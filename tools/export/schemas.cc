// The schemas of `kevin export --schema` that other programs train from: prompts, trajectories.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <set>

#include "agent/json.h"
#include "tools/export/records.h"

namespace kevin {
namespace {

Json PromptRow(const ChosenEpisode& e, const TurnRecord& turn, int64_t index) {
  const EpisodeFigures& f = *e.figures;
  Json row = {{"data_source", "kevin"}, {"prompt", PromptMessagesJson(turn)}, {"ability", "kernels"}};
  row["reward_model"] = {{"style", "rule"}, {"ground_truth", e.problem->id}};
  row["extra_info"] = {{"index", index},     {"problem", e.problem->id}, {"name", e.problem->name},
                       {"kind", f.kind},     {"size", f.workload.size},  {"precision", f.workload.precision},
                       {"device", f.device}, {"rules", f.workload.rules}};
  return row;
}

Json TrajectoryRow(const ChosenEpisode& e, const ChosenTurn& chosen, const TurnRecord& t) {
  const EpisodeFigures& f = *e.figures;
  Json row = {{"prompt_ids", t.prompt_token_ids}, {"completion_ids", t.token_ids}};
  row["completion_mask"] = std::vector<int>(t.token_ids.size(), t.stop_reason == "length" ? 0 : 1);
  row["logprobs"] = t.logprobs;
  row.update(PlaceJson(e, chosen.turn));
  row["turns"] = f.turns_asked;
  row["task"] = fmt::format("{}/{}/{}/{}/{}", f.run, e.problem->id, f.kind, f.workload.size, f.policy);
  AddAttributionJson(chosen.attribution, &row);
  row["outcome"] = t.evaluation.outcome, row["correct"] = t.evaluation.correct;
  row["speedup"] = t.evaluation.speedup ? Json(t.evaluation.speedup->value) : Json(nullptr);
  AddPythonJson(t.evaluation, &row);
  row["stop_reason"] = t.stop_reason;
  row["temperature"] = OrNull(t.sampling.temperature), row["top_p"] = OrNull(t.sampling.top_p);
  row["top_k"] = OrNull(t.sampling.top_k), row["min_p"] = OrNull(t.sampling.min_p);
  row["model"] = OrNull(t.model.name), row["weights_hash"] = OrNull(t.model.weights_hash);
  row["tokenizer_hash"] = OrNull(t.model.tokenizer_hash);
  row["kind"] = f.kind, row["device"] = f.device, row["size"] = f.workload.size;
  return row;
}

// Why a turn is no trajectory; null: it is one.
const char* WhyNoTrajectory(const ChosenTurn& chosen, const TurnRecord& t) {
  if (t.prompt_token_ids.empty() || t.token_ids.empty() || t.logprobs.size() != t.token_ids.size())
    return "without token ids and log-probabilities";
  const SamplingRecord& s = t.sampling;
  if (!s.temperature || !s.top_p || !s.top_k || !s.min_p || *s.temperature <= 0)
    return "from an unknown distribution (sampling is not recorded, or temperature 0)";
  if (std::isnan(chosen.attribution.advantage)) return "of unfinished episodes";
  return t.stop_reason == "cancelled" ? "cancelled" : nullptr;
}

}  // namespace

RecordsWritten WritePrompts(const RecordsRequest& request, const WriteLine& write) {
  const ChosenTurns chosen(request);
  RecordsWritten written = chosen.BeginWritten();
  std::set<std::string> seen;
  ForEachTurn(chosen, [&](const ChosenEpisode& e, const ChosenTurn& t, const TurnRecord& record) {
    if (t.turn == 1 && seen.insert(PromptHash(record)).second) write(PromptRow(e, record, written.lines++));
  });
  return written;
}

RecordsWritten WriteTrajectories(const RecordsRequest& request, const WriteLine& write) {
  const ChosenTurns chosen(request);
  RecordsWritten written = chosen.BeginWritten();
  std::map<std::string, int64_t> left_out;
  ForEachTurn(chosen, [&](const ChosenEpisode& e, const ChosenTurn& t, const TurnRecord& record) {
    if (const char* why = WhyNoTrajectory(t, record)) {
      ++written.skipped, ++left_out[why];
      return;
    }
    write(TrajectoryRow(e, t, record));
    written.lines++;
  });
  std::vector<std::string> parts;
  for (const auto& [why, count] : left_out) parts.push_back(fmt::format("{} {}", count, why));
  if (!parts.empty()) written.remark = fmt::format("turns left out: {}", fmt::join(parts, ", "));
  return written;
}

}  // namespace kevin
