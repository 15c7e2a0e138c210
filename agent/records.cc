#include "agent/records.h"

#include <cstdlib>

#include "agent/gpu_feedback.h"
#include "agent/ranking.h"
#include "agent/shape_records.h"

namespace kevin {
namespace {

// A rate or a floor of 0 means that the problem states no cost, a peak of 0 that none was measured.
std::optional<double> Known(double value) { return value > 0 ? std::optional(value) : std::nullopt; }

void ForgetStart(Evaluation* evaluation) {
  if (auto* measured = std::get_if<Measured>(&evaluation->outcome)) measured->against_start.reset();
  for (ShapeResult& shape : evaluation->shapes) {
    if (auto* measured = std::get_if<Measured>(&shape.outcome)) measured->against_start.reset();
  }
}

}  // namespace

std::optional<Ratio> TakeComparison(const TurnRecord& rival, Evaluation* evaluation) {
  auto* measured = std::get_if<Measured>(&evaluation->outcome);
  if (measured == nullptr || !measured->against_start) return std::nullopt;
  const Ratio ratio = *measured->against_start;
  if (rival.turn == 0) return ratio;
  ForgetStart(evaluation);
  if (const auto& start = rival.evaluation.against_start) measured->against_start = Product(ratio, *start);
  return ratio;
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
  record.workload = e.workload;
  record.device = e.device;
  record.isolation = e.isolation;
  static_cast<OutcomeFields&>(record) = FieldsOf(e.outcome);
  record.compile_s = e.compile_s;
  record.verify_s = e.verify_s;
  record.measure_s = e.measure_s;
  record.wait_s = e.wait_s;
  record.seeds = e.seeds;
  record.samples = e.samples;
  record.shapes = e.shapes;
  record.log = e.log;
  if (const auto* failed = std::get_if<CompileFailed>(&e.outcome)) record.log = failed->log;
  record.kernels = KernelsText(e.kernels);
  record.launch_list = e.launch_list;
  record.profile = e.profile;
  record.peak_gb_per_s = Known(e.peak_gb_per_s);
  record.peak_gflop_per_s = Known(e.peak_gflop_per_s);
  record.device_s = Known(e.device_s);
  record.machine_key = e.machine_key;
  record.rules_version = e.rules_version;
  record.backend = e.backend;
  record.own_share = e.own_share;
  record.device_us = IsForGpu(record.kind) ? record.candidate_us : e.device_us;
  record.shared_gpu = e.shared_gpu;
  record.cached_from = e.cached_from;
  return record;
}

Evaluation FromRecord(const EvaluationRecord& record) {
  Evaluation e;
  e.outcome = OutcomeOf(record, record.outcome == "compile_failed" ? record.log : "");
  e.shapes = record.shapes;
  e.candidate_hash = record.candidate_hash;
  e.key = record.key;
  e.key_parts = record.key_parts;
  e.cached_from = record.id;
  e.workload = record.workload;
  e.device = record.device;
  e.isolation = record.isolation;
  e.log = record.log;
  e.kernels = KernelsFromText(record.kernels);
  e.launch_list = record.launch_list;
  e.profile = record.profile;
  e.peak_gb_per_s = record.peak_gb_per_s.value_or(0);
  e.peak_gflop_per_s = record.peak_gflop_per_s.value_or(0);
  e.rules_version = record.rules_version;
  e.backend = record.backend;
  e.own_share = record.own_share;
  if (!IsForGpu(record.kind)) e.device_us = record.device_us;
  e.shared_gpu = record.shared_gpu;
  ForgetStart(&e);  // that of another episode
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
  const UsedSampling& used = completion.sampling;
  turn->sampling = {used.temperature, used.top_p, used.min_p, used.top_k, sampling.max_tokens, sampling.seed};
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
