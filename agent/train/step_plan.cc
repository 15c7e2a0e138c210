#include "agent/train/step_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <regex>
#include <set>

#include "env/error.h"

namespace kevin {
namespace {

constexpr double kLeastWeight = 0.05;

[[noreturn]] void RefuseSchedule(const std::string& text, const std::string& why) {
  throw Error(ExitCode::kBadRequest, fmt::format("--max-tokens-schedule {}: {}", text, why),
              "write steps with the most tokens of a reply from there on: 1:16384,31:22528");
}

// In (0, 1).
double UniformOf(uint64_t seed, uint64_t draw, size_t problem) {
  uint64_t x = seed * 0x9E3779B97F4A7C15u + draw * 0xBF58476D1CE4E5B9u + problem + 1;
  for (const int shift : {30, 27, 31}) x = (x ^ x >> shift) * 0x94D049BB133111EBu;
  return (static_cast<double>(x >> 11) + 0.5) * 0x1p-53;
}

}  // namespace

LengthSchedule::LengthSchedule(const std::string& text) {
  static const std::regex kEntry(R"((\d{1,9}):(\d{1,9}))");
  for (size_t start = 0; start <= text.size();) {
    const size_t end = std::min(text.find(',', start), text.size());
    const std::string entry = text.substr(start, end - start);
    std::smatch parts;
    if (!std::regex_match(entry, parts, kEntry))
      RefuseSchedule(text, fmt::format("\"{}\" is no entry", entry));
    caps_.emplace_back(std::stoll(parts[1]), std::stoi(parts[2]));
    start = end + 1;
  }
  if (caps_.front().first != 1 || caps_.front().second < 1)
    RefuseSchedule(text, "it does not begin at step 1");
  for (size_t i = 1; i < caps_.size(); ++i) {
    if (caps_[i].first <= caps_[i - 1].first || caps_[i].second <= caps_[i - 1].second)
      RefuseSchedule(text, "steps and tokens must ascend");
  }
}

int LengthSchedule::At(int64_t step) const {
  const auto next =
      std::find_if(caps_.begin() + 1, caps_.end(), [&](const auto& cap) { return cap.first > step; });
  return std::prev(next)->second;
}

SolveRates SolveRatesOf(const LearnTurns& turns) {
  std::map<std::string, std::pair<int64_t, int64_t>> counts;  // correct, all
  for (const LearnTurn& turn : turns.turns()) {
    auto& [correct, all] = counts[turn.problem->id];
    correct += turn.correct, ++all;
  }
  SolveRates rates;
  for (const auto& [problem, count] : counts)
    rates[problem] = static_cast<double>(count.first) / static_cast<double>(count.second);
  return rates;
}

std::vector<std::string> DrawProblems(const std::vector<std::string>& problems, const SolveRates& rates,
                                      size_t count, uint64_t seed, uint64_t draw) {
  // The largest of u^(1/w) form a draw without replacement with weights w (Efraimidis and Spirakis, 2006).
  std::vector<std::pair<double, size_t>> keys;
  for (size_t i = 0; i < problems.size(); ++i) {
    const auto rate = rates.find(problems[i]);
    const double p = rate == rates.end() ? 0.5 : rate->second;
    keys.emplace_back(std::log(UniformOf(seed, draw, i)) / std::max(kLeastWeight, 4 * p * (1 - p)), i);
  }
  std::sort(keys.rbegin(), keys.rend());
  keys.resize(std::min(count, keys.size()));
  std::vector<std::string> drawn;
  for (const auto& [key, i] : keys) drawn.push_back(problems[i]);
  return drawn;
}

int64_t FlatTasks(const LearnTurns& turns) {
  std::set<int> all, different;
  for (const LearnTurn& turn : turns.turns()) {
    all.insert(turn.task);
    if (turn.attribution.advantage != 0) different.insert(turn.task);
  }
  return static_cast<int64_t>(all.size() - different.size());
}

int64_t ParkedTasks(const std::vector<std::string>& problems, const LearnTurns& turns) {
  std::set<std::string> there;
  for (const LearnTurn& turn : turns.turns()) there.insert(turn.problem->id);
  return std::ranges::count_if(problems, [&](const std::string& id) { return !there.contains(id); });
}

}  // namespace kevin
