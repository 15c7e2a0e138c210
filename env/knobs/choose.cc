#include "env/knobs/choose.h"

#include <algorithm>

namespace kevin {

std::optional<KnobSetting> SettingChooser::Next() {
  if (static_cast<int64_t>(chosen_.size()) >= CountSettings(knobs_)) return std::nullopt;
  std::optional<Indexes> next;
  if (best_.empty()) {
    next = best_ = Indexes(knobs_.size(), 0);
  } else {
    next = Move();
    if (!next) next = Random();
  }
  chosen_.insert(*next);
  return SettingOf(*next);
}

std::optional<SettingChooser::Indexes> SettingChooser::Move() {
  size_t most = 0;
  for (const DeclaredKnob& knob : knobs_) most = std::max(most, knob.values.size());
  for (size_t distance = 1; distance < most; ++distance) {
    for (size_t i = 0; i < knobs_.size(); ++i) {
      const size_t knob = (first_knob_ + i) % knobs_.size();
      const size_t from = best_[knob];
      for (const size_t to : {from + distance, from - distance}) {  // below 0 it is too large
        if (to >= knobs_[knob].values.size()) continue;
        Indexes moved = best_;
        moved[knob] = to;
        if (!chosen_.contains(moved)) return moved;
      }
    }
  }
  return std::nullopt;
}

// From a random place on, the next that was not chosen.
std::optional<SettingChooser::Indexes> SettingChooser::Random() {
  const int64_t count = CountSettings(knobs_);
  for (auto place = static_cast<int64_t>(random_() % static_cast<uint64_t>(count));;
       place = (place + 1) % count) {
    Indexes indexes;
    int64_t rest = place;
    for (const DeclaredKnob& knob : knobs_) {
      const auto values = static_cast<int64_t>(knob.values.size());
      indexes.push_back(static_cast<size_t>(rest % values));
      rest /= values;
    }
    if (!chosen_.contains(indexes)) return indexes;
  }
}

void SettingChooser::Report(const KnobSetting& setting, std::optional<double> candidate_us) {
  if (!candidate_us || (best_us_ && *candidate_us >= *best_us_)) return;
  const Indexes indexes = IndexesOf(setting);
  if (best_us_) {
    for (size_t i = 0; i < indexes.size(); ++i) {
      if (indexes[i] != best_[i]) first_knob_ = i;
    }
  }
  best_ = indexes;
  best_us_ = candidate_us;
}

KnobSetting SettingChooser::SettingOf(const Indexes& indexes) const {
  KnobSetting setting;
  for (size_t i = 0; i < knobs_.size(); ++i)
    setting.emplace_back(knobs_[i].name, knobs_[i].values[indexes[i]]);
  return setting;
}

SettingChooser::Indexes SettingChooser::IndexesOf(const KnobSetting& setting) const {
  Indexes indexes;
  for (size_t i = 0; i < knobs_.size(); ++i) {
    const std::vector<int64_t>& values = knobs_[i].values;
    indexes.push_back(
        static_cast<size_t>(std::find(values.begin(), values.end(), setting.at(i).second) - values.begin()));
  }
  return indexes;
}

}  // namespace kevin
