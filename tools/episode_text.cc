#include "tools/episode_text.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>

#include "agent/feedback.h"
#include "agent/gpu_feedback.h"
#include "agent/knob_feedback.h"
#include "agent/ranking.h"
#include "agent/rates.h"
#include "agent/shape_records.h"
#include "agent/text.h"
#include "env/printable.h"
#include "env/verdict/words.h"
#include "tools/report/format.h"
#include "trajectories/doubtful_verdicts.h"

namespace kevin {
namespace {

constexpr size_t kMaxCellBytes = 60;

std::string Dash(std::string text) { return text.empty() ? "-" : std::move(text); }

std::string RatioCell(const std::optional<Ratio>& ratio) {
  return ratio ? RatioText(ratio->value, ratio->low, ratio->high) : "";
}

// "1.04x faster", "0.98x slower", "1x same", "1.01x not distinguishable"
std::string AgainstBestCell(const EvaluationRecord& e) {
  if (!e.against_best) return "";
  return fmt::format("{:.3g}x {}", e.against_best->value, StandingWord(StandingOf(*e.against_best)));
}

std::string BestRatio(const EpisodeRecord& e) {
  if (!e.best_speedup) return "";
  return RatioText(*e.best_speedup, e.best_speedup_low.value_or(0), e.best_speedup_high.value_or(0));
}

// The store's UTC time on the clock of this machine, to the minute.
std::string LocalMinute(const std::string& utc) {
  std::tm parts{};
  if (strptime(utc.c_str(), "%Y-%m-%dT%H:%M:%S", &parts) == nullptr) return utc;
  return fmt::format("{:%Y-%m-%d %H:%M}", fmt::localtime(timegm(&parts)));
}

std::string Number(const std::optional<double>& value, const char* unit = "") {
  return value ? SignificantText(*value, 3) + unit : "";
}

std::string ErrorCell(const EvaluationRecord& e) {
  if (e.outcome == "measured") return Number(e.max_error);
  return Clip(e.reason, kMaxCellBytes);
}

std::string RulesText(const EvaluationRecord& e) {
  if (!IsOfOlderRules(e.rules_version)) return std::to_string(e.rules_version);
  return fmt::format(
      "{}, older than the last security fix ({}): left out of reports and training; `kevin db rejudge` "
      "evaluates it again",
      e.rules_version, kSecurityRulesVersion);
}

std::string SharedText(const EvaluationRecord& e) {
  if (!e.shared_gpu) return "";
  return "another process computed on it during the measurement: left out of reports and training; `kevin db rejudge` "
         "evaluates it again";
}

// Measured on the machine, with the shares that were reached.
std::string CeilingsText(const EvaluationRecord& e) {
  std::string text;
  const auto add = [&text](const std::optional<double>& peak, const std::optional<double>& rate,
                           const char* unit) {
    if (!peak || *peak <= 0) return;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", SignificantText(*peak, 4), unit);
    if (rate && *rate > 0) text += fmt::format(" ({} reached)", PercentText(*rate / *peak));
  };
  add(e.peak_gb_per_s, e.gb_per_s, "GB/s");
  add(e.peak_gflop_per_s, e.gflop_per_s, "GFLOP/s");
  return text;
}

class Facts {
 public:
  void Add(const std::string& name, const std::string& value) {
    if (!value.empty()) rows_.push_back({name, value});
  }
  std::string Text() const { return AlignedTable(rows_); }

 private:
  std::vector<std::vector<std::string>> rows_;
};

std::string Section(const std::string& title, std::string_view body) {
  std::string text = "\n" + std::string(TrimRight(body));
  if (text.size() == 1) return "";
  // A line that reads like a title of ours is none.
  for (size_t at = 0; (at = text.find("\n--- ", at)) != std::string::npos;) text.insert(++at, " ");
  return fmt::format("\n--- {}{}\n", PrintableLine(title), text);
}

std::string EvaluationText(const EvaluationRecord& e) {
  Facts facts;
  facts.Add("evaluation", e.id);
  facts.Add("outcome", e.speedup ? fmt::format("{}, {}", e.outcome, VerdictWord(e)) : e.outcome);
  facts.Add("reason", e.reason);
  facts.Add("speed-up", RatioCell(e.speedup));
  facts.Add("against the start", RatioCell(e.against_start));
  if (e.against_best) {
    facts.Add("against the best",
              fmt::format("turn {}: {}, {}", e.against_best_turn.value_or(0), RatioCell(e.against_best),
                          StandingWord(StandingOf(*e.against_best))));
  }
  for (const ShapeResult& shape : e.shapes) facts.Add("at", ShapeLine(shape));
  if (e.speedup && e.speedup->pairs > 0)
    facts.Add("pairs", fmt::format("{} in {} process{}", e.speedup->pairs, e.speedup->processes,
                                   e.speedup->processes == 1 ? "" : "es"));
  facts.Add("candidate", Number(e.candidate_us, " us"));
  facts.Add("reference", Number(e.reference_us, " us"));
  facts.Add("rates", e.gb_per_s ? fmt::format("{} GB/s, {} GFLOP/s", SignificantText(*e.gb_per_s, 3),
                                              SignificantText(e.gflop_per_s.value_or(0), 3))
                                : "");
  facts.Add("ceilings", CeilingsText(e));
  for (const KernelReport& kernel : KernelsFromText(e.kernels)) facts.Add("kernel", KernelLine(kernel));
  facts.Add("profile", e.profile);
  facts.Add("error", e.max_error
                         ? fmt::format("{:.3g} of {:.3g} allowed", *e.max_error, e.error_bound.value_or(0))
                         : "");
  facts.Add("score", fmt::format("{:.4g}", e.score));
  facts.Add("rules version", RulesText(e));
  facts.Add("GPU", SharedText(e));
  facts.Add("conditions",
            fmt::format("{}, inputs {}, {}, {}, isolation {}", Dash(e.workload.size), Dash(e.workload.inputs),
                        Dash(e.workload.precision), Dash(e.device), Dash(e.isolation)));
  facts.Add("TF32", e.workload.tf32 ? "allowed on both sides" : "");
  const std::string share = e.own_share ? fmt::format(", {} of the work", PercentText(*e.own_share)) : "";
  facts.Add("own kernels", e.backend == "torch" ? "none" + share
                           : e.backend.empty()  ? ""
                                                : "in " + e.backend + share);
  facts.Add("rules", e.backend.empty() ? "" : e.workload.rules);
  facts.Add("GPU held", Number(e.device_s, " s"));
  facts.Add("seconds", fmt::format("compile {:.2f}, verify {:.2f}, measure {:.2f}, wait {:.2f}", e.compile_s,
                                   e.verify_s, e.measure_s, e.wait_s));
  facts.Add("samples", e.samples.empty() ? "" : std::to_string(e.samples.size()));
  facts.Add("repeats", e.cached_from);
  facts.Add("overridden by", e.superseded_by);
  facts.Add("key", e.key);
  std::string text = facts.Text();
  if (!e.log.empty()) text += "log\n" + std::string(TrimRight(e.log)) + "\n";
  return text;
}

std::string RequestLine(const RequestRecord& r) {
  std::string line = fmt::format("{} {}", r.provider, r.outcome);
  if (!r.error.empty()) line += ": " + r.error;
  if (r.seconds) line += fmt::format(", {:.2f} s", *r.seconds);
  if (r.first_token_s) line += fmt::format(", first token after {:.2f} s", *r.first_token_s);
  return fmt::format("{}, {} ({})", line, CostText(r.cost_usd), r.url);
}

}  // namespace

std::string CostText(const std::optional<double>& usd) {
  return usd ? fmt::format("${:.4f}", *usd) : "cost unknown";
}

std::string EpisodeTable(const std::vector<EpisodeRecord>& episodes) {
  std::vector<std::vector<std::string>> rows = {
      {"episode", "when", "problem", "policy", "turns", "correct", "best speed-up", "state"}};
  for (const EpisodeRecord& e : episodes) {
    rows.push_back({e.id, LocalMinute(e.started_at), e.problem, e.policy,
                    fmt::format("{}/{}", e.turns, e.turns_asked), std::to_string(e.correct_turns),
                    Dash(BestRatio(e)), EpisodeStateName(e.state)});
  }
  return AlignedTable(rows);
}

std::string TurnTable(const std::vector<TurnRecord>& turns) {
  std::vector<std::vector<std::string>> rows = {
      {"turn", "outcome", "speed-up", "against the best", "GB/s", "error", "what changed"}};
  for (const TurnRecord& t : turns) {
    const EvaluationRecord& e = t.evaluation;
    rows.push_back({t.turn == 0 ? "start" : std::to_string(t.turn),
                    e.outcome + (e.cached_from.empty() ? "" : " (cached)") +
                        (IsOfOlderRules(e.rules_version) ? " (old rules)" : "") +
                        (e.shared_gpu ? " (shared GPU)" : ""),
                    Dash(RatioCell(e.speedup)), Dash(AgainstBestCell(e)), Dash(Number(e.gb_per_s)),
                    Dash(ErrorCell(e)), Clip(t.summary, kMaxCellBytes)});
  }
  return AlignedTable(rows);
}

std::string TrialTable(const std::vector<KnobTrial>& trials) {
  return trials.empty() ? "" : AlignedTable(TrialRows(trials));
}

std::string EpisodeSummary(const EpisodeRecord& e) {
  Facts facts;
  facts.Add("episode", fmt::format("{} ({})", e.id, EpisodeStateName(e.state)));
  facts.Add("why", e.state_reason);
  facts.Add("problem", fmt::format("{}, size {}, inputs {}, {}", e.problem, Dash(e.workload.size),
                                   Dash(e.workload.inputs), Dash(e.workload.precision)));
  facts.Add("kind",
            e.workload.rules == "kevin" ? e.kind : fmt::format("{}, rules {}", e.kind, e.workload.rules));
  facts.Add("policy", fmt::format("{}, seed {}", e.policy, e.seed));
  facts.Add("device", fmt::format("{}, isolation {}", Dash(e.device), Dash(e.isolation)));
  facts.Add("started", fmt::format("{}, {:.1f} s", LocalMinute(e.started_at), e.seconds));
  facts.Add("turns", fmt::format("{} of {}, {} correct", e.turns, e.turns_asked, e.correct_turns));
  facts.Add("requests", e.requests > 0 ? fmt::format("{}, {}", e.requests, CostText(e.cost_usd)) : "");
  facts.Add("from", e.start_source.empty() ? "" : "a kernel of your own (turn 0)");
  facts.Add("until", Number(e.until, "x"));
  facts.Add("TF32", e.workload.tf32 ? "allowed on both sides" : "");
  facts.Add("note", e.note);
  if (e.best_turn) {
    const std::string ratio = BestRatio(e);
    facts.Add("best", fmt::format("turn {}{}", *e.best_turn, ratio.empty() ? "" : ", confirmed " + ratio));
  }
  facts.Add("best kernel", e.best_path);
  return facts.Text();
}

std::string TurnDetails(const TurnRecord& t, const std::vector<EvaluationRecord>& evaluations,
                        const std::vector<RequestRecord>& requests) {
  Facts facts;
  facts.Add("turn", std::to_string(t.turn));
  facts.Add("model", t.model.name);
  facts.Add("stopped", t.stop_reason);
  if (t.usage.completion_tokens) {
    facts.Add("tokens",
              fmt::format("{} in, {} out", t.usage.prompt_tokens.value_or(0), *t.usage.completion_tokens));
  }
  for (const RequestRecord& request : requests) facts.Add("request", RequestLine(request));
  facts.Add("prompt", t.prompt_template);
  facts.Add("reply", t.reply_form);
  facts.Add("changed", t.summary);
  facts.Add("seconds",
            fmt::format("{:.2f}, of which generate {:.2f}, overhead {:.2f}{}", t.seconds, t.generate_s,
                        t.overhead_s, t.tune_s > 0 ? fmt::format(", tune {:.2f}", t.tune_s) : ""));
  std::string text = facts.Text();
  for (const MessageRecord& message : t.messages) text += Section("sent: " + message.role, message.content);
  text += Section("reasoning", t.reasoning);
  text += Section("reply", t.reply);
  text += Section(t.source_path.empty() ? "source" : "source: " + t.source_path, t.evaluation.source);
  text += Section("knobs", TrialTable(t.trials));
  for (const EvaluationRecord& e : evaluations) {
    const bool own = e.purpose == "turn" || e.purpose == "start";
    text += Section(own ? "evaluation" : "evaluation: " + e.purpose, EvaluationText(e));
  }
  return text + Section("feedback", t.feedback);
}

}  // namespace kevin
