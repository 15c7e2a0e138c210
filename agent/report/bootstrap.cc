// The nested bootstrap behind the intervals and comparisons of report.h.

#include <algorithm>
#include <map>
#include <numeric>
#include <thread>

#include "agent/report/estimators.h"
#include "agent/report/report.h"

namespace kevin {
namespace {

using report::Accumulator;

// splitmix64, and standard normal numbers from a table: a report draws some ten million of them.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  uint64_t Next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
  }
  size_t Below(size_t n) { return static_cast<size_t>((Next() >> 32) * n >> 32); }
  double Normal() { return Table()[Next() & (kNormals - 1)]; }

 private:
  static constexpr size_t kNormals = 1 << 14;
  static const std::vector<double>& Table() {
    static const std::vector<double> kTable = [] {
      std::vector<double> table;
      for (size_t i = 0; i < kNormals; ++i)
        table.push_back(InverseNormal((static_cast<double>(i) + 0.5) / static_cast<double>(kNormals)));
      return table;
    }();
    return kTable;
  }
  static double InverseNormal(double p) {
    double low = -8, high = 8;
    for (int i = 0; i < 60; ++i) {
      const double middle = (low + high) / 2;
      (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
    }
    return (low + high) / 2;
  }

  uint64_t state_;
};

// One bootstrap replicate: episodes drawn again within each of `problems`, values moved by their errors.
std::vector<double> Redrawn(const Side& side, std::span<const size_t> problems,
                            const std::vector<int>& k_values, Random& random) {
  Accumulator accumulator(k_values);
  std::vector<const SideEpisode*> drawn;
  std::vector<double> values;
  for (const size_t index : problems) {
    const SideProblem& problem = side.problems[index];
    drawn.clear(), values.clear();
    for (size_t i = 0; i < problem.episodes.size(); ++i) {
      const SideEpisode& e = problem.episodes[random.Below(problem.episodes.size())];
      drawn.push_back(&e);
      values.push_back(e.value * std::exp(e.log_se * random.Normal()));
    }
    accumulator.Add(drawn, values);
  }
  return accumulator.Finish();
}

std::vector<size_t> Draw(std::span<const size_t> from, Random& random) {
  std::vector<size_t> drawn(from.size());
  for (size_t& d : drawn) d = from[random.Below(from.size())];
  return drawn;
}

// replicate(r) for all r, on all cores; each has a seed of its own, so that the result does not depend on
// their number.
template <typename Replicate>
std::vector<std::vector<double>> RunReplicates(int count, const Replicate& replicate) {
  std::vector<std::vector<double>> results(static_cast<size_t>(count));
  const size_t threads = std::clamp<size_t>(std::thread::hardware_concurrency(), 1, 16);
  std::vector<std::thread> workers;
  for (size_t w = 0; w < threads; ++w) {
    workers.emplace_back([&, w] {
      for (size_t r = w; r < results.size(); r += threads) results[r] = replicate(r);
    });
  }
  for (std::thread& worker : workers) worker.join();
  return results;
}

// One column, sorted, and shifted so that its mean is `value`: the largest of all episodes can only shrink
// when episodes are drawn again, and that bias is not part of the uncertainty.
std::vector<double> SortedColumn(const std::vector<std::vector<double>>& rows, size_t column, double value) {
  std::vector<double> values;
  double sum = 0;
  for (const std::vector<double>& row : rows) {
    if (std::isnan(row[column])) continue;
    values.push_back(row[column]);
    sum += row[column];
  }
  if (values.empty() || std::isnan(value)) return {};
  const double shift = value - sum / static_cast<double>(values.size());
  for (double& v : values) v += shift;
  std::sort(values.begin(), values.end());
  return values;
}

struct Limits {
  double low = -1e300, high = 1e300;
};
Limits LimitsOf(MetricUnit unit) { return {0, unit == MetricUnit::kShare ? 1 : 1e300}; }

Interval IntervalOf(double value, const std::vector<double>& ascending, double confidence, Limits limits) {
  if (ascending.empty()) return {value, kNotKnown, kNotKnown};
  const double tail = (1 - confidence) / 2;
  return {value, std::clamp(QuantileOfSorted(ascending, tail), limits.low, limits.high),
          std::clamp(QuantileOfSorted(ascending, 1 - tail), limits.low, limits.high)};
}

// Two-sided: how often the difference has the other sign, or none.
double PValueOf(const std::vector<double>& ascending) {
  const auto n = static_cast<double>(ascending.size());
  const auto at_most = std::upper_bound(ascending.begin(), ascending.end(), 0.0) - ascending.begin();
  const auto at_least = ascending.end() - std::lower_bound(ascending.begin(), ascending.end(), 0.0);
  return std::min(1.0, 2 * (static_cast<double>(std::min(at_most, at_least)) + 1) / (n + 1));
}

uint64_t SeedOf(const BootstrapOptions& options, size_t replicate) {
  return options.seed * 0x2545f4914f6cdd1du + replicate;
}

}  // namespace

std::vector<Interval> MetricIntervals(const Side& side, std::span<const size_t> problems,
                                      const std::vector<int>& k_values, const BootstrapOptions& options) {
  const auto rows = RunReplicates(options.replicates, [&](size_t r) {
    Random random(SeedOf(options, r));
    return Redrawn(side, Draw(problems, random), k_values, random);
  });
  const std::vector<double> values = Metrics(side, problems, k_values);
  std::vector<Interval> intervals;
  const std::vector<MetricSpec> specs = MetricList(k_values);
  for (size_t i = 0; i < values.size(); ++i)
    intervals.push_back(
        IntervalOf(values[i], SortedColumn(rows, i, values[i]), options.confidence, LimitsOf(specs[i].unit)));
  return intervals;
}

SideComparison Compare(const Side& base, const Side& other, const std::vector<int>& k_values,
                       const BootstrapOptions& options) {
  SideComparison result;
  std::map<std::string, size_t> of_other;
  for (size_t i = 0; i < other.problems.size(); ++i) of_other[other.problems[i].id] = i;
  std::vector<size_t> base_problems, other_problems, pairs;
  for (size_t i = 0; i < base.problems.size(); ++i) {
    const auto found = of_other.find(base.problems[i].id);
    if (found == of_other.end()) continue;
    pairs.push_back(base_problems.size());
    base_problems.push_back(i), other_problems.push_back(found->second);
    result.problems.push_back(found->first);
  }
  result.base = Metrics(base, base_problems, k_values);
  result.other = Metrics(other, other_problems, k_values);
  const auto rows = RunReplicates(pairs.empty() ? 0 : options.replicates, [&](size_t r) {
    Random random(SeedOf(options, r));
    std::vector<size_t> from_base, from_other;
    for (const size_t pair : Draw(pairs, random))
      from_base.push_back(base_problems[pair]), from_other.push_back(other_problems[pair]);
    std::vector<double> difference = Redrawn(other, from_other, k_values, random);
    const std::vector<double> subtract = Redrawn(base, from_base, k_values, random);
    for (size_t i = 0; i < difference.size(); ++i) difference[i] -= subtract[i];
    return difference;
  });
  const std::vector<MetricSpec> specs = MetricList(k_values);
  std::vector<double> p_values;
  std::vector<size_t> tested;
  for (size_t i = 0; i < result.base.size(); ++i) {
    const double difference = result.other[i] - result.base[i];
    const std::vector<double> column = SortedColumn(rows, i, difference);
    Difference d;
    d.difference = IntervalOf(difference, column, options.confidence, {});
    d.p_value = PValueOf(column);
    if (specs[i].is_tested && !column.empty()) tested.push_back(i), p_values.push_back(d.p_value);
    result.differences.push_back(d);
  }
  const std::vector<double> adjusted = HolmAdjusted(p_values);
  for (size_t i = 0; i < tested.size(); ++i) result.differences[tested[i]].p_adjusted = adjusted[i];
  return result;
}

std::vector<BudgetCell> BudgetTable(const Side& side, const BootstrapOptions& options) {
  std::vector<BudgetCell> cells;
  for (size_t power = 0; power < kTurnPowers; ++power) {
    for (int episodes = 1; episodes <= 4096; episodes *= 2) {
      std::vector<double> best, values;
      double solved = 0;
      for (const SideProblem& problem : side.problems) {
        values.clear();
        for (const SideEpisode& e : problem.episodes) {
          if (e.best_of_first[power] >= 0) values.push_back(static_cast<double>(e.best_of_first[power]));
        }
        if (values.size() < static_cast<size_t>(episodes)) continue;
        std::sort(values.begin(), values.end());
        const auto correct = values.end() - std::upper_bound(values.begin(), values.end(), 0.0);
        best.push_back(BestAtK(values, episodes));
        solved += PassAtK(static_cast<int64_t>(values.size()), correct, episodes);
      }
      if (best.empty()) break;
      BudgetCell cell;
      cell.turns = 1 << power, cell.episodes = episodes;
      cell.problems = static_cast<int64_t>(best.size());
      const auto n = static_cast<double>(best.size());
      cell.best = std::accumulate(best.begin(), best.end(), 0.0) / n;
      cell.solved = solved / n;
      std::vector<double> means;
      Random random(options.seed);
      for (int r = 0; r < options.replicates; ++r) {
        double sum = 0;
        for (size_t i = 0; i < best.size(); ++i) sum += best[random.Below(best.size())];
        means.push_back(sum / n);
      }
      std::sort(means.begin(), means.end());
      cell.best_interval = IntervalOf(cell.best, means, options.confidence, {});
      cells.push_back(cell);
    }
  }
  return cells;
}

}  // namespace kevin
