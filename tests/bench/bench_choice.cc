// bench_choice: how well the search policy's choice of settings (policies/search/choose.h) spends its turns. On a simulated
// device, whose time for every setting is known: the stages of a program take their shares, each knob multiplies the time
// of its stage by a random factor a value, pairs of knobs by smaller ones, 4 % of the values fail, measurements have an
// error of 2 %. Prints the speed-up over the first values of the best text so far, against turns: the geometric mean over
// devices.
//
//   choice     as the policy without --memory
//   memory     with the results of 12 random settings on a similar device (the same factors, disturbed by a third)
//   random     settings drawn at random, the first values first
//
// The true time of the setting that measured fastest counts, so that luck of one measurement gains nothing.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cmath>
#include <map>
#include <random>

#include "policies/search/choose.h"
#include "policies/search/task_program.h"
#include "tests/support/graph_text.h"

namespace kevin::search {
namespace {

constexpr double kFailingValues = 0.04, kNoise = 0.02, kFactor = 0.25, kPairFactor = 0.08;

// relu(a b), then the softmax of its rows.
TaskProgram Example(const std::string& kind) {
  Request request =
      test::GraphRequest({{"a", {1024, 1024}}, {"b", {1024, 2048}}},
                         {{"matmul", R"({"self":{"tensor":0},"other":{"tensor":1}})", {1024, 2048}},
                          {"relu", R"({"self":{"tensor":2}})", {1024, 2048}},
                          {"softmax", R"({"self":{"tensor":3},"dim":1,"dtype":null})", {1024, 2048}}});
  request.task.kind = kind;
  return std::move(ProgramsOf(request.task).at(0));
}

class SimulatedDevice {
 public:
  SimulatedDevice(const std::vector<Knob>& knobs, const std::vector<double>& shares, uint64_t seed)
      : knobs_(knobs), shares_(shares), random_(seed) {
    std::normal_distribution<double> normal;
    std::uniform_real_distribution<double> uniform;
    for (const Knob& knob : knobs) {
      for (const int64_t value : knob.values) {
        factors_[{knob.name, value}] = kFactor * normal(random_);
        fails_[{knob.name, value}] = value != knob.values[0] && uniform(random_) < kFailingValues;
      }
    }
  }

  // The same device with other factors, as far as `share` of them.
  SimulatedDevice Disturbed(double share, uint64_t seed) const {
    SimulatedDevice other = *this;
    SimulatedDevice unlike(knobs_, shares_, seed);
    for (auto& [place, factor] : other.factors_)
      factor = std::sqrt(1 - share) * factor + std::sqrt(share) * unlike.factors_.at(place);
    return other;
  }

  bool Fails(const Setting& setting) const {
    for (const auto& place : setting) {
      if (fails_.at(place)) return true;
    }
    return false;
  }

  double Time(const Setting& setting) const {
    std::vector<double> logs(shares_.size());
    for (size_t k = 0; k < knobs_.size(); ++k) {
      const size_t stage = static_cast<size_t>(std::max(knobs_[k].stage, 0));
      const int64_t value = setting.at(knobs_[k].name);
      logs[stage] += factors_.at({knobs_[k].name, value});
      for (size_t other = 0; other < k; ++other)
        logs[stage] += kPairFactor * Pair(k, value, other, setting.at(knobs_[other].name));
    }
    double time = 0;
    for (size_t i = 0; i < shares_.size(); ++i) time += shares_[i] * std::exp(logs[i]);
    return time;
  }

  double Measured(const Setting& setting) {
    return Time(setting) * std::exp(kNoise * std::normal_distribution<double>()(random_));
  }

 private:
  // -1 to 1, fixed for the pair of values.
  static double Pair(size_t k, int64_t value, size_t other, int64_t other_value) {
    std::seed_seq seed = {static_cast<int64_t>(k), value, static_cast<int64_t>(other), other_value};
    std::mt19937 random(seed);
    return std::uniform_real_distribution<double>(-1, 1)(random);
  }

  std::vector<Knob> knobs_;
  std::vector<double> shares_;
  std::mt19937_64 random_;
  std::map<std::pair<std::string, int64_t>, double> factors_;
  std::map<std::pair<std::string, int64_t>, bool> fails_;
};

Setting FirstSetting(const std::vector<Knob>& knobs) {
  Setting setting;
  for (const Knob& knob : knobs) setting[knob.name] = knob.values[0];
  return setting;
}

Setting RandomSetting(const std::vector<Knob>& knobs, std::mt19937_64& random) {
  Setting setting;
  for (const Knob& knob : knobs) setting[knob.name] = knob.values[random() % knob.values.size()];
  return setting;
}

// What memory would give of the similar device.
Experience ExperienceOn(const TaskProgram& at, const std::vector<Knob>& knobs, SimulatedDevice device,
                        uint64_t seed) {
  constexpr int kResults = 12;
  std::mt19937_64 random(seed);
  const double first = device.Time(FirstSetting(knobs));
  TaskRelated related;
  related.problem = "similar";
  related.nearness = 0.9;
  const std::vector<const Stage*> stages = LeafStages(at.program);
  for (const Knob& knob : knobs)
    related.knobs.push_back(
        {knob.name, knob.what,
         knob.stage < 0 ? "" : StageForm(at.program, *stages[static_cast<size_t>(knob.stage)])});
  for (int i = 0; i < kResults; ++i) {
    const Setting setting = i == 0 ? FirstSetting(knobs) : RandomSetting(knobs, random);
    if (device.Fails(setting)) continue;
    TaskRelatedResult result;
    for (const Knob& knob : knobs) result.values.push_back(setting.at(knob.name));
    result.speedup = first / device.Measured(setting);
    related.results.push_back(result);
  }
  std::sort(related.results.begin(), related.results.end(),
            [](const auto& a, const auto& b) { return a.speedup > b.speedup; });
  return search::ExperienceOf(at.program, knobs, {related});
}

using NextSetting = std::function<Setting(const std::vector<Tried>&)>;

// log(speed-up) of the setting that measured fastest, after each turn.
std::vector<double> Curve(SimulatedDevice device, const std::vector<Knob>& knobs, int turns,
                          const NextSetting& next) {
  const double first = device.Time(FirstSetting(knobs));
  std::vector<Tried> tried;
  std::vector<double> curve;
  double fastest = 0, speedup = 1;
  for (int turn = 0; turn < turns; ++turn) {
    const Setting setting = next(tried);
    std::optional<double> measured;
    if (!device.Fails(setting)) measured = first / device.Measured(setting);
    if (measured && *measured > fastest) {
      fastest = *measured;
      speedup = first / device.Time(setting);
    }
    tried.push_back({setting, measured, true});
    curve.push_back(std::log(speedup));
  }
  return curve;
}

// The fastest of many settings, then improved one knob at a time.
double BestKnown(const SimulatedDevice& device, const std::vector<Knob>& knobs, uint64_t seed) {
  constexpr int kSettings = 2000;
  std::mt19937_64 random(seed);
  Setting best = FirstSetting(knobs);
  for (int i = 0; i < kSettings; ++i) {
    const Setting setting = RandomSetting(knobs, random);
    if (!device.Fails(setting) && device.Time(setting) < device.Time(best)) best = setting;
  }
  for (bool improves = true; improves;) {
    improves = false;
    for (const Knob& knob : knobs) {
      for (const int64_t value : knob.values) {
        Setting setting = best;
        setting[knob.name] = value;
        if (device.Fails(setting) || device.Time(setting) >= device.Time(best)) continue;
        best = setting;
        improves = true;
      }
    }
  }
  return std::log(device.Time(FirstSetting(knobs)) / device.Time(best));
}

void Print(const std::string& kind, int devices, int turns) {
  const TaskProgram at = Example(kind);
  const std::vector<Knob> knobs = KnobsOf(at);
  Guidance guidance;
  guidance.shares = SharesByCounts(at);
  for (const Stage* stage : LeafStages(at.program)) guidance.stages.push_back(stage->name);
  double settings = 1;
  for (const Knob& knob : knobs) settings *= static_cast<double>(knob.values.size());
  std::map<std::string, std::vector<double>> sums;
  double best_known = 0;
  for (int i = 0; i < devices; ++i) {
    const auto seed = static_cast<uint64_t>(i);
    const SimulatedDevice device(knobs, guidance.shares, 1000 + seed);
    Guidance with_memory = guidance;
    with_memory.experience = ExperienceOn(at, knobs, device.Disturbed(1.0 / 3, 2000 + seed), 3000 + seed);
    std::mt19937_64 random(4000 + seed);
    const std::map<std::string, NextSetting> ways = {
        {"choice", [&](const auto& tried) { return ChooseNext(knobs, tried, guidance, seed).setting; }},
        {"memory", [&](const auto& tried) { return ChooseNext(knobs, tried, with_memory, seed).setting; }},
        {"random", [&](const auto& tried) {
           return tried.empty() ? FirstSetting(knobs) : RandomSetting(knobs, random);
         }}};
    for (const auto& [name, next] : ways) {
      const std::vector<double> curve = Curve(device, knobs, turns, next);
      std::vector<double>& sum = sums[name];
      sum.resize(curve.size());
      for (size_t turn = 0; turn < curve.size(); ++turn) sum[turn] += curve[turn];
    }
    best_known += BestKnown(device, knobs, 5000 + seed);
  }
  fmt::print("{}: {} knobs, {:.0f} settings, {} devices; best known {:.3f}x\n", kind, knobs.size(), settings,
             devices, std::exp(best_known / devices));
  fmt::print("{:>6}", "turns");
  for (const auto& [name, sum] : sums) fmt::print("  {:>7}", name);
  fmt::print("\n");
  for (int turn = 1; turn <= turns; turn *= 2) {
    fmt::print("{:>6}", turn);
    for (const auto& [name, sum] : sums)
      fmt::print("  {:>6.3f}x", std::exp(sum[static_cast<size_t>(turn - 1)] / devices));
    fmt::print("\n");
  }
}

}  // namespace
}  // namespace kevin::search

int main(int argc, char** argv) {
  int devices = 20, turns = 64;
  CLI::App app{"How well the search policy's choice of settings spends its turns, on simulated devices"};
  app.add_option("--devices", devices, "Simulated devices")->capture_default_str();
  app.add_option("--turns", turns, "Turns of each")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  for (const char* kind : {"cpp", "cuda"}) kevin::search::Print(kind, devices, turns);
  return 0;
}
