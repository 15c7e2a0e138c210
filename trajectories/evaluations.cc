// Candidates, evaluations and samples of a Store: writing, then reading.

#include <fmt/format.h>

#include "env/error.h"
#include "trajectories/identity.h"
#include "trajectories/store_impl.h"

namespace kevin {
namespace {

using nlohmann::json;

// In the order in which they are written and read.
constexpr char kEvaluationColumns[] =
    "id, episode, turn, purpose, key, key_parts, candidate, kind, problem_hash, size, inputs, precision, "
    "tf32, threads, tolerance_version, baseline_version, toolchain_version, device, device_model, driver, "
    "isolation, include_hashes, environment_version, outcome, reason, compiled, correct, verdict, "
    "speedup, speedup_low, speedup_high, log_se, pairs, processes, against_start, against_start_low, "
    "against_start_high, candidate_us, reference_us, gb_per_s, gflop_per_s, floor_us, max_error, "
    "error_bound, score, compile_s, verify_s, measure_s, wait_s, seeds, log, machine, cached_from, "
    "superseded_by, created_at, kernels, launch_list, profile, peak_gb_per_s, peak_gflop_per_s, device_s, "
    "machine_key, timeout_phase, timeout_limit_s, failed_shape, shapes, rules_version, shared_gpu, "
    "against_best, against_best_low, against_best_high, against_best_turn, rules, backend, own_share, device_us";

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

}  // namespace

std::string InsertEvaluation(Database& database, const std::string& episode, int turn,
                             const EvaluationRecord& e) {
  const std::string now = UtcNow();
  const std::string id = NewUlid();
  InsertCandidate(database, e, now);
  const NullableRatio speedup(e.speedup), against_start(e.against_start), against_best(e.against_best);
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
            NullIfEmpty(e.failed_shape), NullIfEmpty(ShapesToText(e.shapes)), e.rules_version, e.shared_gpu,
            against_best.value, against_best.low, against_best.high, e.against_best_turn, e.workload.rules,
            NullIfEmpty(e.backend), e.own_share, e.device_us)
      .Run();
  InheritSuperseder(database, id, e.cached_from);
  InsertSamples(database, id, e.samples);
  InsertBaseline(database, id, e, now);
  return id;
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

namespace {

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
  e.shapes = ShapesFromText(row.Text());
  e.rules_version = row.Int(), e.shared_gpu = row.Flag();
  e.against_best = ReadRatio(row), e.against_best_turn = row.OptionalInt();
  e.workload.rules = row.Text(), e.backend = row.Text(), e.own_share = row.OptionalReal();
  e.device_us = row.OptionalReal(), e.source = row.Text();
  return e;
}

}  // namespace

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

std::vector<EvaluationRecord> ReadEvaluations(Database& database, const std::string& episode, int turn,
                                              const std::string& more) {
  Statement statement =
      database.Prepare(SelectEvaluations("episode = ? AND turn = ?" + more + " ORDER BY created_at, id"));
  std::vector<EvaluationRecord> evaluations;
  statement.Bind(episode, turn);
  while (statement.Step()) evaluations.push_back(ReadEvaluation(statement));
  return evaluations;
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

namespace {

// `column`: key or machine_key.
std::optional<EvaluationRecord> FindAnswer(Database& database, const std::string& column,
                                           const std::string& key) {
  Statement statement = database.Prepare(SelectEvaluations(
      column +
      " = ? AND (purpose IN ('turn', 'start', 'rejudge') OR outcome = 'wrong') AND cached_from IS NULL "
      "AND superseded_by IS NULL ORDER BY id DESC LIMIT 1"));
  if (!statement.Bind(key).Step()) return std::nullopt;
  return ReadEvaluation(statement);
}

}  // namespace

std::optional<EvaluationRecord> Store::FindEvaluationByKey(const std::string& key) {
  const std::lock_guard lock(impl_->mutex);
  return FindAnswer(impl_->database, "key", key);
}

std::optional<EvaluationRecord> Store::FindEvaluationByMachineKey(const std::string& machine_key) {
  const std::lock_guard lock(impl_->mutex);
  return FindAnswer(impl_->database, "machine_key", machine_key);
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
