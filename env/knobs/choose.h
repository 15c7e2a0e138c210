#pragma once
// Which settings of a text's knobs are tried, one after another: first the first values, then moves of one knob from
// the fastest setting so far (near values before far ones, beginning with the knob whose move made it the fastest),
// then random ones. A value that has only failed comes last. Deterministic under the seed and the reported times. One thread.

#include <cstdint>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <utility>
#include <vector>

#include "env/knobs/knobs.h"

namespace kevin {

class SettingChooser {
 public:
  SettingChooser(const std::vector<DeclaredKnob>& knobs, uint64_t seed) : knobs_(knobs), random_(seed) {}

  // One that was not chosen before; nullopt: all were. Several may be chosen before the first is reported.
  std::optional<KnobSetting> Next();
  // What a chosen setting took; nullopt: it failed.
  void Report(const KnobSetting& setting, std::optional<double> candidate_us);

 private:
  using Indexes = std::vector<size_t>;  // of a value, for each knob
  std::optional<Indexes> Move() const;
  Indexes Random();
  Indexes AtPlace(int64_t place) const;
  bool HasFailed(size_t knob, size_t value) const;
  KnobSetting SettingOf(const Indexes& indexes) const;
  Indexes IndexesOf(const KnobSetting& setting) const;

  std::vector<DeclaredKnob> knobs_;
  std::mt19937_64 random_;
  std::set<Indexes> chosen_;
  Indexes best_;  // empty until the first choice
  std::optional<double> best_us_;
  size_t first_knob_ = 0;  // that is moved first
  struct Counts {
    int failed = 0, correct = 0;
  };
  std::map<std::pair<size_t, size_t>, Counts> counts_;  // of settings with a value, by knob and value
};

}  // namespace kevin
