#include "tools/collect_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <set>

#include "agent/feedback.h"
#include "agent/json.h"
#include "tools/table.h"

namespace kevin {
namespace {

constexpr double kSecondsToKnowARate = 5;

// What follows from a status and is not in it.
struct Derived {
  int64_t all = 0, ended = 0;
  int solved = 0;
  const ProblemResult* best = nullptr;
  std::optional<double> turns_per_hour, device_busy, seconds_left;
};

Derived Derive(const RolloutStatus& status, const CollectTotals& totals) {
  Derived d;
  d.ended = status.counts.done + status.counts.parked;
  d.all = d.ended + status.counts.waiting + status.counts.leased;
  std::set<std::string> solved;
  for (const ProblemResult& result : status.results) {
    if (result.solved > 0) solved.insert(result.problem);
    const bool better =
        result.best_speedup && (d.best == nullptr || *result.best_speedup > *d.best->best_speedup);
    if (better) d.best = &result;
  }
  d.solved = static_cast<int>(solved.size());
  if (status.seconds < kSecondsToKnowARate) return d;
  d.device_busy = std::min(1.0, status.device_s / (status.seconds * std::max(1, totals.devices)));
  const auto made = static_cast<double>(status.usage.turns - totals.turns_at_start);
  if (made <= 0) return d;
  d.turns_per_hour = made / status.seconds * 3600;
  const double to_make = static_cast<double>(d.all - status.counts.parked) * totals.turns -
                         static_cast<double>(status.usage.turns);
  d.seconds_left = std::max(0.0, to_make) * status.seconds / made;
  return d;
}

}  // namespace

std::string DurationText(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min", whole / 60);
  if (whole < 86400) return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
  return fmt::format("{} d {} h", whole / 86400, whole % 86400 / 3600);
}

std::string ProgressText(const RolloutStatus& status, const CollectTotals& totals, const Budget& budget) {
  const Derived d = Derive(status, totals);
  std::string text = fmt::format("{}/{} episodes, {} running", d.ended, d.all, status.running.size());
  const int64_t elsewhere = status.counts.leased - static_cast<int64_t>(status.running.size());
  if (elsewhere > 0) text += fmt::format(", {} elsewhere", elsewhere);
  if (status.counts.parked > 0) text += fmt::format(", {} parked", status.counts.parked);
  if (d.turns_per_hour) text += fmt::format(" | {:.0f} turns/h", *d.turns_per_hour);
  text += fmt::format(" | solved {}/{}", d.solved, totals.problems);
  if (d.best != nullptr) text += fmt::format(" | best {:.3g}x {}", *d.best->best_speedup, d.best->problem);
  if (d.device_busy) text += fmt::format(" | device busy {:.0f} %", *d.device_busy * 100);
  const double dollars = DollarsFor(budget, status.usage);
  if (dollars > 0) text += fmt::format(" | ${:.2f}", dollars);
  if (d.seconds_left) text += fmt::format(" | {} left", DurationText(*d.seconds_left));
  if (status.draining) text += " | finishing the turns in hand";
  return text;
}

Json ProgressEvent(const RolloutStatus& status, const CollectTotals& totals, const Budget& budget) {
  const Derived d = Derive(status, totals);
  return {{"event", "progress"},
          {"run", totals.run},
          {"waiting", status.counts.waiting},
          {"running", status.counts.leased},
          {"done", status.counts.done},
          {"parked", status.counts.parked},
          {"turns", status.usage.turns},
          {"turns_per_hour", OrNull(d.turns_per_hour)},
          {"solved", d.solved},
          {"problems", totals.problems},
          {"best_problem", d.best ? Json(d.best->problem) : Json()},
          {"best_speedup", d.best ? OrNull(d.best->best_speedup) : Json()},
          {"device_busy", OrNull(d.device_busy)},
          {"prompt_tokens", status.usage.prompt_tokens},
          {"completion_tokens", status.usage.completion_tokens},
          {"dollars", DollarsFor(budget, status.usage)},
          {"seconds", status.seconds},
          {"seconds_left", OrNull(d.seconds_left)}};
}

std::string EpisodeLine(const EpisodeRecord& e) {
  std::string best = "none right";
  if (e.best_turn && e.best_speedup) {
    best = fmt::format(
        "best turn {} with {}", *e.best_turn,
        RatioText(*e.best_speedup, e.best_speedup_low.value_or(0), e.best_speedup_high.value_or(0)));
  } else if (e.best_turn) {
    best = fmt::format("best turn {}, not confirmed", *e.best_turn);
  }
  return fmt::format("{}  {}  {}  {} turns, {} right, {}  {:.1f} s", e.id, e.problem, e.policy, e.turns,
                     e.correct_turns, best, e.seconds);
}

std::string ResultTable(const std::vector<ProblemResult>& results) {
  std::vector<std::vector<std::string>> rows = {
      {"problem", "policy", "episodes", "with a right kernel", "best"}};
  for (const ProblemResult& r : results) {
    rows.push_back({r.problem, r.policy, std::to_string(r.episodes), std::to_string(r.solved),
                    r.best_speedup ? fmt::format("{:.3g}x", *r.best_speedup) : "-"});
  }
  return AlignedTable(rows);
}

Json ResultEvent(const ProblemResult& r) {
  return {{"event", "result"},
          {"problem", r.problem},
          {"policy", r.policy},
          {"episodes", r.episodes},
          {"done", r.done},
          {"solved", r.solved},
          {"best_speedup", OrNull(r.best_speedup)}};
}

}  // namespace kevin
