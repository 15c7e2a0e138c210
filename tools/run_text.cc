#include "tools/run_text.h"

#include <fmt/format.h>

#include <algorithm>

#include "agent/journal.h"
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

struct Again {
  std::string speedup;  // the latest, or the outcome
  std::string pairs;    // the latest comparison with another turn in the same pairs
};

// Of the confirmations of a turn; nullopt: it was not measured again.
std::optional<Again> MeasuredAgain(Store& store, const std::string& episode, int turn) {
  std::optional<Again> again;
  for (const EvaluationRecord& made : store.LoadEvaluations(episode, turn)) {
    if (made.purpose != "confirm") continue;
    if (!again) again.emplace();
    again->speedup = made.speedup ? fmt::format("{:.3g}x", made.speedup->value) : made.outcome;
    if (made.speedup && made.against_best) again->pairs = PairsText(made);
  }
  return again;
}

// When it was measured again, or else when it took the lead.
std::string PairsOfBest(Store& store, const std::string& episode, const TurnRecord& best) {
  const std::optional<Again> again = MeasuredAgain(store, episode, best.turn);
  if (again && !again->pairs.empty()) return again->pairs;
  return best.evaluation.against_best ? PairsText(best.evaluation) : "";
}

std::string SpeedupText(const EvaluationRecord& e) {
  return e.speedup ? fmt::format("{:.3g}x", e.speedup->value) : e.outcome;
}

// Of a turn that was not measured again though its speed-up reads higher than that of the best: how they compare by
// pairs.
std::string WhyNotBest(const std::vector<TurnRecord>& turns, const TurnRecord& turn, const EpisodeRecord& e) {
  if (!IsCorrectTurn(turn) || turn.evaluation.speedup->value <= *e.best_speedup) return "";
  const std::optional<Ratio> ratio = CompareTurns(turns, turn.turn, *e.best_turn);
  const std::string reading = SpeedupText(turn.evaluation);
  if (!ratio)
    return fmt::format("          turn {} read {}, at another time than the best and not in the same pairs\n",
                       turn.turn, reading);
  return fmt::format("          turn {} read {} and is {} against turn {} by pairs: {}\n", turn.turn, reading,
                     RatioText(ratio->value, ratio->low, ratio->high), *e.best_turn,
                     StandingWord(StandingOf(*ratio)));
}

// What decided are the pairs that the best turn shares with others: how it was compared itself, the turns that were
// measured again and did not win, and those whose speed-ups read otherwise.
std::string HowDecided(Store& store, const EpisodeRecord& e) {
  const std::vector<TurnRecord> turns = CurrentTurns(store, e.id);
  std::string text;
  for (const TurnRecord& turn : turns) {
    if (turn.turn == *e.best_turn) {
      const std::string pairs = PairsOfBest(store, e.id, turn);
      if (!pairs.empty()) text += fmt::format("          turn {}{}\n", turn.turn, pairs.substr(1));
      continue;
    }
    const std::optional<Again> again = MeasuredAgain(store, e.id, turn.turn);
    text += again ? fmt::format("          turn {} was {} and is {} when measured again{}\n", turn.turn,
                                SpeedupText(turn.evaluation), again->speedup, again->pairs)
                  : WhyNotBest(turns, turn, e);
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
         BestShapes(store, e) + HowDecided(store, e);
}

}  // namespace kevin
