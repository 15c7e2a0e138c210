// The turns of a Store: writing, then reading. Their evaluations are in evaluations.cc.

#include <fmt/format.h>

#include "env/error.h"
#include "trajectories/blob.h"
#include "trajectories/identity.h"
#include "trajectories/store_impl.h"

namespace kevin {
namespace {

// In the order in which they are written and read.
constexpr char kTurnColumns[] =
    "episode, turn, run, messages, reply, reasoning, prompt_token_ids, token_ids, logprobs, temperature, "
    "top_p, max_tokens, sampling_seed, stop_reason, prompt_tokens, completion_tokens, cached_tokens, "
    "reasoning_tokens, model, weights_hash, tokenizer_hash, chat_template_hash, parser_version, "
    "prompt_template, prompt_template_hash, summary, feedback, source_path, generate_s, overhead_s, "
    "seconds, reward, created_at, tune_s, reply_form, top_k, min_p";

// The parts of a turn that take time to encode; done before its write begins.
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

constexpr char kTrialColumns[] =
    "episode, turn, position, setting, outcome, reason, candidate_us, stopped, chosen, seconds";

void InsertTrials(Database& database, const std::string& episode, const TurnRecord& t) {
  if (t.trials.empty()) return;
  static const std::string kInsert = InsertSql("INSERT", "knob_trials", kTrialColumns);
  Statement insert = database.Prepare(kInsert);
  int position = 0;
  for (const KnobTrial& trial : t.trials) {
    insert
        .Bind(episode, t.turn, position++, SettingToText(trial.setting), NullIfEmpty(trial.outcome),
              trial.reason, trial.candidate_us, trial.stopped, trial.chosen, trial.seconds)
        .Run();
  }
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
              t.reward, UtcNow(), t.tune_s, NullIfEmpty(t.reply_form), t.sampling.top_k, t.sampling.min_p);
  if (insert.RunForRow()) return InsertTrials(impl.database, episode, t);
  throw Error(ExitCode::kBadRequest, fmt::format("episode {} has a turn {} already", episode, t.turn),
              "another process may be continuing it; look with: kevin show " + episode);
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

namespace {

TurnRecord ReadTurn(Store::Impl& impl, const Statement& statement) {
  RowReader row(statement);
  TurnRecord t;
  row.Text(), t.turn = row.Int(), t.run = row.Text();
  for (const auto& m : json::parse(row.Text())) {
    t.messages.push_back({m.at("role").get<std::string>(), impl.GetBlob(m.at("content").get<std::string>())});
  }
  t.reply = row.Text(), t.reasoning = row.Text();
  t.prompt_token_ids = Int32Array(impl.GetBlob(row.Text()));
  t.token_ids = Int32Array(impl.GetBlob(row.Text()));
  t.logprobs = Float32Array(impl.GetBlob(row.Text()));
  t.sampling.temperature = row.OptionalReal(), t.sampling.top_p = row.OptionalReal();
  t.sampling.max_tokens = row.OptionalInt();
  if (const auto seed = row.OptionalInteger()) t.sampling.seed = static_cast<uint64_t>(*seed);
  t.stop_reason = row.Text();
  t.usage.prompt_tokens = row.OptionalInteger(), t.usage.completion_tokens = row.OptionalInteger();
  t.usage.cached_tokens = row.OptionalInteger(), t.usage.reasoning_tokens = row.OptionalInteger();
  t.model.name = row.Text(), t.model.weights_hash = row.Text();
  t.model.tokenizer_hash = row.Text(), t.model.template_hash = row.Text();
  t.parser_version = row.Text(), t.prompt_template = row.Text(), t.prompt_template_hash = row.Text();
  t.summary = row.Text(), t.feedback = row.Text(), t.source_path = row.Text();
  t.generate_s = row.Real(), t.overhead_s = row.Real(), t.seconds = row.Real(), t.reward = row.Real();
  t.created_at = row.Text(), t.tune_s = row.Real(), t.reply_form = row.Text();
  t.sampling.top_k = row.OptionalInt(), t.sampling.min_p = row.OptionalReal();
  t.requests = row.Int(), t.cost_usd = row.OptionalReal();
  return t;
}

void AddTrials(Database& database, const std::string& episode, std::vector<TurnRecord>* turns) {
  Statement statement = database.Prepare(
      fmt::format("SELECT {} FROM knob_trials WHERE episode = ? ORDER BY turn, position", kTrialColumns));
  statement.Bind(episode);
  while (statement.Step()) {
    RowReader row(statement);
    row.Text();
    const int number = row.Int();
    row.Int();
    KnobTrial trial;
    trial.setting = SettingFromText(row.Text());
    trial.outcome = row.Text(), trial.reason = row.Text(), trial.candidate_us = row.OptionalReal();
    trial.stopped = row.Flag(), trial.chosen = row.Flag(), trial.seconds = row.Real();
    for (TurnRecord& turn : *turns) {
      if (turn.turn == number) turn.trials.push_back(trial);
    }
  }
}

// Turns of an episode, all or one, each with its own verdict.
std::vector<TurnRecord> ReadTurns(Store::Impl& impl, const std::string& episode, std::optional<int> turn) {
  Statement statement = impl.database.Prepare(fmt::format(
      "SELECT {}, (SELECT count(*) FROM requests q WHERE q.episode = turns.episode AND q.turn = turns.turn), "
      "(SELECT CASE WHEN count(*) = count(cost_usd) THEN sum(cost_usd) END FROM requests q "
      "WHERE q.episode = turns.episode AND q.turn = turns.turn) "
      "FROM turns WHERE episode = ?1 AND (turn = ?2 OR ?2 IS NULL) ORDER BY turn",
      kTurnColumns));
  std::vector<TurnRecord> turns;
  statement.Bind(episode, turn);
  while (statement.Step()) {
    turns.push_back(ReadTurn(impl, statement));
    auto own =
        ReadEvaluations(impl.database, episode, turns.back().turn, " AND purpose IN ('turn', 'start')");
    if (!own.empty()) turns.back().evaluation = std::move(own.front());
  }
  AddTrials(impl.database, episode, &turns);
  return turns;
}

}  // namespace

std::vector<TurnRecord> Store::LoadTurns(const std::string& episode) {
  const std::lock_guard lock(impl_->mutex);
  return ReadTurns(*impl_, episode, std::nullopt);
}

std::optional<TurnRecord> Store::LoadTurn(const std::string& episode, int turn) {
  const std::lock_guard lock(impl_->mutex);
  auto turns = ReadTurns(*impl_, episode, turn);
  if (turns.empty()) return std::nullopt;
  EvaluationRecord& evaluation = turns.front().evaluation;
  evaluation.samples = ReadSamples(impl_->database, evaluation.id);
  return std::move(turns.front());
}

}  // namespace kevin
