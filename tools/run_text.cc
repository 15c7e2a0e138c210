#include "tools/run_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "agent/knob_feedback.h"
#include "agent/ranking.h"
#include "agent/shape_records.h"
#include "env/knobs/tune.h"
#include "env/verdict/words.h"
#include "tools/episode_text.h"

namespace kevin {
namespace {

std::string PairsText(const EvaluationRecord& made) {
  const Ratio& ratio = *made.against_best;
  return fmt::format("; in the same pairs as turn {}: {}, {}", made.against_best_turn.value_or(0),
                     RatioText(ratio.value, ratio.low, ratio.high), StandingWord(StandingOf(ratio)));
}

// The turns that were measured again and did not win: what decided are the pairs that they share with another turn.
std::string OtherConfirmations(Store& store, const EpisodeRecord& e) {
  std::string text;
  for (const TurnRecord& turn : store.LoadTurns(e.id)) {
    if (turn.turn == *e.best_turn) continue;
    std::string again, pairs;
    for (const EvaluationRecord& made : store.LoadEvaluations(e.id, turn.turn)) {
      if (made.purpose != "confirm") continue;
      again = made.speedup ? fmt::format("{:.3g}x", made.speedup->value) : made.outcome;
      if (made.speedup && made.against_best) pairs = PairsText(made);
    }
    if (again.empty()) continue;
    const std::string first = turn.evaluation.speedup ? fmt::format("{:.3g}x", turn.evaluation.speedup->value)
                                                      : turn.evaluation.outcome;
    text += fmt::format("          turn {} was {} and is {} when measured again{}\n", turn.turn, first, again,
                        pairs);
  }
  return text;
}

// The shapes of a size set with several, as the confirmation that gave the best speed-up has them.
std::string BestShapes(Store& store, const EpisodeRecord& e) {
  std::string text;
  for (const EvaluationRecord& made : store.LoadEvaluations(e.id, *e.best_turn)) {
    if (made.purpose != "confirm" || !made.speedup || made.speedup->value != e.best_speedup) continue;
    text.clear();
    for (const ShapeResult& shape : made.shapes) text += "  at      " + ShapeLine(shape) + "\n";
  }
  return text;
}

}  // namespace

std::string TurnLine(const TurnRecord& turn, const std::string& label) {
  const EvaluationRecord& e = turn.evaluation;
  std::string result = e.outcome;
  if (e.speedup) {
    result = fmt::format("{} {}, {}", e.outcome, RatioText(e.speedup->value, e.speedup->low, e.speedup->high),
                         VerdictWord(e));
  }
  if (!e.cached_from.empty()) result += " (cached)";
  if (e.against_best) {
    const Ratio& r = *e.against_best;
    result += fmt::format(", {}: {}", VerdictWords(Verdict::kAmbiguous, r, "the best"),
                          RatioText(r.value, r.low, r.high));
  }
  const KnobTrial* chosen = ChosenTrial(turn.trials);
  if (chosen != nullptr) result += " with " + SettingLine(chosen->setting);
  const std::string tuned = turn.trials.size() > 1 ? fmt::format(", tune {:.1f}", turn.tune_s) : "";
  const std::string waited = e.wait_s >= 0.05 ? fmt::format(", wait {:.1f}", e.wait_s) : "";
  const std::string asked = turn.requests > 1 ? fmt::format("{} requests, ", turn.requests) : "";
  const std::string cost = turn.requests > 0 ? "  " + asked + CostText(turn.cost_usd) : "";
  return fmt::format(
      "{}  {}  {:.1f} s (generate {:.1f}{}, compile {:.1f}, verify {:.1f}, measure {:.1f}{}, other {:.1f}){}",
      label, result, turn.seconds, turn.generate_s, tuned, e.compile_s, e.verify_s, e.measure_s, waited,
      std::max(turn.overhead_s, 0.0), cost);
}

std::string BestText(Store& store, const EpisodeRecord& e, const std::optional<Baseline>& baseline) {
  if (e.turns == 0) return "best      no turn was finished\n";
  if (!e.best_turn) return "best      none of the kernels was correct\n";
  const std::string turn =
      *e.best_turn == 0 ? std::string("the kernel given with --from") : fmt::format("turn {}", *e.best_turn);
  if (!e.best_speedup) return fmt::format("best      {}, not confirmed\n", turn);
  const std::string over_baseline = OverBaselineText(baseline, *e.best_speedup);
  return fmt::format(
             "best      {} with {}{}{}, measured again\n", turn,
             RatioText(*e.best_speedup, e.best_speedup_low.value_or(0), e.best_speedup_high.value_or(0)),
             over_baseline.empty() ? "" : " over eager", over_baseline) +
         BestShapes(store, e) + OtherConfirmations(store, e);
}

}  // namespace kevin
