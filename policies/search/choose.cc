#include "policies/search/choose.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <sstream>

namespace kevin::search {
namespace {

constexpr const char* kMark = "// search:";
constexpr double kJumpChance = 0.15;
constexpr size_t kWordsPerLine = 8;

// 0 to 1, equal for equal arguments.
double Uniform(uint64_t seed, uint64_t number) {
  uint64_t z = seed + 0x9e3779b97f4a7c15ULL * (number + 1);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

Setting FirstValues(const std::vector<Knob>& knobs) {
  Setting setting;
  for (const Knob& knob : knobs) setting[knob.name] = knob.values.at(0);
  return setting;
}

bool IsValid(const Knob& knob, int64_t value) {
  return std::find(knob.values.begin(), knob.values.end(), value) != knob.values.end();
}

// The constant that stands in the text for a knob; nullopt where there is none.
std::optional<int64_t> ConstantIn(const std::string& source, const std::string& name) {
  const std::string start = fmt::format("constexpr int {} = ", name);
  const size_t at = source.find(start);
  if (at == std::string::npos) return std::nullopt;
  return std::strtoll(source.c_str() + at + start.size(), nullptr, 10);
}

std::optional<Setting> ReadSetting(const std::vector<Knob>& knobs, const std::string& source) {
  std::map<std::string, int64_t> read;
  bool found = false;
  std::istringstream lines(source);
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind(kMark, 0) != 0) continue;
    found = true;
    std::istringstream words(line.substr(std::string(kMark).size()));
    for (std::string word; words >> word;) {
      const size_t equals = word.find('=');
      if (equals != std::string::npos)
        read[word.substr(0, equals)] = std::strtoll(word.c_str() + equals + 1, nullptr, 10);
    }
  }
  if (!found) return std::nullopt;
  Setting setting;
  for (const Knob& knob : knobs) {
    std::optional<int64_t> value = knob.in_text ? ConstantIn(source, knob.name) : std::nullopt;
    if (!value && read.count(knob.name)) value = read[knob.name];
    if (!value || !IsValid(knob, *value)) return std::nullopt;
    setting[knob.name] = *value;
  }
  return setting;
}

const Tried* Fastest(const std::vector<Tried>& tried) {
  const Tried* best = nullptr;
  for (const Tried& one : tried) {
    if (one.speedup && one.was_text && (!best || *one.speedup > *best->speedup)) best = &one;
  }
  return best;
}

int Differences(const Setting& a, const Setting& b) {
  int count = 0;
  for (const auto& [name, value] : a) count += b.at(name) != value;
  return count;
}

// How much the time changed where only this knob differed: the largest |log ratio|.
double Influence(const std::string& name, const std::vector<Tried>& tried) {
  double most = 0;
  for (size_t i = 0; i < tried.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!tried[i].speedup || !tried[j].speedup || tried[i].setting.at(name) == tried[j].setting.at(name))
        continue;
      if (Differences(tried[i].setting, tried[j].setting) == 1)
        most = std::max(most, std::fabs(std::log(*tried[i].speedup / *tried[j].speedup)));
    }
  }
  return most;
}

// Evidence of one value: the best speed-up with it, and whether it occurred in failures only.
struct Evidence {
  double best = 0;
  bool failed = false;
};

Evidence EvidenceOf(const std::string& name, int64_t value, const std::vector<Tried>& tried) {
  Evidence evidence;
  for (const Tried& one : tried) {
    if (one.setting.at(name) != value) continue;
    evidence.failed |= !one.speedup;
    if (one.speedup) evidence.best = std::max(evidence.best, *one.speedup);
  }
  return evidence;
}

class Chooser {
 public:
  Chooser(const std::vector<Knob>& knobs, const std::vector<Tried>& tried, const std::vector<double>& shares,
          bool searches_in_text, uint64_t seed)
      : knobs_(knobs), tried_(tried), shares_(shares), searches_in_text_(searches_in_text), seed_(seed) {
    fastest_ = Fastest(tried);
    base_ = fastest_ ? fastest_->setting : tried.empty() ? FirstValues(knobs) : FirstText();
    for (const Knob& knob : knobs) influence_[knob.name] = Influence(knob.name, tried);
  }

  std::optional<Setting> Next(bool* jumps) {
    *jumps = fastest_ && texts_ > knobs_.size() && Uniform(seed_, 1000 * tried_.size()) < kJumpChance;
    if (*jumps) {
      if (const std::optional<Setting> setting = Jump()) return setting;
      *jumps = false;
    }
    std::optional<Setting> best;
    double best_rank = 0;
    uint64_t number = 0;
    for (size_t k = 0; k < knobs_.size(); ++k) {
      for (const int64_t value : knobs_[k].values) {
        ++number;
        Setting setting = base_;
        setting[knobs_[k].name] = value;
        if (WasText(setting)) continue;
        const double rank = Rank(k, value) + Uniform(seed_, 7919 * tried_.size() + number);
        if (best && rank >= best_rank) continue;
        best = setting;
        best_rank = rank;
      }
    }
    return best ? best : Jump();
  }

  const Tried* fastest() const { return fastest_; }
  const Setting& base() const { return base_; }

 private:
  Setting FirstText() {
    for (const Tried& one : tried_) {
      if (one.was_text) return one.setting;
    }
    return FirstValues(knobs_);
  }

  bool WasText(const Setting& setting) const {
    return std::any_of(tried_.begin(), tried_.end(),
                       [&](const Tried& one) { return one.was_text && one.setting == setting; });
  }

  // Small for promising moves.
  double Rank(size_t k, int64_t value) const {
    const Knob& knob = knobs_[k];
    const auto place = [&](int64_t v) {
      return static_cast<double>(std::find(knob.values.begin(), knob.values.end(), v) - knob.values.begin());
    };
    double share = 1;
    if (knob.stage >= 0 && static_cast<size_t>(knob.stage) < shares_.size())
      share = shares_[static_cast<size_t>(knob.stage)];
    double rank = 0.5 * static_cast<double>(k) + 6 * (1 - share);
    rank += 1.5 * (std::fabs(place(value) - place(base_.at(knob.name))) - 1);
    rank -= 20 * std::min(influence_.at(knob.name), 0.3);
    if (knob.in_text && searches_in_text_) rank += 10;
    const Evidence evidence = EvidenceOf(knob.name, value, tried_);
    if (evidence.failed && evidence.best == 0) rank += 1000;
    // 5 % behind: two steps later.
    if (fastest_ && evidence.best > 0)
      rank += 40 * std::max(0.0, std::log(*fastest_->speedup / evidence.best));
    return rank;
  }

  // Two to four knobs at once, to values that are not known to be bad.
  std::optional<Setting> Jump() const {
    constexpr uint64_t kTries = 200;
    if (knobs_.empty()) return std::nullopt;
    for (uint64_t attempt = 0; attempt < kTries; ++attempt) {
      Setting setting = base_;
      const uint64_t number = 31 * tried_.size() + 1009 * attempt;
      const int moves = 2 + static_cast<int>(3 * Uniform(seed_, number));
      for (int i = 0; i < moves; ++i) {
        const uint64_t at = number + 2 * static_cast<uint64_t>(i) + 1;
        const Knob& knob =
            knobs_[static_cast<size_t>(Uniform(seed_, at) * static_cast<double>(knobs_.size()))];
        const int64_t value = knob.values[static_cast<size_t>(Uniform(seed_, at + 1) *
                                                              static_cast<double>(knob.values.size()))];
        const Evidence evidence = EvidenceOf(knob.name, value, tried_);
        if (evidence.failed && evidence.best == 0) continue;
        if (fastest_ && evidence.best > 0 && evidence.best < 0.8 * *fastest_->speedup) continue;
        setting[knob.name] = value;
      }
      if (!WasText(setting)) return setting;
    }
    return std::nullopt;
  }

  const std::vector<Knob>& knobs_;
  const std::vector<Tried>& tried_;
  const std::vector<double>& shares_;
  bool searches_in_text_;
  uint64_t seed_;
  size_t texts_ = static_cast<size_t>(
      std::count_if(tried_.begin(), tried_.end(), [](const Tried& one) { return one.was_text; }));
  const Tried* fastest_ = nullptr;
  Setting base_;
  std::map<std::string, double> influence_;
};

std::string Differing(const std::vector<Knob>& knobs, const Setting& from, const Setting& to) {
  std::string text;
  for (const Knob& knob : knobs) {
    const int64_t before = from.at(knob.name), after = to.at(knob.name);
    if (before == after) continue;
    text += fmt::format("{}{} ({}) {} instead of {}", text.empty() ? "" : ", ", knob.name, knob.what, after,
                        before);
  }
  return text;
}

}  // namespace

std::vector<Tried> ReadAttempts(const std::vector<Knob>& knobs, const std::vector<TaskAttempt>& attempts) {
  std::vector<Tried> tried;
  for (const TaskAttempt& attempt : attempts) {
    const std::optional<Setting> setting = ReadSetting(knobs, attempt.source);
    if (!setting) continue;
    const bool measured = attempt.outcome == "measured" && attempt.speedup.has_value();
    tried.push_back({*setting, measured ? attempt.speedup : std::nullopt, true});
    double chosen_us = 0;
    for (const KnobTrial& trial : attempt.trials) {
      if (trial.chosen && trial.candidate_us) chosen_us = *trial.candidate_us;
    }
    for (const KnobTrial& trial : attempt.trials) {
      Setting one = *setting;
      bool fits = !trial.chosen;
      for (const auto& [name, value] : trial.setting) {
        const auto knob =
            std::find_if(knobs.begin(), knobs.end(), [&](const Knob& k) { return k.name == name; });
        fits = fits && knob != knobs.end() && IsValid(*knob, value);
        if (fits) one[name] = value;
      }
      if (!fits) continue;
      std::optional<double> speedup;
      if (trial.candidate_us && chosen_us > 0 && measured)
        speedup = *attempt.speedup * chosen_us / *trial.candidate_us;
      tried.push_back({one, speedup, false});
    }
  }
  return tried;
}

Choice ChooseNext(const std::vector<Knob>& knobs, const std::vector<Tried>& tried,
                  const std::vector<double>& shares, bool searches_in_text, uint64_t seed) {
  if (std::none_of(tried.begin(), tried.end(), [](const Tried& one) { return one.was_text; })) {
    return {FirstValues(knobs), "No setting was measured yet, so this is the one that usually does best.",
            "It is the first setting of these stages.", true};
  }
  Chooser chooser(knobs, tried, shares, searches_in_text, seed);
  bool jumps = false;
  const std::optional<Setting> next = chooser.Next(&jumps);
  if (!next)
    return {chooser.base(), "Every setting was tried; this is the fastest of them again.", "Nothing changed.",
            false};
  std::string reason = "No setting worked so far.";
  if (chooser.fastest()) {
    reason = fmt::format("The fastest setting so far reached {:.3f}x. This one is {} it.",
                         *chooser.fastest()->speedup, jumps ? "a jump away from" : "a step away from");
  }
  return {*next, reason,
          fmt::format("Against the {} one: {}.", chooser.fastest() ? "fastest" : "first",
                      Differing(knobs, chooser.base(), *next)),
          true};
}

std::string KnobLines(const std::vector<Knob>& knobs, const Setting& setting, size_t declared) {
  std::string text, constants;
  size_t words = 0, lines = 0;
  for (const Knob& knob : knobs) {
    const int64_t value = setting.at(knob.name);
    if (words++ % kWordsPerLine == 0) text += (text.empty() ? "" : "\n") + std::string(kMark);
    text += fmt::format(" {}={}", knob.name, value);
    if (!knob.in_text) continue;
    if (lines >= declared || knob.values.size() < 2) {
      constants += fmt::format("constexpr int {} = {};  // {}\n", knob.name, value, knob.what);
      continue;
    }
    ++lines;
    constants += fmt::format("// knob {}: {}", knob.name, value);
    for (const int64_t other : knob.values) {
      if (other != value) constants += fmt::format(" {}", other);
    }
    constants += "\n";
  }
  if (text.empty()) text = std::string(kMark) + " no knobs";
  return text + "\n" + constants;
}

}  // namespace kevin::search
