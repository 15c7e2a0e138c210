#include "policies/search/choose.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

namespace kevin::search {
namespace {

constexpr double kJumpChance = 0.15;
constexpr const char* kSeveral = "Several knobs at once, each at a value that is not known to be slow.";
constexpr double kNoEffect = 0.02;           // |log ratio|: not more than noise
constexpr double kShareAfterNoEffect = 0.7;  // what a move without effect leaves of a stage's share by counts

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

// What moves of one knob by itself did.
struct Moves {
  double influence = 0;  // the largest |log ratio|
  int without_effect = 0;
};

std::map<std::string, Moves> MovesOf(const std::vector<Knob>& knobs, const std::vector<Tried>& tried) {
  std::map<std::string, Moves> moves;
  for (const Knob& knob : knobs) moves[knob.name];
  for (size_t i = 0; i < tried.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (!tried[i].speedup || !tried[j].speedup || Differences(tried[i].setting, tried[j].setting) != 1)
        continue;
      for (auto& [name, of_knob] : moves) {
        if (tried[i].setting.at(name) == tried[j].setting.at(name)) continue;
        const double change = std::fabs(std::log(*tried[i].speedup / *tried[j].speedup));
        of_knob.influence = std::max(of_knob.influence, change);
        of_knob.without_effect += change < kNoEffect;
      }
    }
  }
  return moves;
}

std::vector<double> SharesAfter(const std::vector<Knob>& knobs, const std::map<std::string, Moves>& moves,
                                const std::vector<double>& by_counts) {
  std::vector<double> shares = by_counts;
  for (const Knob& knob : knobs) {
    if (knob.stage < 0 || static_cast<size_t>(knob.stage) >= shares.size()) continue;
    double& share = shares[static_cast<size_t>(knob.stage)];
    share *= std::pow(kShareAfterNoEffect, moves.at(knob.name).without_effect);
  }
  for (const Knob& knob : knobs) {
    if (knob.stage < 0 || static_cast<size_t>(knob.stage) >= shares.size()) continue;
    double& share = shares[static_cast<size_t>(knob.stage)];
    share = std::max(share, 1 - std::exp(-moves.at(knob.name).influence));
  }
  return shares;
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

class Chooser {
 public:
  Chooser(const std::vector<Knob>& knobs, const std::vector<Tried>& tried, const Guidance& guidance,
          uint64_t seed)
      : knobs_(knobs),
        tried_(tried),
        guidance_(guidance),
        seed_(seed),
        moves_(MovesOf(knobs, tried)),
        shares_(SharesAfter(knobs, moves_, guidance.shares)),
        fastest_(Fastest(tried)),
        base_(fastest_ ? fastest_->setting : FirstText()) {}

  Choice Next() const {
    for (const Suggestion& one : guidance_.experience.suggestions) {
      if (!IsKnown(one.setting)) return Suggested(one);
    }
    const bool is_asked = texts_ == 0 || !guidance_.experience.suggestions.empty();
    if (const Setting first = FirstValues(knobs_); is_asked && !IsKnown(first)) return First(first);
    if (fastest_ && texts_ > knobs_.size() && Uniform(seed_, 1000 * tried_.size()) < kJumpChance) {
      if (const std::optional<Setting> setting = Jump()) return Jumped(*setting, kSeveral);
    }
    if (const std::optional<Choice> step = Step()) return *step;
    if (const std::optional<Setting> setting = Jump()) return Jumped(*setting, kSeveral);
    if (const std::optional<Setting> setting = Remaining())
      return Jumped(*setting, "What promised more was tried.");
    return {base_, "Every setting was tried.", "", false};
  }

 private:
  // --- What is said of a choice ---

  std::string FastestText() const {
    return fastest_ ? fmt::format("the fastest setting so far ({:.3f}x)", *fastest_->speedup)
                    : "the first setting, as none worked so far";
  }

  Choice Suggested(const Suggestion& one) const {
    const std::string why = fmt::format("It was the fastest on {}.", one.origin);
    const std::string difference = Differing(knobs_, FirstValues(knobs_), one.setting);
    return {one.setting, "The setting is taken from a similar problem. " + why,
            (difference.empty() ? "The first values of all knobs, as on a similar problem. "
                                : fmt::format("Against the first values: {}. ", difference)) +
                why,
            true};
  }

  Choice First(const Setting& setting) const {
    if (texts_ == 0) {
      return {setting, "No setting was measured yet, so this is the one that usually does best.",
              "The first setting of these stages: the values that usually do best.", true};
    }
    return {setting, "These are the values that usually do best, beside those of similar problems.",
            fmt::format("Against {}: {}, the values that usually do best.", FastestText(),
                        Differing(knobs_, base_, setting)),
            true};
  }

  Choice Jumped(const Setting& setting, const std::string& why) const {
    return {setting, fmt::format("This is a jump away from {}.", FastestText()),
            fmt::format("Against {}: {}. {}", FastestText(), Differing(knobs_, base_, setting), why), true};
  }

  Choice Stepped(size_t k, const Setting& setting) const {
    const std::string why = WhyKnob(k);
    return {setting, fmt::format("This is a step away from {}: {}.", FastestText(), why),
            fmt::format("Against {}: {}. Why this knob: {}.", FastestText(),
                        Differing(knobs_, base_, setting), why),
            true};
  }

  std::string WhyKnob(size_t k) const {
    const Knob& knob = knobs_[k];
    const double here = moves_.at(knob.name).influence, there = ElsewhereOf(knob.name);
    if (here >= kNoEffect)
      return fmt::format("alone it has changed the time by {:.0f} %", 100 * std::expm1(here));
    if (there >= kNoEffect)
      return fmt::format("on similar problems it changed the time by {:.0f} %", 100 * std::expm1(there));
    const bool has_stage = knob.stage >= 0 && static_cast<size_t>(knob.stage) < guidance_.stages.size() &&
                           static_cast<size_t>(knob.stage) < shares_.size();
    if (!has_stage) return "those of larger effect were tried";
    const size_t stage = static_cast<size_t>(knob.stage);
    return fmt::format("it belongs to `{}`, which takes {:.0f} % of the time by its {}",
                       guidance_.stages[stage], 100 * shares_[stage],
                       shares_[stage] == guidance_.shares[stage] ? "counts of work"
                                                                 : "counts of work and the results so far");
  }

  // --- The choice ---

  Setting FirstText() const {
    for (const Tried& one : tried_) {
      if (one.was_text) return one.setting;
    }
    return FirstValues(knobs_);
  }

  bool WasText(const Setting& setting) const {
    return std::any_of(tried_.begin(), tried_.end(),
                       [&](const Tried& one) { return one.was_text && one.setting == setting; });
  }

  // A text had it, or one whose other knobs the environment moves, or a trial did.
  bool IsKnown(const Setting& setting) const {
    return std::any_of(tried_.begin(), tried_.end(), [&](const Tried& one) {
      if (one.setting == setting) return true;
      return one.was_text && guidance_.searches_in_text &&
             std::all_of(knobs_.begin(), knobs_.end(), [&](const Knob& knob) {
               return knob.in_text || one.setting.at(knob.name) == setting.at(knob.name);
             });
    });
  }

  double ElsewhereOf(const std::string& knob) const {
    const auto found = guidance_.experience.influence.find(knob);
    return found == guidance_.experience.influence.end() ? 0 : found->second;
  }

  // The move of one knob from the base with the smallest rank.
  std::optional<Choice> Step() const {
    std::optional<Setting> best;
    size_t best_knob = 0;
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
        best_knob = k;
        best_rank = rank;
      }
    }
    if (!best) return std::nullopt;
    return Stepped(best_knob, *best);
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
    rank -= 20 * std::min(std::max(moves_.at(knob.name).influence, ElsewhereOf(knob.name)), 0.3);
    if (knob.in_text && guidance_.searches_in_text) rank += 10;
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

  // Where moves and jumps are used up: of all settings, at most kMostSettings, the one whose values did best by
  // themselves.
  std::optional<Setting> Remaining() const {
    constexpr size_t kMostSettings = 1 << 14;
    std::map<std::pair<std::string, int64_t>, double> scores;
    for (const Knob& knob : knobs_) {
      for (const int64_t value : knob.values) {
        const Evidence evidence = EvidenceOf(knob.name, value, tried_);
        scores[{knob.name, value}] = evidence.best > 0 ? std::log(evidence.best) : evidence.failed ? -100 : 0;
      }
    }
    std::set<Setting> texts;
    for (const Tried& one : tried_) {
      if (one.was_text) texts.insert(one.setting);
    }
    std::optional<Setting> best;
    double best_score = 0;
    std::vector<size_t> digits(knobs_.size());
    for (size_t number = 0; number < kMostSettings; ++number) {
      Setting setting;
      double score = Uniform(seed_, number) * 1e-6;
      for (size_t k = 0; k < knobs_.size(); ++k) {
        const int64_t value = knobs_[k].values[digits[k]];
        setting[knobs_[k].name] = value;
        score += scores.at({knobs_[k].name, value});
      }
      if (texts.count(setting) == 0 && (!best || score > best_score)) {
        best = setting;
        best_score = score;
      }
      size_t k = 0;
      while (k < digits.size() && ++digits[k] == knobs_[k].values.size()) digits[k++] = 0;
      if (k == digits.size()) break;
    }
    return best;
  }

  const std::vector<Knob>& knobs_;
  const std::vector<Tried>& tried_;
  const Guidance& guidance_;
  uint64_t seed_;
  std::map<std::string, Moves> moves_;
  std::vector<double> shares_;
  size_t texts_ = static_cast<size_t>(
      std::count_if(tried_.begin(), tried_.end(), [](const Tried& one) { return one.was_text; }));
  const Tried* fastest_ = nullptr;
  Setting base_;
};

}  // namespace

std::vector<double> SharesByResults(const std::vector<Knob>& knobs, const std::vector<Tried>& tried,
                                    const std::vector<double>& by_counts) {
  return SharesAfter(knobs, MovesOf(knobs, tried), by_counts);
}

Choice ChooseNext(const std::vector<Knob>& knobs, const std::vector<Tried>& tried, const Guidance& guidance,
                  uint64_t seed) {
  return Chooser(knobs, tried, guidance, seed).Next();
}

}  // namespace kevin::search
