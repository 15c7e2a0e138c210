#include "policies/search/resemble.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

namespace kevin::search {
namespace {

constexpr double kOfKind = 0.2, kOfWords = 0.5, kOfSize = 0.3;
constexpr double kMostUnlessEqual = 0.99;
constexpr size_t kMostSuggestions = 2;

bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsWord(char c) { return (c >= 'a' && c <= 'z') || c == '_' || c == '.'; }

// Of both bags of words, the share that the other has too.
double CommonWords(const std::map<std::string, int>& a, const std::map<std::string, int>& b) {
  int common = 0, all = 0;
  for (const auto& [word, count] : a) {
    all += count;
    const auto found = b.find(word);
    if (found != b.end()) common += 2 * std::min(count, found->second);
  }
  for (const auto& [word, count] : b) all += count;
  return all == 0 ? 1 : static_cast<double>(common) / all;
}

double OneWay(const ProgramTraits& from, const ProgramTraits& to) {
  double sum = 0;
  std::map<std::string, double> known;  // deep networks repeat their stages
  for (size_t i = 0; i < from.stages.size(); ++i) {
    const auto [at, is_new] = known.try_emplace(from.stages[i].form, 0);
    if (is_new) {
      for (const StageTraits& other : to.stages)
        at->second = std::max(at->second, Likeness(from.stages[i], other));
    }
    sum += from.shares.at(i) * at->second;
  }
  return sum;
}

// Values are compared by their ratio where both are positive: 64 is nearer to 128 than to 8.
double Distance(int64_t a, int64_t b) {
  if (a > 0 && b > 0) return std::fabs(std::log2(static_cast<double>(a) / static_cast<double>(b)));
  return 100 + std::fabs(static_cast<double>(a) - static_cast<double>(b));
}

int64_t NearestValue(const Knob& knob, int64_t wanted) {
  int64_t best = knob.values.at(0);
  double least = std::numeric_limits<double>::infinity();
  for (const int64_t value : knob.values) {
    const double distance = value == wanted ? -1 : Distance(value, wanted);
    if (distance >= least) continue;
    least = distance;
    best = value;
  }
  return best;
}

// By knob the index of its counterpart among the related ones; -1: none.
std::vector<int> Counterparts(const std::vector<Knob>& knobs, const std::vector<StageTraits>& stages,
                              const TaskRelated& related) {
  std::vector<int> counterparts;
  for (const Knob& knob : knobs) {
    int best = -1;
    double most = 0;
    for (size_t i = 0; i < related.knobs.size(); ++i) {
      const TaskRelatedKnob& other = related.knobs[i];
      if (other.role != knob.what || WithoutStageNumber(other.name) != WithoutStageNumber(knob.name))
        continue;
      const bool has_stage = knob.stage >= 0 && static_cast<size_t>(knob.stage) < stages.size();
      const double likeness = !has_stage || other.stage.empty()
                                  ? kLeastLikeness
                                  : Likeness(stages[static_cast<size_t>(knob.stage)], TraitsOf(other.stage));
      if (likeness < kLeastLikeness || likeness <= most) continue;
      most = likeness;
      best = static_cast<int>(i);
    }
    counterparts.push_back(best);
  }
  return counterparts;
}

// The largest |log ratio| of two results that differ in this knob alone.
double InfluenceIn(const TaskRelated& related, size_t knob) {
  double most = 0;
  for (const TaskRelatedResult& a : related.results) {
    for (const TaskRelatedResult& b : related.results) {
      if (a.speedup <= b.speedup || b.speedup <= 0 || a.values.at(knob) == b.values.at(knob)) continue;
      int differing = 0;
      for (size_t i = 0; i < a.values.size(); ++i) differing += a.values[i] != b.values.at(i);
      if (differing == 1) most = std::max(most, std::log(a.speedup / b.speedup));
    }
  }
  return most;
}

}  // namespace

StageTraits TraitsOf(const std::string& form) {
  StageTraits traits;
  traits.form = form;
  traits.kind = form.substr(0, form.find_first_not_of("0123456789"));
  std::string word;
  for (size_t i = 0; i <= form.size(); ++i) {
    if (i < form.size() && IsWord(form[i])) {
      word += form[i];
      continue;
    }
    if (!word.empty() && word != "v") ++traits.words[word];
    word.clear();
    // An extent stands behind a colon: "[0:128 1:64 ]".
    if (i + 1 < form.size() && form[i] == ':' && IsDigit(form[i + 1]))
      traits.log2_points += std::log2(std::max(1.0, std::strtod(form.c_str() + i + 1, nullptr)));
  }
  return traits;
}

double Likeness(const StageTraits& a, const StageTraits& b) {
  if (a.kind.empty() || a.kind != b.kind) return 0;
  if (a.form == b.form) return 1;
  const double size = std::exp2(-std::fabs(a.log2_points - b.log2_points) / 4);
  return std::min(kMostUnlessEqual, kOfKind + kOfWords * CommonWords(a.words, b.words) + kOfSize * size);
}

ProgramTraits TraitsOf(const Program& program, const std::vector<double>& shares) {
  ProgramTraits traits;
  for (const Stage* stage : LeafStages(program))
    traits.stages.push_back(TraitsOf(StageForm(program, *stage)));
  traits.shares = shares;
  return traits;
}

double Likeness(const ProgramTraits& a, const ProgramTraits& b) {
  if (a.stages.empty() || b.stages.empty()) return 0;
  return (OneWay(a, b) + OneWay(b, a)) / 2;
}

std::string WithoutStageNumber(const std::string& knob) {
  const size_t end = knob.find_last_not_of("0123456789");
  const bool has_number = end != std::string::npos && end > 0 && end + 1 < knob.size() && knob[end] == '_';
  return has_number ? knob.substr(0, end) : knob;
}

Experience ExperienceOf(const Program& program, const std::vector<Knob>& knobs,
                        const std::vector<TaskRelated>& related) {
  Experience experience;
  if (related.empty()) return experience;
  std::vector<StageTraits> stages;
  for (const Stage* stage : LeafStages(program)) stages.push_back(TraitsOf(StageForm(program, *stage)));
  std::set<Setting> seen;
  for (const TaskRelated& one : related) {
    const std::vector<int> counterparts = Counterparts(knobs, stages, one);
    if (std::all_of(counterparts.begin(), counterparts.end(), [](int i) { return i < 0; })) continue;
    for (size_t k = 0; k < knobs.size(); ++k) {
      if (counterparts[k] < 0) continue;
      double& influence = experience.influence[knobs[k].name];
      influence = std::max(influence, one.nearness * InfluenceIn(one, static_cast<size_t>(counterparts[k])));
    }
    if (experience.suggestions.size() == kMostSuggestions || one.results.empty()) continue;
    Suggestion suggestion;
    for (size_t k = 0; k < knobs.size(); ++k) {
      suggestion.setting[knobs[k].name] =
          counterparts[k] < 0
              ? knobs[k].values.at(0)
              : NearestValue(knobs[k], one.results[0].values.at(static_cast<size_t>(counterparts[k])));
    }
    suggestion.origin = fmt::format("{} ({:.0f} % alike)", one.problem, 100 * one.nearness);
    if (seen.insert(suggestion.setting).second) experience.suggestions.push_back(std::move(suggestion));
  }
  return experience;
}

}  // namespace kevin::search
