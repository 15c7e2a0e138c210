#include "agent/knob_feedback.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <set>

#include "agent/text.h"
#include "env/verdict/judgement.h"

namespace kevin {
namespace {

constexpr size_t kMostFailures = 3, kMaxReasonBytes = 200, kMostTimes = 8, kWorstTimes = 2, kMostValues = 4;

// The knobs of a setting that have more than one value in the trials.
std::string VariedLine(const KnobSetting& setting, const std::vector<KnobTrial>& trials) {
  KnobSetting varied;
  for (size_t knob = 0; knob < setting.size(); ++knob) {
    const bool varies = std::any_of(trials.begin(), trials.end(), [&](const KnobTrial& trial) {
      return knob < trial.setting.size() && trial.setting[knob].second != setting[knob].second;
    });
    if (varies) varied.push_back(setting[knob]);
  }
  return SettingLine(varied);
}

// A line for each correct setting, the fastest first; of many the fastest and the slowest ones.
std::string TimeLines(const std::vector<KnobTrial>& trials, double chosen_us) {
  std::vector<const KnobTrial*> timed;
  for (const KnobTrial& trial : trials) {
    if (trial.candidate_us) timed.push_back(&trial);
  }
  std::stable_sort(timed.begin(), timed.end(), [](const KnobTrial* a, const KnobTrial* b) {
    return *a->candidate_us < *b->candidate_us;
  });
  const size_t worst = timed.size() > kMostTimes + kWorstTimes ? timed.size() - kWorstTimes : timed.size();
  const auto times = [&](size_t i) { return *timed[i]->candidate_us / chosen_us; };
  std::string text;
  for (size_t i = 0; i < timed.size(); ++i) {
    if (worst < timed.size() && i == kMostTimes) {
      const size_t left_out = worst - kMostTimes;
      text += fmt::format("\n- ({} with {:.2f} to {:.2f} {} left out; the slowest:)", left_out, times(i),
                          times(worst - 1), left_out == 1 ? "is" : "are");
      i = worst;
    }
    text += fmt::format("\n- {}: {:.2f}{}", VariedLine(timed[i]->setting, trials), times(i),
                        timed[i]->stopped ? ", stopped early" : "");
  }
  return text;
}

// How the time changes from the chosen value of a knob to another one, by pairs of settings that are otherwise equal.
struct PairRatios {
  int pairs = 0;
  double least = 0, most = 0;
};

// By value of the knob at `knob`.
std::map<int64_t, PairRatios> RatiosOf(const std::vector<KnobTrial>& trials, size_t knob, int64_t chosen) {
  std::map<KnobSetting, std::map<int64_t, double>> times_us;  // by the rest of the setting
  for (const KnobTrial& trial : trials) {
    if (!trial.candidate_us || *trial.candidate_us <= 0 || knob >= trial.setting.size()) continue;
    KnobSetting rest = trial.setting;
    rest[knob].second = 0;
    times_us[rest][trial.setting[knob].second] = *trial.candidate_us;
  }
  std::map<int64_t, PairRatios> ratios;
  for (const auto& [rest, by_value] : times_us) {
    const auto base = by_value.find(chosen);
    if (base == by_value.end()) continue;
    for (const auto& [value, us] : by_value) {
      if (value == chosen) continue;
      PairRatios& one = ratios[value];
      const double ratio = us / base->second;
      one.least = one.pairs == 0 ? ratio : std::min(one.least, ratio);
      one.most = std::max(one.most, ratio);
      ++one.pairs;
    }
  }
  return ratios;
}

// A line for each knob of which the trials show the effect alone. Nothing where one knob varies: the times above show it.
std::string EffectLines(const std::vector<KnobTrial>& trials, const KnobSetting& chosen) {
  std::string text;
  int varied = 0;
  for (size_t knob = 0; knob < chosen.size(); ++knob) {
    varied += std::any_of(trials.begin(), trials.end(), [&](const KnobTrial& trial) {
      return trial.candidate_us && knob < trial.setting.size() && trial.setting[knob] != chosen[knob];
    });
    std::vector<std::string> values;
    for (const auto& [value, ratio] : RatiosOf(trials, knob, chosen[knob].second)) {
      const std::string least = fmt::format("{:.2f}", ratio.least), most = fmt::format("{:.2f}", ratio.most);
      if (values.size() < kMostValues)
        values.push_back(fmt::format("{} takes {} times as long ({})", value,
                                     least == most ? least : least + " to " + most,
                                     Counted(ratio.pairs, "pair")));
    }
    if (!values.empty())
      text += fmt::format("\n- {}, against {}: {}", chosen[knob].first, chosen[knob].second,
                          fmt::join(values, ", "));
  }
  if (varied < 2 || text.empty()) return "";
  return "\nPairs of settings that differ in one knob alone:" + text;
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

// A GPU's driver did not take the launch: nothing ran, so that nothing follows about the text.
bool IsRefusedLaunch(const KnobTrial& trial) {
  if (trial.outcome != "crashed" || !trial.reason.starts_with("cuLaunchKernelEx")) return false;
  const auto says = [&](const char* code) { return trial.reason.find(code) != std::string::npos; };
  return says("COOPERATIVE_LAUNCH_TOO_LARGE") || says("LAUNCH_OUT_OF_RESOURCES") || says("OUT_OF_MEMORY") ||
         says("INVALID_CLUSTER_SIZE") || says("INVALID_VALUE");
}

bool IsIncorrect(const KnobTrial& trial) {
  return trial.outcome == "wrong" || (trial.outcome == "crashed" && !IsRefusedLaunch(trial));
}

bool HasValue(const KnobTrial& trial, const std::pair<std::string, int64_t>& value) {
  return std::find(trial.setting.begin(), trial.setting.end(), value) != trial.setting.end();
}

// The values that all incorrect settings have and no correct one: "TILE = 256". Empty: none.
std::string SeparatingValues(const std::vector<KnobTrial>& trials, const KnobTrial& incorrect) {
  KnobSetting separating;
  for (const auto& value : incorrect.setting) {
    const bool separates = std::all_of(trials.begin(), trials.end(), [&](const KnobTrial& trial) {
      if (IsIncorrect(trial)) return HasValue(trial, value);
      return !trial.candidate_us || !HasValue(trial, value);
    });
    if (separates) separating.push_back(value);
  }
  return SettingLine(separating);
}

// Settings change how a text computes, not what: where some are incorrect and others are not, the text has an error that
// the others may only hide.
// `error_ratio`: of the chosen one's error to its bound; 0: it is correct, or unknown.
std::string HiddenErrorNote(const std::vector<KnobTrial>& trials, double error_ratio) {
  constexpr double kNearTheBound = 10;
  const auto incorrect = std::find_if(trials.begin(), trials.end(), IsIncorrect);
  const auto passing = std::count_if(trials.begin(), trials.end(),
                                     [](const KnobTrial& t) { return t.candidate_us.has_value(); });
  if (incorrect == trials.end() || passing == 0) return "";
  const auto failing = std::count_if(trials.begin(), trials.end(), IsIncorrect);
  const std::string values = SeparatingValues(trials, *incorrect);
  return fmt::format(
      "\n{} of this text {} verification while {}; {}. {} A setting that passed one call may hide the same error.",
      Counted(failing, "setting"), failing == 1 ? "fails" : "fail",
      passing == 1 ? "1 passes" : fmt::format("{} pass", passing),
      values.empty() ? "no single value separates them"
                     : fmt::format("all that fail have {}, and none that passes", values),
      error_ratio > 0 && error_ratio <= kNearTheBound
          ? "An error so near to what is allowed is that of roundings: other settings add in another order. Make the sums more "
            "precise, by shorter partial sums, more exact parts of a split, or a wider type where they meet."
          : "Settings should not change the result: the text depends on the order of threads (a race, a missing barrier), "
            "accesses memory out of bounds, for example where a tile does not divide a size, or computes something else with "
            "these values.");
}

// The time of the chosen setting in its trial beside that of the measurement: a direct look at the noise.
std::string DriftNote(double trial_us, double measured_us) {
  if (trial_us <= 0 || measured_us <= 0) return "";
  return fmt::format("; the chosen one took {} us then and {} us in the measurement",
                     SignificantText(trial_us, 4), SignificantText(measured_us, 4));
}

// Whether all settings end with one outcome, as a text does that does not compile at all.
bool FailAlike(const std::vector<KnobTrial>& trials) {
  return std::all_of(trials.begin(), trials.end(),
                     [&](const KnobTrial& trial) { return trial.outcome == trials.front().outcome; });
}

}  // namespace

std::string SettingLine(const KnobSetting& setting) {
  std::vector<std::string> items;
  for (const auto& [name, value] : setting) items.push_back(fmt::format("{} = {}", name, value));
  return fmt::format("{}", fmt::join(items, ", "));
}

std::string KnobNotes(const std::vector<KnobTrial>& trials, bool is_correct, double measured_us,
                      double error_ratio) {
  const KnobTrial* chosen = ChosenTrial(trials);
  if (chosen == nullptr) return "";
  const std::string setting = SettingLine(chosen->setting);
  if (chosen->outcome.empty())
    return fmt::format("Knobs: no settings were tried; the kernel has {}.", setting);
  const std::string tried = Counted(static_cast<int64_t>(trials.size()), "setting");
  const auto correct = std::count_if(trials.begin(), trials.end(),
                                     [](const KnobTrial& t) { return t.candidate_us.has_value(); });
  if (!chosen->candidate_us) {
    return fmt::format("Knobs: {} tried, none of them correct; the result is that of the first values, {}.",
                       tried, setting) +
           (FailAlike(trials) ? "" : Failures(trials));
  }
  if (!is_correct)
    return fmt::format(
               "Knobs: {} tried; the result is that of the setting that was the fastest, {}. It passed the one verified call of "
               "its trial, so that the failure depends on the inputs of a call or on timing.",
               tried, setting) +
           Failures(trials) + HiddenErrorNote(trials, error_ratio);
  return fmt::format(
             "Knobs: {} tried, {} correct; the kernel has the fastest, {}. A time is the median of at most {} short timings "
             "without pairs{}. Small differences are noise. Times as multiples of the fastest:",
             tried, correct, setting, kMostScreenTimings, DriftNote(*chosen->candidate_us, measured_us)) +
         TimeLines(trials, *chosen->candidate_us) + EffectLines(trials, chosen->setting) + Failures(trials) +
         HiddenErrorNote(trials, 0);
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
