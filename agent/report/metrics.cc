#include "agent/report/metrics.h"

#include <fmt/format.h>

#include <algorithm>

#include "agent/report/accumulator.h"
#include "agent/report/estimators.h"

namespace kevin {
namespace report {

void Accumulator::Add(std::span<const SideEpisode* const> episodes, std::vector<double>& values) {
  double turns = 0, compiled = 0, correct = 0;
  for (const SideEpisode* e : episodes) {
    turns += e->turns, compiled += e->compiled, correct += e->correct;
    sums_[kSecondsPerSolved] += e->seconds, sums_[kDevicePerSolved] += e->device_s;
    sums_[kPromptPerSolved] += e->prompt_tokens, sums_[kCompletionPerSolved] += e->completion_tokens;
    sums_[kMoneyPerSolved] += e->cost_usd;
  }
  if (turns > 0) Count(kCompiled, compiled / turns), Count(kCorrect, correct / turns);
  AddAverages(values);
  std::sort(values.begin(), values.end());
  AddBest(values);
}

std::vector<double> Accumulator::Finish() {
  const double solved = sums_[kSolvedBest];
  for (const size_t slot :
       {kSecondsPerSolved, kDevicePerSolved, kPromptPerSolved, kCompletionPerSolved, kMoneyPerSolved})
    counts_[slot] = sums_[slot] > 0 ? solved : 0;
  for (size_t slot = kBestAtK; slot < sums_.size(); ++slot) {
    if (counts_[slot] < counts_[kMeanBest]) counts_[slot] = 0;  // some problem has fewer episodes
  }
  std::vector<double> metrics(sums_.size(), kNotKnown);
  for (size_t i = 0; i < sums_.size(); ++i) {
    if (counts_[i] > 0) metrics[i] = sums_[i] / counts_[i];
  }
  for (const size_t slot : {kGeomean, kGeomeanCorrect, kGeomeanBest, kGeomeanCorrectBest})
    metrics[slot] = std::exp(metrics[slot]);
  return metrics;
}

void Accumulator::AddAverages(const std::vector<double>& values) {
  double right = 0, sum = 0, logs = 0;
  std::array<double, kFast> above{};
  for (const double v : values) {
    if (v <= 0) continue;
    right++, sum += v, logs += std::log(v);
    for (size_t p = 0; p < kFast; ++p) above[p] += v > kFastThresholds[p];
  }
  const auto n = static_cast<double>(values.size());
  Count(kSolvedAvg, right / n);
  for (size_t p = 0; p < kFast; ++p) Count(kFastAvg + p, above[p] / n);
  Count(kMeanAvg, sum / n), Count(kGeomean, logs / n);
  if (right > 0) Count(kMeanCorrect, sum / right), Count(kGeomeanCorrect, logs / right);
}

void Accumulator::AddBest(const std::vector<double>& ascending) {
  const double best = ascending.back();
  Count(kSolvedBest, best > 0);
  for (size_t p = 0; p < kFast; ++p) Count(kFastBest + p, best > kFastThresholds[p]);
  Count(kMeanBest, best), Count(kGeomeanBest, best > 0 ? std::log(best) : 0);
  if (best > 0) Count(kGeomeanCorrectBest, std::log(best));
  const auto n = static_cast<int64_t>(ascending.size());
  const auto right = ascending.end() - std::upper_bound(ascending.begin(), ascending.end(), 0.0);
  for (size_t i = 0; i < k_values_.size() && k_values_[i] <= n; ++i) {
    Count(kBestAtK + i, BestAtK(ascending, k_values_[i]));
    Count(kBestAtK + k_values_.size() + i, PassAtK(n, right, k_values_[i]));
  }
}

}  // namespace report

std::vector<int> KValues(std::span<const Side> sides) {
  size_t most = 1;
  for (const Side& side : sides) {
    for (const SideProblem& problem : side.problems) most = std::max(most, problem.episodes.size());
  }
  std::vector<int> values;
  for (size_t k = 1; k <= most && k <= 4096; k *= 2) values.push_back(static_cast<int>(k));
  return values;
}

std::vector<MetricSpec> MetricList(const std::vector<int>& k_values) {
  using Unit = MetricUnit;
  std::vector<MetricSpec> list = {{"compiled", "turns that compile"},
                                  {"correct", "turns that are right"},
                                  {"solved_avg", "episodes with a right kernel"}};
  for (const double p : kFastThresholds)
    list.push_back({fmt::format("fast_{:g}_avg", p), fmt::format("fast_{:g}, of episodes", p)});
  list.push_back({"mean_avg", "mean speed-up, failures 0", Unit::kRatio});
  list.push_back({"mean_correct", "mean speed-up, right ones", Unit::kRatio});
  list.push_back({"geomean_avg", "geometric mean, failures 1x", Unit::kRatio});
  list.push_back({"geomean_correct", "geometric mean, right ones", Unit::kRatio});
  list.push_back({"solved_best", "problems solved"});
  for (const double p : kFastThresholds)
    list.push_back({fmt::format("fast_{:g}_best", p), fmt::format("fast_{:g}, of problems", p)});
  list.push_back({"mean_best", "best of each problem: mean, failures 0", Unit::kRatio});
  list.push_back({"geomean_best", "best of each problem: geometric mean, failures 1x", Unit::kRatio});
  list.push_back({"geomean_correct_best", "best of each problem: geometric mean, solved ones", Unit::kRatio});
  list.push_back({"seconds_per_solved", "wall seconds per solved problem", Unit::kSeconds, false});
  list.push_back({"device_s_per_solved", "GPU seconds per solved problem", Unit::kSeconds, false});
  list.push_back({"prompt_tokens_per_solved", "prompt tokens per solved problem", Unit::kCount, false});
  list.push_back(
      {"completion_tokens_per_solved", "completion tokens per solved problem", Unit::kCount, false});
  list.push_back({"usd_per_solved", "US dollars per solved problem", Unit::kDollars, false});
  for (const int k : k_values)
    list.push_back(
        {fmt::format("best@{}", k), fmt::format("best@{}: mean speed-up, failures 0", k), Unit::kRatio});
  for (const int k : k_values) list.push_back({fmt::format("pass@{}", k), fmt::format("pass@{}", k)});
  for (MetricSpec& spec : list) {
    for (const char* name :
         {"correct", "solved_avg", "fast_1_avg", "mean_avg", "geomean_avg", "geomean_best"})
      spec.is_tested |= spec.name == name;
  }
  return list;
}

std::vector<double> Metrics(const Side& side, std::span<const size_t> problems,
                            const std::vector<int>& k_values) {
  report::Accumulator accumulator(k_values);
  std::vector<const SideEpisode*> all;
  std::vector<double> values;
  for (const size_t index : problems) {
    all.clear(), values.clear();
    for (const SideEpisode& e : side.problems[index].episodes) all.push_back(&e), values.push_back(e.value);
    accumulator.Add(all, values);
  }
  return accumulator.Finish();
}

}  // namespace kevin
