// Turns and evaluations out of a Store.

#include <fmt/format.h>

#include "trajectories/blob.h"
#include "trajectories/store_impl.h"
#include "trajectories/turn_columns.h"

namespace kevin {
namespace {

using nlohmann::json;

std::string SelectEvaluations(const std::string& condition) {
  return fmt::format(
      "SELECT {}, (SELECT source FROM candidates WHERE hash = candidate) FROM evaluations WHERE {}",
      kEvaluationColumns, condition);
}

std::optional<Ratio> ReadRatio(RowReader& row) {
  const auto value = row.OptionalReal(), low = row.OptionalReal(), high = row.OptionalReal();
  if (!value) return std::nullopt;
  return Ratio{*value, low.value_or(0), high.value_or(0)};
}

EvaluationRecord ReadEvaluation(const Statement& statement) {
  RowReader row(statement);
  EvaluationRecord e;
  e.id = row.Text(), row.Text(), row.Integer(), e.purpose = row.Text(), e.key = row.Text();
  e.key_parts = json::parse(row.Text()).get<std::map<std::string, std::string>>();
  e.candidate_hash = row.Text(), e.kind = row.Text(), e.problem_hash = row.Text();
  ReadWorkload(row, &e.workload), e.workload.tf32 = row.Flag();
  row.Text(), row.Text(), row.Text(), row.Text(),
      e.device = row.Text();  // threads to toolchain_version: in key_parts
  row.Text(), row.Text(), e.isolation = row.Text(), row.Text(), row.Text();  // and so are these four
  e.outcome = row.Text(), e.reason = row.Text(), e.compiled = row.Flag(), e.correct = row.Flag();
  e.verdict = row.Text(), e.speedup = ReadRatio(row);
  const auto log_se = row.OptionalReal();
  const auto pairs = row.OptionalInt(), processes = row.OptionalInt();
  if (e.speedup) {
    e.speedup->log_se = log_se.value_or(0);
    e.speedup->pairs = pairs.value_or(0), e.speedup->processes = processes.value_or(0);
  }
  e.against_start = ReadRatio(row);
  e.candidate_us = row.OptionalReal(), e.reference_us = row.OptionalReal();
  e.gb_per_s = row.OptionalReal(), e.gflop_per_s = row.OptionalReal(), e.floor_us = row.OptionalReal();
  e.max_error = row.OptionalReal(), e.error_bound = row.OptionalReal(), e.score = row.Real();
  e.compile_s = row.Real(), e.verify_s = row.Real(), e.measure_s = row.Real(), e.wait_s = row.Real();
  for (const auto& seed : json::parse(row.Text())) e.seeds.push_back(std::stoull(seed.get<std::string>()));
  e.log = row.Text(), e.machine = row.Text(), e.cached_from = row.Text(), e.superseded_by = row.Text();
  e.created_at = row.Text();
  e.kernels = row.Text(), e.launch_list = row.Text(), e.profile = row.Text();
  e.peak_gb_per_s = row.OptionalReal(), e.peak_gflop_per_s = row.OptionalReal();
  e.device_s = row.OptionalReal(), e.machine_key = row.Text();
  e.timeout_phase = row.Text(), e.timeout_limit_s = row.OptionalReal(), e.failed_shape = row.Text();
  e.shapes = ShapesFromText(row.Text()), e.source = row.Text();
  return e;
}

std::vector<Sample> ReadSamples(Database& database, const std::string& evaluation) {
  Statement statement = database.Prepare(
      "SELECT process, pair, phase, side, calls, total_us FROM samples WHERE evaluation = ? ORDER BY "
      "position");
  std::vector<Sample> samples;
  statement.Bind(evaluation);
  while (statement.Step()) {
    RowReader row(statement);
    Sample s;
    s.process = row.Int(), s.pair = row.Int(), s.phase = row.Text(), s.side = row.Text();
    s.calls = row.Int(), s.total_us = row.Real();
    samples.push_back(std::move(s));
  }
  return samples;
}

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
  t.created_at = row.Text();
  t.requests = row.Int(), t.cost_usd = row.OptionalReal();
  return t;
}

std::vector<EvaluationRecord> ReadEvaluations(Database& database, const std::string& episode, int turn,
                                              const std::string& more) {
  Statement statement =
      database.Prepare(SelectEvaluations("episode = ? AND turn = ?" + more + " ORDER BY created_at, id"));
  std::vector<EvaluationRecord> evaluations;
  statement.Bind(episode, turn);
  while (statement.Step()) evaluations.push_back(ReadEvaluation(statement));
  return evaluations;
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

std::vector<EvaluationRecord> Store::LoadEvaluations(const std::string& episode, int turn) {
  const std::lock_guard lock(impl_->mutex);
  auto evaluations = ReadEvaluations(impl_->database, episode, turn, "");
  for (auto& evaluation : evaluations) evaluation.samples = ReadSamples(impl_->database, evaluation.id);
  return evaluations;
}

std::optional<EvaluationRecord> Store::FindEvaluation(const std::string& id) {
  const std::lock_guard lock(impl_->mutex);
  Statement statement = impl_->database.Prepare(SelectEvaluations("id = ?"));
  if (!statement.Bind(id).Step()) return std::nullopt;
  EvaluationRecord evaluation = ReadEvaluation(statement);
  evaluation.samples = ReadSamples(impl_->database, id);
  return evaluation;
}

std::optional<EvaluationRecord> Store::FindEvaluationByKey(const std::string& key) {
  const std::lock_guard lock(impl_->mutex);
  Statement statement = impl_->database.Prepare(
      SelectEvaluations("key = ? AND purpose IN ('turn', 'start') AND cached_from IS NULL "
                        "AND superseded_by IS NULL ORDER BY id DESC LIMIT 1"));
  if (!statement.Bind(key).Step()) return std::nullopt;
  return ReadEvaluation(statement);
}

std::optional<EvaluationRecord> Store::FindEvaluationByMachineKey(const std::string& machine_key) {
  const std::lock_guard lock(impl_->mutex);
  Statement statement = impl_->database.Prepare(
      SelectEvaluations("machine_key = ? AND purpose IN ('turn', 'start') AND cached_from IS NULL "
                        "AND superseded_by IS NULL ORDER BY id DESC LIMIT 1"));
  if (!statement.Bind(machine_key).Step()) return std::nullopt;
  return ReadEvaluation(statement);
}

std::vector<std::string> Store::VerdictsUnderKey(const std::string& key) {
  const std::lock_guard lock(impl_->mutex);
  Statement statement = impl_->database.Prepare(
      "SELECT id FROM evaluations WHERE key = ? AND superseded_by IS NULL ORDER BY id DESC");
  std::vector<std::string> ids;
  statement.Bind(key);
  while (statement.Step()) ids.push_back(statement.Text(0));
  return ids;
}

}  // namespace kevin
