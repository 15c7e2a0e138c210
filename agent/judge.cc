#include "agent/judge.h"

#include <fmt/format.h>

#include <utility>

#include "agent/records.h"
#include "env/error.h"
#include "env/problem/text.h"

namespace kevin {
namespace {

bool IsCorrect(const Evaluation& evaluation) { return std::holds_alternative<Measured>(evaluation.outcome); }

bool IsPropertyOfTheText(const std::string& outcome) {
  return outcome == "measured" || outcome == "wrong" || outcome == "compile_failed" ||
         outcome == "parse_failed";
}

}  // namespace

Outcome Contradiction(const std::string& before, const Outcome& now) {
  if (std::holds_alternative<Refused>(now)) return now;
  const std::string reason = OutcomeReason(now);
  Wrong wrong{fmt::format("non-deterministic: {} before, {} on new seeds{}{}", before, OutcomeName(now),
                          reason.empty() ? "" : ": ", reason)};
  if (const auto* error = std::get_if<Wrong>(&now)) {
    wrong.max_error = error->max_error;
    wrong.error_bound = error->error_bound;
  }
  return wrong;
}

Judge::Judge(const Problem& problem, Environment& environment, Store& store, EvaluateOptions options,
             AuditRates rates, uint64_t seed, const CancelToken* cancel)
    : problem_(problem),
      environment_(environment),
      store_(store),
      options_(std::move(options)),
      rates_(rates),
      seed_(seed),
      cancel_(cancel) {}

// The key says nothing about --from: a stored time was not paired against this start. Nor does a time stand for others
// that was taken while another process used the GPU.
bool Judge::MayStand(const std::optional<EvaluationRecord>& stored) const {
  return stored && IsPropertyOfTheText(stored->outcome) &&
         (!stored->correct || (options_.start_source.empty() && !stored->shared_gpu));
}

Ruling Judge::Decide(int turn, const Candidate& candidate) {
  const std::string key = environment_.EvaluationKey(problem_, candidate, options_);
  const auto stored = store_.FindEvaluationByKey(key);
  if (!MayStand(stored)) return DecideFresh(turn, candidate);
  Evaluation cached = FromRecord(*stored);
  if (!Draw(rates_.cached, turn, candidate)) return {cached, std::nullopt, {}};
  Evaluation audit = Evaluate(candidate, false);
  if (IsCorrect(audit) == stored->correct) return {cached, std::move(audit), {}};
  audit.outcome = Contradiction(stored->outcome, audit.outcome);
  return {std::move(audit), std::nullopt, store_.VerdictsUnderKey(key)};
}

Ruling Judge::DecideFresh(int turn, const Candidate& candidate) {
  std::optional<EvaluationRecord> same;  // another text's verdict that is checked by judging this one anew
  const Known known = [&](const std::string& machine_key) -> std::optional<Evaluation> {
    const auto stored = store_.FindEvaluationByMachineKey(machine_key);
    if (!MayStand(stored)) return std::nullopt;
    if (!Draw(rates_.cached, turn, candidate)) return FromRecord(*stored);
    same = stored;
    return std::nullopt;
  };
  Evaluation first = Evaluate(candidate, false, known);
  if (same && IsCorrect(first) != same->correct) {
    first.outcome = Contradiction(same->outcome, first.outcome);
    return {std::move(first), std::nullopt, store_.VerdictsUnderKey(same->key)};
  }
  if (!first.cached_from.empty() || !IsCorrect(first) || !Draw(rates_.fresh, turn, candidate))
    return {std::move(first), std::nullopt, {}};
  Evaluation again = Evaluate(candidate, false);
  if (IsCorrect(again)) return {std::move(first), std::move(again), {}};
  again.outcome = Contradiction("measured", again.outcome);
  return {std::move(again), std::nullopt, {}};
}

Evaluation Judge::Confirm(const Candidate& candidate) {
  Evaluation evaluation = Evaluate(candidate, true);
  if (!IsCorrect(evaluation)) evaluation.outcome = Contradiction("measured", evaluation.outcome);
  return evaluation;
}

Evaluation Judge::Evaluate(const Candidate& candidate, bool confirm, const Known& known) {
  EvaluateOptions options = options_;
  options.confirm = confirm;
  options.known = known;
  options.stop = cancel_;
  try {
    return environment_.Evaluate(problem_, candidate, options);
  } catch (const Error&) {
    if (cancel_ != nullptr && *cancel_) throw;
  }
  return environment_.Evaluate(problem_, candidate, options);
}

bool Judge::Draw(double rate, int turn, const Candidate& candidate) const {
  const std::string digest = Sha256Hex(fmt::format("audit {} {} {}", seed_, turn, candidate.source));
  return static_cast<double>(std::stoul(digest.substr(0, 8), nullptr, 16)) < rate * 4294967296.0;
}

}  // namespace kevin
