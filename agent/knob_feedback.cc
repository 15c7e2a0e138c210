#include "agent/knob_feedback.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>
#include <set>

#include "agent/text.h"

namespace kevin {
namespace {

constexpr size_t kMostFailures = 3, kMaxReasonBytes = 200;

// A value of a knob, over all settings with it.
struct ValueResult {
  int64_t value = 0;
  std::optional<double> shortest_us;
  std::string failure;  // of the first setting, where none is correct
};

struct KnobResult {
  std::string name;
  std::vector<ValueResult> values;  // in the order of trying
  double spread = 1;                // the longest of the shortest times over the shortest
};

KnobResult ResultOf(size_t knob, const std::vector<KnobTrial>& trials) {
  KnobResult result;
  for (const KnobTrial& trial : trials) {
    if (knob >= trial.setting.size()) continue;
    const auto& [name, value] = trial.setting[knob];
    result.name = name;
    auto found = std::find_if(result.values.begin(), result.values.end(),
                              [&, v = value](const ValueResult& r) { return r.value == v; });
    if (found == result.values.end())
      found = result.values.insert(found, {value, std::nullopt, trial.outcome});
    if (trial.candidate_us)
      found->shortest_us = std::min(found->shortest_us.value_or(*trial.candidate_us), *trial.candidate_us);
  }
  double shortest = 0, longest = 0;
  for (const ValueResult& value : result.values) {
    if (!value.shortest_us) continue;
    shortest = shortest == 0 ? *value.shortest_us : std::min(shortest, *value.shortest_us);
    longest = std::max(longest, *value.shortest_us);
  }
  if (shortest > 0) result.spread = longest / shortest;
  return result;
}

std::string ValueList(const KnobResult& knob, double chosen_us) {
  std::vector<std::string> values;
  for (const ValueResult& value : knob.values) {
    values.push_back(value.shortest_us && chosen_us > 0
                         ? fmt::format("{} -> {:.2f}", value.value, *value.shortest_us / chosen_us)
                         : fmt::format("{} -> {}", value.value, value.failure));
  }
  return fmt::format("- {}: {}", knob.name, fmt::join(values, ", "));
}

// The knob that mattered most first; those with one value did not take part.
std::string ValueLists(const std::vector<KnobTrial>& trials, double chosen_us) {
  std::vector<KnobResult> knobs;
  for (size_t knob = 0; knob < trials.front().setting.size(); ++knob) knobs.push_back(ResultOf(knob, trials));
  std::erase_if(knobs, [](const KnobResult& knob) { return knob.values.size() < 2; });
  std::stable_sort(knobs.begin(), knobs.end(),
                   [](const KnobResult& a, const KnobResult& b) { return a.spread > b.spread; });
  std::string text;
  for (const KnobResult& knob : knobs) text += "\n" + ValueList(knob, chosen_us);
  return text;
}

// Different reasons of settings other than the chosen one.
std::string Failures(const std::vector<KnobTrial>& trials) {
  std::set<std::string> said;
  std::string text;
  for (const KnobTrial& trial : trials) {
    if (trial.candidate_us || trial.chosen || said.size() == kMostFailures) continue;
    if (!said.insert(trial.outcome + trial.reason).second) continue;
    text += fmt::format("\nWith {}: {}{}{}.", SettingLine(trial.setting), trial.outcome,
                        trial.reason.empty() ? "" : ": ", Clip(TrimRight(trial.reason), kMaxReasonBytes));
  }
  return text;
}

}  // namespace

std::string SettingLine(const KnobSetting& setting) {
  std::vector<std::string> items;
  for (const auto& [name, value] : setting) items.push_back(fmt::format("{} = {}", name, value));
  return fmt::format("{}", fmt::join(items, ", "));
}

std::string KnobNotes(const std::vector<KnobTrial>& trials) {
  const KnobTrial* chosen = ChosenTrial(trials);
  if (chosen == nullptr) return "";
  const std::string setting = SettingLine(chosen->setting);
  if (chosen->outcome.empty())
    return fmt::format("Knobs: no settings were tried; the kernel has {}.", setting);
  const std::string tried = Counted(static_cast<int64_t>(trials.size()), "setting");
  if (!chosen->candidate_us) {
    return fmt::format("Knobs: {} tried, none of them correct; the result is that of the first values, {}.",
                       tried, setting) +
           ValueLists(trials, 0) + Failures(trials);
  }
  std::string text =
      fmt::format("Knobs: {} tried in short timings; the kernel has the fastest, {}", tried, setting);
  const KnobTrial& first = trials.front();
  if (first.candidate_us && !first.chosen)
    text += fmt::format(", {:.2f} times as fast as the first values",
                        *first.candidate_us / *chosen->candidate_us);
  text += ". The shortest time with each value, as a multiple of that of the fastest:";
  return text + ValueLists(trials, *chosen->candidate_us) + Failures(trials);
}

std::vector<std::vector<std::string>> TrialRows(const std::vector<KnobTrial>& trials) {
  std::vector<std::vector<std::string>> rows = {{"setting", "outcome", "us", "times the chosen", "note"}};
  const KnobTrial* chosen = ChosenTrial(trials);
  const double chosen_us = chosen != nullptr ? chosen->candidate_us.value_or(0) : 0;
  for (const KnobTrial& trial : trials) {
    const double us = trial.candidate_us.value_or(0);
    rows.push_back({SettingLine(trial.setting), trial.outcome.empty() ? "not tried" : trial.outcome,
                    us > 0 ? fmt::format("{:.1f}", us) : "-",
                    us > 0 && chosen_us > 0 ? fmt::format("{:.2f}", us / chosen_us) : "-",
                    trial.chosen    ? "chosen"
                    : trial.stopped ? "stopped early"
                                    : Clip(trial.reason, 60)});
  }
  return rows;
}

}  // namespace kevin
