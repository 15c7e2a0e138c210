#include "agent/records.h"

#include <cstdlib>

#include "agent/gpu_feedback.h"
#include "agent/shape_records.h"

namespace kevin {
namespace {

// A rate or a floor of 0 means that the problem states no cost, a peak of 0 that none was measured.
std::optional<double> Known(double value) { return value > 0 ? std::optional(value) : std::nullopt; }

RatioRecord ToRecord(const Ratio& ratio) { return {ratio.value, ratio.low, ratio.high}; }

Verdict VerdictOf(const std::string& name) {
  for (const Verdict verdict : {Verdict::kFast, Verdict::kSlow, Verdict::kSame}) {
    if (name == VerdictName(verdict)) return verdict;
  }
  return Verdict::kAmbiguous;
}

void FillMeasured(const Measured& m, EvaluationRecord* record) {
  record->verdict = VerdictName(m.verdict);
  record->speedup = ToRecord(m.speedup);
  if (m.against_start) record->against_start = ToRecord(*m.against_start);
  record->log_se = m.speedup.log_se;
  record->pairs = m.speedup.pairs;
  record->processes = m.speedup.processes;
  record->candidate_us = m.candidate_us;
  record->reference_us = m.reference_us;
  record->gb_per_s = Known(m.gb_per_s);
  record->gflop_per_s = Known(m.gflop_per_s);
  record->floor_us = Known(m.floor_us);
  record->max_error = m.max_error;
  record->error_bound = m.error_bound;
}

Measured MeasuredFrom(const EvaluationRecord& r) {
  Measured m;
  const RatioRecord speedup = r.speedup.value_or(RatioRecord{});
  m.speedup = {speedup.value,        speedup.low,         speedup.high,
               r.log_se.value_or(0), r.pairs.value_or(0), r.processes.value_or(0)};
  if (r.against_start)
    m.against_start = Ratio{r.against_start->value, r.against_start->low, r.against_start->high};
  m.verdict = VerdictOf(r.verdict);
  m.candidate_us = r.candidate_us.value_or(0);
  m.reference_us = r.reference_us.value_or(0);
  m.gb_per_s = r.gb_per_s.value_or(0);
  m.gflop_per_s = r.gflop_per_s.value_or(0);
  m.floor_us = r.floor_us.value_or(0);
  m.max_error = r.max_error.value_or(0);
  m.error_bound = r.error_bound.value_or(0);
  return m;
}

// Reads back what OutcomeReason wrote.
TimedOut TimedOutFrom(const std::string& reason) {
  static const std::string kMiddle = " took longer than ";
  const size_t at = reason.find(kMiddle);
  if (at == std::string::npos) return {reason, 0};
  return {reason.substr(0, at), std::strtod(reason.c_str() + at + kMiddle.size(), nullptr)};
}

// Its log lacks what OutcomeReason puts before the error.
CompileFailed CompileFailedFrom(const EvaluationRecord& r) {
  CompileFailed failed{r.log.empty() ? r.reason : r.log};
  const std::string error = ": " + OutcomeReason(failed);
  if (r.reason.ends_with(error)) failed.where = r.reason.substr(0, r.reason.size() - error.size());
  return failed;
}

}  // namespace

void FillOutcome(const Outcome& outcome, EvaluationRecord* record) {
  record->outcome = OutcomeName(outcome);
  record->reason = OutcomeReason(outcome);
  record->compiled = record->outcome != "parse_failed" && record->outcome != "compile_failed";
  record->correct = record->outcome == "measured";
  if (const auto* measured = std::get_if<Measured>(&outcome)) FillMeasured(*measured, record);
  if (const auto* wrong = std::get_if<Wrong>(&outcome); wrong && wrong->error_bound > 0) {
    record->max_error = wrong->max_error;
    record->error_bound = wrong->error_bound;
  }
  record->score = Score(outcome);
}

Outcome OutcomeFrom(const EvaluationRecord& r) {
  if (r.outcome == "measured") return MeasuredFrom(r);
  if (r.outcome == "compile_failed") return CompileFailedFrom(r);
  if (r.outcome == "refused") return Refused{r.reason};
  if (r.outcome == "crashed") return Crashed{r.reason};
  if (r.outcome == "timed_out") return TimedOutFrom(r.reason);
  if (r.outcome == "wrong") return Wrong{r.reason, r.max_error.value_or(0), r.error_bound.value_or(0)};
  return ParseFailed{r.reason};
}

ProblemRecord ToRecord(const Problem& problem) {
  std::vector<std::string> flags;
  for (const auto& [flag, reason] : problem.flags) flags.push_back(flag);
  return {problem.content_hash, problem.id, problem.name, problem.text, problem.families, flags};
}

EvaluationRecord ToRecord(const Evaluation& e, const Candidate& candidate, const Problem& problem,
                          const std::string& purpose) {
  EvaluationRecord record;
  record.purpose = purpose;
  record.candidate_hash = e.candidate_hash;
  record.kind = candidate.kind;
  record.source = candidate.source;
  record.key = e.key;
  record.key_parts = e.key_parts;
  record.problem_hash = problem.content_hash;
  record.size = e.size;
  record.inputs = e.inputs;
  record.precision = e.precision;
  record.device = e.device;
  record.isolation = e.isolation;
  record.tf32 = e.tf32;
  FillOutcome(e.outcome, &record);
  record.compile_s = e.compile_s;
  record.verify_s = e.verify_s;
  record.measure_s = e.measure_s;
  record.wait_s = e.wait_s;
  record.seeds = e.seeds;
  for (const Sample& s : e.samples) {
    record.samples.push_back({s.process, s.pair, s.phase, s.side, s.calls, s.total_us});
  }
  record.machine = ShapesText(e.shapes);
  record.log = e.log;
  if (const auto* failed = std::get_if<CompileFailed>(&e.outcome)) record.log = failed->log;
  record.kernels = KernelsText(e.kernels);
  record.launch_list = e.launch_list;
  record.profile = e.profile;
  record.peak_gb_per_s = Known(e.peak_gb_per_s);
  record.peak_gflop_per_s = Known(e.peak_gflop_per_s);
  record.device_s = Known(e.device_s);
  record.machine_key = e.machine_key;
  record.cached_from = e.cached_from;
  return record;
}

Evaluation FromRecord(const EvaluationRecord& record) {
  Evaluation e;
  e.outcome = OutcomeFrom(record);
  e.shapes = ShapesFromText(record.machine);
  e.candidate_hash = record.candidate_hash;
  e.key = record.key;
  e.key_parts = record.key_parts;
  e.cached_from = record.id;
  e.size = record.size;
  e.inputs = record.inputs;
  e.precision = record.precision;
  e.device = record.device;
  e.isolation = record.isolation;
  e.tf32 = record.tf32;
  e.log = record.log;
  e.kernels = KernelsFromText(record.kernels);
  e.launch_list = record.launch_list;
  e.profile = record.profile;
  e.peak_gb_per_s = record.peak_gb_per_s.value_or(0);
  e.peak_gflop_per_s = record.peak_gflop_per_s.value_or(0);
  return e;
}

RequestRecord ToRecord(const RequestAttempt& attempt, int turn) {
  RequestRecord record;
  record.turn = turn;
  record.provider = attempt.provider;
  record.url = attempt.url;
  record.model = attempt.model;
  record.request = attempt.request;
  record.outcome = attempt.outcome;
  record.status = attempt.status;
  record.error = attempt.error;
  record.retry_after_s = attempt.retry_after_s;
  if (attempt.outcome != "sent") record.seconds = attempt.seconds;
  record.first_token_s = attempt.first_token_s;
  record.served_model = attempt.served_model;
  record.request_id = attempt.request_id;
  record.stop_cause = attempt.stop_cause;
  if (attempt.usage) {
    const Usage& u = *attempt.usage;
    record.usage = {u.prompt_tokens, u.completion_tokens, u.cached_tokens, u.reasoning_tokens};
    record.cache_write_tokens = u.cache_write_tokens;
  }
  record.cost_usd = attempt.cost_usd;
  record.response = attempt.response;
  return record;
}

void FillFromCompletion(const Completion& completion, const Sampling& sampling, TurnRecord* turn) {
  turn->reply = completion.text;
  turn->reasoning = completion.reasoning;
  turn->prompt_token_ids = completion.prompt_token_ids;
  turn->token_ids = completion.token_ids;
  if (completion.logprobs.size() == completion.token_ids.size()) turn->logprobs = completion.logprobs;
  turn->sampling = {sampling.temperature, sampling.top_p, sampling.max_tokens, sampling.seed};
  if (completion.usage.completion_tokens > 0) {
    const Usage& u = completion.usage;
    turn->usage = {u.prompt_tokens, u.completion_tokens, u.cached_tokens, u.reasoning_tokens};
  }
  turn->stop_reason = completion.stop_reason;
  const ModelIdentity& identity = completion.identity;
  turn->model = {completion.model, identity.weights_hash, identity.tokenizer_hash, identity.template_hash};
  turn->cost_usd = completion.cost_usd;
}

}  // namespace kevin
