#include "agent/history.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "agent/edits.h"
#include "agent/feedback.h"
#include "agent/parse.h"
#include "agent/ranking.h"
#include "agent/text.h"
#include "env/verdict/words.h"
#include "prompts/prompts.h"

namespace kevin {
namespace {

constexpr size_t kMostDifferenceLines = 40;  // of the latest kernel from the best one
constexpr size_t kMostOldDifferenceLines = 30, kMostOldDifferenceBytes = 2000;  // of one that is not shown
constexpr size_t kMostSummaryBytes = 160, kMostReasonBytes = 160;               // of the table of attempts

// The turns that were timed against turn `best` and are neither faster nor slower.
std::vector<int> TiesOf(const std::vector<TurnRecord>& turns, int best) {
  std::vector<int> ties;
  for (const TurnRecord& turn : turns) {
    const EvaluationRecord& e = turn.evaluation;
    if (!e.correct || !e.against_best || e.against_best_turn != best) continue;
    const Standing standing = StandingOf(*e.against_best);
    if (standing == Standing::kSame || standing == Standing::kNotDistinguishable) ties.push_back(turn.turn);
  }
  return ties;
}

std::string BestLine(const std::vector<TurnRecord>& turns) {
  const TurnRecord* best = LeaderOf(turns);
  if (best == nullptr) return "";
  const Ratio& r = *best->evaluation.speedup;
  std::string line = fmt::format("turn {} with {}", best->turn, RatioText(r.value, r.low, r.high));
  const std::vector<int> ties = TiesOf(turns, best->turn);
  if (ties.empty()) return line;
  line += fmt::format("; turn{} {} {} not distinguishable from it", ties.size() == 1 ? "" : "s",
                      fmt::join(ties, ", "), ties.size() == 1 ? "is" : "are");
  const TurnRecord* latest = LatestWithSource(turns);  // is shown, unlike the others
  const bool is_tie = latest != nullptr && std::find(ties.begin(), ties.end(), latest->turn) != ties.end();
  return is_tie ? fmt::format("{}, so continue from turn {} or {}", line, best->turn, latest->turn) : line;
}

std::string Cell(std::string_view text, size_t most_bytes) {
  std::string cell = FirstSentence(text, most_bytes);
  std::replace(cell.begin(), cell.end(), '|', '/');
  return cell;
}

std::string Row(const TurnRecord& turn, bool is_best) {
  const EvaluationRecord& e = turn.evaluation;
  std::string outcome = e.outcome, speedup, against;
  if (is_best) outcome += ", the best";
  if (!e.correct && !e.reason.empty()) outcome += ": " + Cell(ReasonForPolicies(e.reason), kMostReasonBytes);
  if (e.speedup) speedup = RatioText(e.speedup->value, e.speedup->low, e.speedup->high);
  if (e.against_best) {
    const Ratio& r = *e.against_best;
    against = fmt::format("turn {}: {}, {}", e.against_best_turn.value_or(0),
                          RatioText(r.value, r.low, r.high), StandingWord(StandingOf(r)));
  }
  return fmt::format("\n| {} | {} | {} | {} | {} |", turn.turn, outcome, speedup, against,
                     turn.turn == 0 ? "the kernel you start from" : Cell(turn.summary, kMostSummaryBytes));
}

// Outcome, speed-up, comparison and what it was, of each attempt. Empty below two attempts.
std::string AttemptTable(const std::vector<TurnRecord>& turns, size_t rows) {
  if (turns.size() < 2) return "";
  const TurnRecord* best = LeaderOf(turns);
  std::string table =
      "| turn | outcome | speed-up over eager | against the best at that time | summary |\n| --- | --- | --- | --- | --- |";
  for (size_t i = 0; i < turns.size(); ++i) {
    const bool is_best = &turns[i] == best;
    if (is_best || turns.size() - i <= rows) table += Row(turns[i], is_best);
  }
  return table;
}

// The latest kernel and the best one; null where there is none, or where they are one.
struct ShownKernels {
  const TurnRecord* best = nullptr;
  const TurnRecord* latest = nullptr;
  bool Has(const TurnRecord& turn) const { return &turn == best || &turn == latest; }
};

ShownKernels ShownOf(const std::vector<TurnRecord>& turns) {
  ShownKernels shown{LeaderOf(turns), LatestWithSource(turns)};
  if (shown.latest == shown.best) shown.latest = nullptr;
  return shown;
}

std::string DifferenceOf(const TurnRecord& from, const TurnRecord& to) {
  return UnifiedDiff(from.evaluation.source, to.evaluation.source, fmt::format("turn {}", from.turn),
                     fmt::format("turn {}", to.turn));
}

bool IsShort(const std::string& diff, const std::string& source, size_t most_lines) {
  return !diff.empty() && SplitLines(diff).size() <= most_lines && diff.size() < source.size() / 2;
}

// Of an attempt that is not shown, from the shown kernel that is nearest to it. Empty where it is long, and where the
// attempt did not run: what a compiler rejected shows nothing of what makes a kernel fast.
std::string OldDifference(const TurnRecord& old, const ShownKernels& shown) {
  const EvaluationRecord& e = old.evaluation;
  const bool has_run =
      e.correct || e.outcome == "wrong" || e.outcome == "crashed" || e.outcome == "timed_out";
  std::string shortest;
  for (const TurnRecord* one : {shown.best, shown.latest}) {
    if (!has_run || one == nullptr) continue;
    const std::string diff = DifferenceOf(*one, old);
    if (!IsShort(diff, e.source, kMostOldDifferenceLines) || diff.size() > kMostOldDifferenceBytes) continue;
    if (shortest.empty() || diff.size() < shortest.size()) shortest = diff;
  }
  return shortest;
}

std::string Differences(const std::vector<TurnRecord>& turns, const ShownKernels& shown, size_t most_old) {
  std::string of_latest, of_old;
  if (shown.best != nullptr && shown.latest != nullptr) {
    const std::string diff = DifferenceOf(*shown.best, *shown.latest);
    if (IsShort(diff, shown.latest->evaluation.source, kMostDifferenceLines)) of_latest = diff;
  }
  for (auto turn = turns.rbegin(); turn != turns.rend() && most_old > 0; ++turn) {
    if (turn->evaluation.source.empty() || shown.Has(*turn)) continue;
    const std::string diff = OldDifference(*turn, shown);
    of_old = diff + of_old;
    most_old -= diff.empty() ? 0 : 1;
  }
  return std::string(TrimRight(of_latest + of_old));
}

}  // namespace

std::string AttemptText(const TurnRecord& turn, const std::string& kind) {
  const std::string title =
      turn.turn == 0 ? "Turn 0, the kernel you start from" : fmt::format("Turn {}", turn.turn);
  const std::string source(TrimRight(turn.evaluation.source));
  if (source.empty())
    return Render("attempt_without_source", {{"title", title}, {"feedback", turn.feedback}});
  return Render("attempt", {{"title", title},
                            {"fence", FenceOf(turn.evaluation.kind.empty() ? kind : turn.evaluation.kind)},
                            {"source", source},
                            {"summary", std::string(Trim(turn.summary))},
                            {"feedback", turn.feedback}});
}

const TurnRecord* LatestWithSource(const std::vector<TurnRecord>& turns) {
  const auto found = std::find_if(turns.rbegin(), turns.rend(),
                                  [](const TurnRecord& turn) { return !turn.evaluation.source.empty(); });
  return found == turns.rend() ? nullptr : &*found;
}

History HistoryOf(const std::vector<TurnRecord>& turns, const std::string& kind,
                  const HistoryLimits& limits) {
  const ShownKernels shown = ShownOf(turns);
  History history;
  for (const TurnRecord& turn : turns) {
    // The latest reply is shown though it holds no kernel.
    if (!shown.Has(turn) && &turn != &turns.back()) continue;
    history.begins_with_best |= history.attempts.empty() && &turn == shown.best;
    history.attempts.push_back(AttemptText(turn, kind));
  }
  history.best = BestLine(turns);
  history.table = AttemptTable(turns, limits.rows);
  history.difference = Differences(turns, shown, limits.differences);
  return history;
}

}  // namespace kevin
