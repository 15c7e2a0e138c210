// Turns, candidates, evaluations and samples into a Store; read_turns.cc reads them.

#include <fmt/format.h>

#include "env/error.h"
#include "trajectories/blob.h"
#include "trajectories/store_impl.h"
#include "trajectories/turn_columns.h"
#include "trajectories/ulid.h"

namespace kevin {
namespace {

using nlohmann::json;

// A ratio's columns; all NULL without one.
struct NullableRatio {
  explicit NullableRatio(const std::optional<Ratio>& ratio) {
    if (!ratio) return;
    value = ratio->value, low = ratio->low, high = ratio->high, log_se = ratio->log_se;
    pairs = ratio->pairs, processes = ratio->processes;
  }
  std::optional<double> value, low, high, log_se;
  std::optional<int> pairs, processes;
};

std::string SeedsJson(const std::vector<uint64_t>& seeds) {
  json list = json::array();
  for (const uint64_t seed : seeds) list.push_back(std::to_string(seed));
  return list.dump();
}

std::optional<std::string> Part(const EvaluationRecord& e, const char* name) {
  const auto part = e.key_parts.find(name);
  return part == e.key_parts.end() ? std::nullopt : std::optional(part->second);
}

void InsertCandidate(Database& database, const EvaluationRecord& e, const std::string& now) {
  if (e.source.empty()) return;
  if (e.candidate_hash.empty()) {
    throw Error(ExitCode::kBadRequest, "an evaluation with a source needs its candidate_hash");
  }
  static const std::string kInsert =
      InsertSql("INSERT OR IGNORE", "candidates", "hash, kind, source, created_at");
  database.Prepare(kInsert).Bind(e.candidate_hash, e.kind, e.source, now).Run();
}

void InsertSamples(Database& database, const std::string& evaluation, const std::vector<Sample>& samples) {
  static const std::string kInsert =
      InsertSql("INSERT", "samples", "evaluation, position, process, pair, phase, side, calls, total_us");
  Statement insert = database.Prepare(kInsert);
  int position = 0;
  for (const Sample& s : samples) {
    insert.Bind(evaluation, position++, s.process, s.pair, s.phase, s.side, s.calls, s.total_us).Run();
  }
}

void InsertBaseline(Database& database, const std::string& id, const EvaluationRecord& e,
                    const std::string& now) {
  if (!e.reference_us || !e.cached_from.empty()) return;
  std::string parts;
  for (const auto& [name, value] : e.key_parts) {
    if (name != "candidate") parts += fmt::format("{}={}\n", name, value);
  }
  static const std::string kInsert =
      InsertSql("INSERT", "baselines", "key, evaluation, name, reference_us, created_at");
  database.Prepare(kInsert)
      .Bind(ContentHash(parts), id, Part(e, "baseline_version").value_or(""), *e.reference_us, now)
      .Run();
}

// Another process may have overridden a verdict since it was looked up.
void InheritSuperseder(Database& database, const std::string& id, const std::string& cached_from) {
  if (cached_from.empty()) return;
  Statement original = database.Prepare(std::string("SELECT superseded_by FROM evaluations WHERE id = ?") +
                                        (database.dialect() == SqlDialect::kPostgres ? " FOR SHARE" : ""));
  if (!original.Bind(cached_from).Step() || original.IsNull(0)) return;
  database.Prepare("UPDATE evaluations SET superseded_by = ? WHERE id = ?").Bind(original.Text(0), id).Run();
}

std::string InsertEvaluation(Database& database, const std::string& episode, int turn,
                             const EvaluationRecord& e) {
  const std::string now = UtcNow();
  const std::string id = NewUlid();
  InsertCandidate(database, e, now);
  const NullableRatio speedup(e.speedup), against_start(e.against_start);
  static const std::string kInsert = InsertSql("INSERT", "evaluations", kEvaluationColumns);
  database.Prepare(kInsert)
      .Bind(id, episode, turn, e.purpose, e.key, DumpJson(e.key_parts), NullIfEmpty(e.candidate_hash), e.kind,
            e.problem_hash, e.workload.size, e.workload.inputs, e.workload.precision, e.workload.tf32,
            Part(e, "threads"), Part(e, "tolerance_version"), Part(e, "baseline_version"),
            Part(e, "toolchain_version"), e.device, Part(e, "device_model"), Part(e, "driver"), e.isolation,
            Part(e, "include_hashes"), Part(e, "environment_version"), e.outcome, e.reason, e.compiled,
            e.correct, NullIfEmpty(e.verdict), speedup.value, speedup.low, speedup.high, speedup.log_se,
            speedup.pairs, speedup.processes, against_start.value, against_start.low, against_start.high,
            e.candidate_us, e.reference_us, e.gb_per_s, e.gflop_per_s, e.floor_us, e.max_error, e.error_bound,
            e.score, e.compile_s, e.verify_s, e.measure_s, e.wait_s, SeedsJson(e.seeds), e.log, e.machine,
            NullIfEmpty(e.cached_from), NullIfEmpty(e.superseded_by), now, NullIfEmpty(e.kernels),
            NullIfEmpty(e.launch_list), NullIfEmpty(e.profile), e.peak_gb_per_s, e.peak_gflop_per_s,
            e.device_s, NullIfEmpty(e.machine_key), NullIfEmpty(e.timeout_phase), e.timeout_limit_s,
            NullIfEmpty(e.failed_shape), NullIfEmpty(ShapesToText(e.shapes)))
      .Run();
  InheritSuperseder(database, id, e.cached_from);
  InsertSamples(database, id, e.samples);
  InsertBaseline(database, id, e, now);
  return id;
}

// What of a turn takes time to make ready, done before its write begins.
struct EncodedTurn {
  std::vector<EncodedBlob> blobs;
  std::string messages;
  std::optional<std::string> prompt_token_ids, token_ids, logprobs;  // hashes
};

std::optional<std::string> AddArray(const std::string& bytes, EncodedTurn* encoded) {
  auto blob = EncodeArray(bytes);
  if (!blob) return std::nullopt;
  encoded->blobs.push_back(std::move(*blob));
  return encoded->blobs.back().hash;
}

EncodedTurn Encode(const TurnRecord& t) {
  EncodedTurn encoded;
  json messages = json::array();
  for (const MessageRecord& m : t.messages) {
    encoded.blobs.push_back(EncodeText(m.content));
    messages.push_back({{"role", m.role}, {"content", encoded.blobs.back().hash}});
  }
  encoded.messages = DumpJson(messages);
  encoded.prompt_token_ids = AddArray(ArrayBytes(t.prompt_token_ids), &encoded);
  encoded.token_ids = AddArray(ArrayBytes(t.token_ids), &encoded);
  encoded.logprobs = AddArray(ArrayBytes(t.logprobs), &encoded);
  return encoded;
}

void InsertTurn(Store::Impl& impl, const std::string& episode, const TurnRecord& t, const std::string& run,
                const EncodedTurn& encoded) {
  for (const EncodedBlob& blob : encoded.blobs) impl.Put(blob);
  std::optional<int64_t> seed;
  if (t.sampling.seed) seed = static_cast<int64_t>(*t.sampling.seed);
  static const std::string kInsert = InsertSql("INSERT OR IGNORE", "turns", kTurnColumns) + " RETURNING turn";
  Statement insert = impl.database.Prepare(kInsert);
  insert.Bind(episode, t.turn, run, encoded.messages, t.reply, t.reasoning, encoded.prompt_token_ids,
              encoded.token_ids, encoded.logprobs, t.sampling.temperature, t.sampling.top_p,
              t.sampling.max_tokens, seed, t.stop_reason, t.usage.prompt_tokens, t.usage.completion_tokens,
              t.usage.cached_tokens, t.usage.reasoning_tokens, t.model.name,
              NullIfEmpty(t.model.weights_hash), NullIfEmpty(t.model.tokenizer_hash),
              NullIfEmpty(t.model.template_hash), t.parser_version, t.prompt_template, t.prompt_template_hash,
              t.summary, t.feedback, NullIfEmpty(t.source_path), t.generate_s, t.overhead_s, t.seconds,
              t.reward, UtcNow());
  if (insert.RunForRow()) return;
  throw Error(ExitCode::kBadRequest, fmt::format("episode {} has a turn {} already", episode, t.turn),
              "another process may be continuing it; look with: kevin show " + episode);
}

void MarkSuperseded(Database& database, const std::vector<std::string>& evaluations, const std::string& by) {
  if (evaluations.empty()) return;
  Statement update = database.Prepare(
      "UPDATE evaluations SET superseded_by = ?1 "
      "WHERE id <> ?1 AND (id = ?2 OR cached_from = ?2 OR superseded_by = ?2)");
  for (const std::string& id : evaluations) update.Bind(by, id).Run();
}

double DeviceSeconds(const EvaluationRecord& e) {
  return e.cached_from.empty() ? e.device_s.value_or(e.verify_s + e.measure_s) : 0;
}

}  // namespace

std::string Store::AppendTurn(const std::string& episode, const TurnRecord& turn,
                              const std::vector<std::string>& supersedes, const EvaluationRecord* audit) {
  const EncodedTurn encoded = Encode(turn);
  const Impl::Used used{1, turn.usage.prompt_tokens.value_or(0), turn.usage.completion_tokens.value_or(0),
                        DeviceSeconds(turn.evaluation) + (audit ? DeviceSeconds(*audit) : 0)};
  std::string id;
  impl_->Write([&] {
    Database& database = impl_->database;
    impl_->RequireEpisode(episode);
    impl_->RequireLease(episode, used);
    InsertTurn(*impl_, episode, turn, turn.run.empty() ? impl_->LastRun(episode) : turn.run, encoded);
    id = InsertEvaluation(database, episode, turn.turn, turn.evaluation);
    if (audit != nullptr) InsertEvaluation(database, episode, turn.turn, *audit);
    MarkSuperseded(database, supersedes, id);
  });
  return id;
}

std::string Store::AppendEvaluation(const std::string& episode, int turn, const EvaluationRecord& evaluation,
                                    const std::vector<std::string>& supersedes) {
  std::string id;
  impl_->Write([&] {
    impl_->RequireEpisode(episode);
    impl_->RequireLease(episode, {0, 0, 0, DeviceSeconds(evaluation)});
    id = InsertEvaluation(impl_->database, episode, turn, evaluation);
    MarkSuperseded(impl_->database, supersedes, id);
  });
  return id;
}

void Store::Supersede(const std::vector<std::string>& evaluations, const std::string& by) {
  impl_->Write([&] { MarkSuperseded(impl_->database, evaluations, by); });
}

}  // namespace kevin
