#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <sstream>

#include "policies/search/family.h"

namespace kevin::search {
namespace {

constexpr const char* kMark = "// search:";
constexpr double kJumpChance = 0.15;

struct Tried {
  Setting setting;
  bool measured = false;
  double speedup = 0;
};

// SplitMix64's finaliser: a fresh uniform number for each (seed, counter).
double Uniform(uint64_t seed, uint64_t counter) {
  uint64_t z = seed + (counter + 1) * 0x9e3779b97f4a7c15ULL;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return static_cast<double>((z ^ (z >> 31)) >> 11) * 0x1.0p-53;
}

Setting FirstSetting(const Kernel& kernel) {
  Setting setting;
  for (const Knob& knob : kernel.knobs) setting[knob.name] = knob.values[0];
  return setting;
}

std::vector<Tried> ReadAttempts(const Kernel& kernel, const std::vector<TaskAttempt>& attempts) {
  std::vector<Tried> tried;
  for (const TaskAttempt& attempt : attempts) {
    const std::optional<Setting> setting = ReadSetting(kernel, attempt.source);
    if (!setting) continue;
    tried.push_back({*setting, attempt.outcome == "measured" && attempt.speedup.has_value(),
                     attempt.speedup.value_or(0)});
  }
  return tried;
}

const Tried* Fastest(const std::vector<Tried>& tried) {
  const Tried* best = nullptr;
  for (const Tried& one : tried) {
    if (one.measured && (best == nullptr || one.speedup > best->speedup)) best = &one;
  }
  return best;
}

// The number of (knob, value) pairs of `setting` that occurred in failures and in no success.
int Suspects(const Setting& setting, const std::vector<Tried>& tried) {
  int suspects = 0;
  for (const auto& [knob, value] : setting) {
    bool failed = false, worked = false;
    for (const Tried& one : tried) {
      if (one.setting.at(knob) == value) (one.measured ? worked : failed) = true;
    }
    suspects += failed && !worked;
  }
  return suspects;
}

bool WasTried(const Setting& setting, const std::vector<Tried>& tried) {
  return std::any_of(tried.begin(), tried.end(), [&](const Tried& one) { return one.setting == setting; });
}

int Differences(const Setting& a, const Setting& b) {
  int count = 0;
  for (const auto& [knob, value] : a) count += b.at(knob) != value;
  return count;
}

// The rank of a move in the order of trying: knobs in their order, values by their distance from the current
// one.
double MoveRank(const Kernel& kernel, const Setting& from, const Setting& to) {
  double rank = 0;
  for (size_t k = 0; k < kernel.knobs.size(); ++k) {
    const Knob& knob = kernel.knobs[k];
    const auto place = [&](const Setting& setting) {
      return std::find(knob.values.begin(), knob.values.end(), setting.at(knob.name)) - knob.values.begin();
    };
    if (place(from) == place(to)) continue;
    rank += 1.0 + static_cast<double>(k) + 1.5 * static_cast<double>(std::abs(place(from) - place(to)) - 1);
  }
  return rank;
}

// The evidence against the values that `to` changes: how much slower the best kernel with each was than the
// fastest.
double Disappointment(const Tried& fastest, const Setting& to, const std::vector<Tried>& tried) {
  double total = 0;
  for (const auto& [knob, value] : to) {
    if (fastest.setting.at(knob) == value) continue;
    double best = 0;
    for (const Tried& one : tried) {
      if (one.measured && one.setting.at(knob) == value) best = std::max(best, one.speedup);
    }
    if (best > 0) total += 1.0 + 40.0 * std::log(fastest.speedup / best);  // 5 % behind: two more steps
  }
  return total;
}

void AllSettings(const Kernel& kernel, size_t at, Setting& setting, std::vector<Setting>& all) {
  if (at == kernel.knobs.size()) {
    all.push_back(setting);
    return;
  }
  for (const std::string& value : kernel.knobs[at].values) {
    setting[kernel.knobs[at].name] = value;
    AllSettings(kernel, at + 1, setting, all);
  }
}

std::string Differing(const Setting& from, const Setting& to) {
  std::string text;
  for (const auto& [knob, value] : to) {
    if (from.at(knob) == value) continue;
    text += fmt::format("{}{} {} instead of {}", text.empty() ? "" : ", ", knob, value, from.at(knob));
  }
  return text;
}

}  // namespace

std::string SettingLine(const Kernel& kernel, const Setting& setting) {
  std::string line = std::string(kMark) + " family=" + kernel.family;
  for (const Knob& knob : kernel.knobs) line += " " + knob.name + "=" + setting.at(knob.name);
  return line + "\n";
}

std::optional<Setting> ReadSetting(const Kernel& kernel, const std::string& source) {
  const size_t start = source.find(kMark);
  if (start == std::string::npos) return std::nullopt;
  std::istringstream words(
      source.substr(start + std::string(kMark).size(), source.find('\n', start) - start));
  Setting setting;
  std::string family;
  for (std::string word; words >> word;) {
    const size_t equals = word.find('=');
    if (equals == std::string::npos) continue;
    const std::string name = word.substr(0, equals), value = word.substr(equals + 1);
    (name == "family" ? family : setting[name]) = value;
  }
  if (family != kernel.family || setting.size() != kernel.knobs.size()) return std::nullopt;
  for (const Knob& knob : kernel.knobs) {
    const auto found = setting.find(knob.name);
    if (found == setting.end() ||
        std::find(knob.values.begin(), knob.values.end(), found->second) == knob.values.end()) {
      return std::nullopt;
    }
  }
  return setting;
}

Choice ChooseNext(const Kernel& kernel, const std::vector<TaskAttempt>& attempts, uint64_t seed) {
  const std::vector<Tried> tried = ReadAttempts(kernel, attempts);
  const Setting first = FirstSetting(kernel);
  if (tried.empty()) {
    return {first, "No schedule was measured yet, so this is the one that usually does best.",
            "It is the first schedule of the family."};
  }
  const Tried* fastest = Fastest(tried);
  const Setting& base = fastest ? fastest->setting : tried.back().setting;
  std::vector<Setting> all;
  Setting scratch;
  AllSettings(kernel, 0, scratch, all);
  const bool may_jump = fastest != nullptr && tried.size() > kernel.knobs.size();  // the near moves first
  const bool jumps = may_jump && Uniform(seed, 1000 * attempts.size()) < kJumpChance;
  const Setting* best = nullptr;
  double best_rank = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (WasTried(all[i], tried)) continue;
    const double noise = Uniform(seed, 1000 * attempts.size() + 1 + i);
    double rank = jumps ? 100 * noise : MoveRank(kernel, base, all[i]) + 2.0 * noise;
    rank += 1000.0 * Suspects(all[i], tried);
    if (fastest != nullptr) rank += Disappointment(*fastest, all[i], tried);
    if (!jumps) rank += 50.0 * std::max(0, Differences(base, all[i]) - 1);
    if (best == nullptr || rank < best_rank) {
      best = &all[i];
      best_rank = rank;
    }
  }
  if (best == nullptr) {
    return {base, "Every schedule of this family was tried; this is the fastest of them again.",
            "Nothing changed."};
  }
  const std::string known =
      fastest ? fmt::format("The fastest schedule so far reached {:.3f}x.", fastest->speedup)
              : "No schedule worked so far.";
  return {
      *best, known + (jumps ? " This one is a jump away from it." : " This one is a step away from it."),
      "Against the " + std::string(fastest ? "fastest" : "last") + " one: " + Differing(base, *best) + "."};
}

}  // namespace kevin::search
