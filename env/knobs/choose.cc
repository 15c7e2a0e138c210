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

bool SettingChooser::HasFailed(size_t knob, size_t value) const {
  const auto counts = counts_.find({knob, value});
  return counts != counts_.end() && counts->second.failed > 0 && counts->second.correct == 0;
}

std::optional<SettingChooser::Indexes> SettingChooser::Move() const {
  size_t most = 0;
  for (const DeclaredKnob& knob : knobs_) most = std::max(most, knob.values.size());
  for (size_t distance = 1; distance < most; ++distance) {
    for (size_t i = 0; i < knobs_.size(); ++i) {
      const size_t knob = (first_knob_ + i) % knobs_.size();
      const size_t from = best_[knob];
      for (const size_t to : {from + distance, from - distance}) {  // below 0 it is too large
        if (to >= knobs_[knob].values.size() || HasFailed(knob, to)) continue;
        Indexes moved = best_;
        moved[knob] = to;
        if (!chosen_.contains(moved)) return moved;
      }
    }
  }
  return std::nullopt;
}

SettingChooser::Indexes SettingChooser::AtPlace(int64_t place) const {
  Indexes indexes;
  for (const DeclaredKnob& knob : knobs_) {
    const auto values = static_cast<int64_t>(knob.values.size());
    indexes.push_back(static_cast<size_t>(place % values));
    place /= values;
  }
  return indexes;
}

// One is left. A few draws look for one without values that have failed.
SettingChooser::Indexes SettingChooser::Random() {
  constexpr int kDraws = 50;
  const int64_t count = CountSettings(knobs_);
  int64_t place = 0;
  for (int draw = 0; draw < kDraws; ++draw) {
    place = static_cast<int64_t>(random_() % static_cast<uint64_t>(count));
    const Indexes indexes = AtPlace(place);
    bool has_failed = false;
    for (size_t knob = 0; knob < indexes.size(); ++knob) has_failed |= HasFailed(knob, indexes[knob]);
    if (!has_failed && !chosen_.contains(indexes)) return indexes;
  }
  while (chosen_.contains(AtPlace(place))) place = (place + 1) % count;
  return AtPlace(place);
}

void SettingChooser::Report(const KnobSetting& setting, std::optional<double> candidate_us) {
  const Indexes indexes = IndexesOf(setting);
  for (size_t knob = 0; knob < indexes.size(); ++knob) {
    Counts& counts = counts_[{knob, indexes[knob]}];
    ++(candidate_us ? counts.correct : counts.failed);
  }
  if (!candidate_us || (best_us_ && *candidate_us >= *best_us_)) return;
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
