// How often the best kernel that an episode declares is the one with the shortest true time. Kernels of known times are
// "timed" by a simulated clock: eager PyTorch drifts between evaluations, each process has a bias of its own, each half
// of a pair has noise. Intervals come from env/verdict/estimate.h. Fixed seeds.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <random>

#include "agent/episode.h"
#include "env/verdict/estimate.h"
#include "tests/catch.h"
#include "tests/support/fakes.h"

namespace kevin {
namespace {

struct Noise {
  const char* name;
  double drift;    // of eager between evaluations, on the logarithm
  double process;  // of one process against the next
  double pair;     // of each half of a pair
};

constexpr Noise kQuiet{"quiet", 0.02, 0.008, 0.02}, kBusy{"busy", 0.10, 0.02, 0.08};
constexpr double kEager_us = 150;
constexpr int kProcesses = 3, kPairs = 8;

class SimulatedClock : public Environment {
 public:
  SimulatedClock(const Noise& noise, uint64_t seed) : noise_(noise), random_(seed) {}

  Evaluation EvaluateShape(const Problem& problem, const Candidate& candidate,
                           const EvaluateOptions& options) override {
    ++evaluations;
    const int pairs = options.confirm ? kPairs * 3 / 2 : kPairs;
    const double eager_us = kEager_us * std::exp(Normal(noise_.drift)), own_us = TimeOf(candidate.source);
    const bool has_rival = !options.start_source.empty();
    std::vector<std::vector<double>> against_eager(kProcesses), against_rival(kProcesses);
    for (int process = 0; process < kProcesses; ++process) {
      const double own = own_us * std::exp(Normal(noise_.process));
      const double rival = has_rival ? TimeOf(options.start_source) * std::exp(Normal(noise_.process)) : 0;
      for (int pair = 0; pair < pairs; ++pair) {
        const double us = own * std::exp(Normal(noise_.pair));
        against_eager[process].push_back(std::log(eager_us * std::exp(Normal(noise_.pair)) / us));
        if (has_rival) against_rival[process].push_back(std::log(rival * std::exp(Normal(noise_.pair)) / us));
      }
    }
    Measured measured;
    measured.speedup = EstimateRatio(against_eager);
    if (has_rival) measured.against_start = EstimateRatio(against_rival);
    measured.candidate_us = own_us, measured.reference_us = eager_us;
    Evaluation evaluation;
    evaluation.outcome = measured;
    evaluation.candidate_hash = Sha256Hex(candidate.kind + "\n" + candidate.source);
    evaluation.key = EvaluationKey(problem, candidate, options);
    evaluation.workload.size = options.workload.size;
    evaluation.device = facts_.device;
    return evaluation;
  }
  // Every evaluation is one of its own: nothing is answered from the store.
  std::string EvaluationKey(const Problem&, const Candidate& candidate, const EvaluateOptions&) override {
    return Sha256Hex(candidate.source + std::to_string(evaluations));
  }
  const EnvironmentFacts& Facts() const override { return facts_; }

  int evaluations = 0;

 private:
  static double TimeOf(const std::string& source) {
    return std::stod(source.substr(source.find("time ") + 5));
  }
  double Normal(double deviation) { return std::normal_distribution<double>(0, deviation)(random_); }

  const Noise noise_;
  std::mt19937_64 random_;
  EnvironmentFacts facts_{"cpu: simulated, 2 threads", "full", {"cpp"}, "small", ""};
};

std::string KernelOf(double us) {
  return fmt::format(
      "// time {}\nextern \"C\" void launch(const float* x, float* out) {{ out[0] = x[0]; }}\n", us);
}

// The fastest by 5 %; a policy tries them in random order.
std::vector<double> ShuffledTimes(uint64_t seed) {
  std::vector<double> times = {100, 105, 106, 108, 110, 115, 120, 130};
  std::mt19937_64 random(seed);
  std::shuffle(times.begin(), times.end(), random);
  return times;
}

struct Tally {
  int episodes = 0, found = 0;
  double evaluations = 0;
  double Share() const { return static_cast<double>(found) / episodes; }
};

void Episode(const Noise& noise, uint64_t seed, Tally* tally) {
  testing::TempFolder folder;
  const Problem problem = testing::ReluProblem();
  SimulatedClock clock(noise, seed);
  Store store = Store::Open(folder.path() / "kevin.db", OpenMode::kCreate);
  const std::vector<double> times = ShuffledTimes(seed);
  std::vector<std::string> replies;
  for (const double us : times) replies.push_back("```cpp\n" + KernelOf(us) + "```\n");
  testing::ScriptedPolicy policy(replies);
  EpisodeOptions options;
  options.turns = static_cast<int>(times.size());
  options.run = store.BeginRun({});
  options.output = folder.path() / "out";
  options.audit_rates = {0, 0};
  const EpisodeRecord episode = RunEpisode(problem, policy, clock, store, options, {}, nullptr);
  ++tally->episodes;
  tally->found += episode.best_turn && times[static_cast<size_t>(*episode.best_turn) - 1] == 100;
  tally->evaluations += clock.evaluations;
}

// Without comparisons in the same pairs: the largest reading is measured again, and the next ones as long as the
// confirmation falls below their readings; the largest confirmation is the best.
void EpisodeByReadings(const Noise& noise, uint64_t seed, Tally* tally) {
  const Problem problem = testing::ReluProblem();
  SimulatedClock clock(noise, seed);
  const auto read = [&](double us, bool confirm) {
    EvaluateOptions options;
    options.confirm = confirm;
    return std::get<Measured>(clock.Evaluate(problem, {"cpp", KernelOf(us)}, options).outcome).speedup.value;
  };
  std::vector<std::pair<double, double>> readings;  // reading, true time
  for (const double us : ShuffledTimes(seed)) readings.emplace_back(read(us, false), us);
  std::stable_sort(readings.begin(), readings.end(), std::greater<>());
  double best = 0, best_us = 0;
  int confirmed = 0;
  for (const auto& [reading, us] : readings) {
    if (confirmed == 3 || (confirmed > 0 && reading <= best)) break;
    const double again = read(us, true);
    ++confirmed;
    if (again > best) best = again, best_us = us;
  }
  if (confirmed > 1) read(best_us, true);
  ++tally->episodes;
  tally->found += best_us == 100;
  tally->evaluations += clock.evaluations;
}

}  // namespace

TEST_CASE("the declared best is the true best, 5 % ahead of the next one") {
  Tally quiet, busy;
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    Episode(kQuiet, seed, &quiet);
    Episode(kBusy, seed, &busy);
  }
  CHECK(quiet.found >= 57);  // 95 %
  Tally by_readings;
  for (uint64_t seed = 1; seed <= 60; ++seed) EpisodeByReadings(kBusy, seed, &by_readings);
  CHECK(busy.found > by_readings.found);
}

// agent_test "[.figures]": the table of tests/bench/RESULTS.md.
TEST_CASE("figures of the declared best", "[.figures]") {
  for (const Noise& noise : {kQuiet, kBusy}) {
    Tally now, by_readings;
    for (uint64_t seed = 1; seed <= 1000; ++seed) {
      Episode(noise, seed, &now);
      EpisodeByReadings(noise, seed, &by_readings);
    }
    for (const auto& [name, tally] :
         {std::pair("readings over eager", by_readings), {"the same pairs", now}}) {
      fmt::print("{:6} {:20} {:5.1f} % of {} episodes, {:.1f} evaluations an episode\n", noise.name, name,
                 100 * tally.Share(), tally.episodes, tally.evaluations / tally.episodes);
    }
  }
}

}  // namespace kevin
