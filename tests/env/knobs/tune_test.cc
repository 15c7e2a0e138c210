#include "env/knobs/tune.h"

#include <algorithm>
#include <set>

#include "env/error.h"
#include "env/knobs/choose.h"
#include "tests/catch.h"
#include "tests/support/fakes.h"
#include "tests/support/knob_environment.h"

namespace kevin {
namespace {

using testing::KnobEnvironment;
using Values = KnobEnvironment::Values;

const std::string kLaunch = "extern \"C\" void launch(const float* x, float* out) {}\n";
const std::string kTwoKnobs = "// knob TILE: 64 32 128\n// knob UNROLL: 1 2 4\n" + kLaunch;

std::vector<DeclaredKnob> KnobsOf(const std::string& source) { return ReadKnobs(source, "cpp", {}).knobs; }

struct Fixture {
  Problem problem = testing::ReluProblem();
  KnobEnvironment environment;
  TuneOptions options;

  Fixture() { options.settings = 8; }
  Tuned operator()(const std::string& source) { return Tune(problem, {"cpp", source}, environment, options); }
};

// TILE 128 and UNROLL 2 are the fastest; both matter alone.
Outcome Bowl(const Values& values, const EvaluateOptions&) {
  const double tile = values.at("TILE") == 128 ? 10 : values.at("TILE") == 64 ? 20 : 40;
  const double unroll = values.at("UNROLL") == 2 ? 1 : 5;
  return KnobEnvironment::Taking(tile + unroll);
}

std::set<std::string> Texts(const std::vector<KnobTrial>& trials) {
  std::set<std::string> texts;
  for (const KnobTrial& trial : trials) texts.insert(SettingToText(trial.setting));
  return texts;
}

}  // namespace

TEST_CASE("the first values come first, then moves of one knob, then random settings") {
  SettingChooser chooser(KnobsOf(kTwoKnobs), 7);
  const auto next = [&](std::optional<double> us) {
    const KnobSetting setting = chooser.Next().value();
    chooser.Report(setting, us);
    return SettingToText(setting);
  };
  CHECK(next(30) == R"({"TILE":64,"UNROLL":1})");
  CHECK(next(60) == R"({"TILE":32,"UNROLL":1})");
  CHECK(next(25) == R"({"TILE":64,"UNROLL":2})");  // faster: moves start from here, UNROLL first
  CHECK(next(26) == R"({"TILE":64,"UNROLL":4})");
  CHECK(next(60) == R"({"TILE":32,"UNROLL":2})");
  CHECK(next(20) == R"({"TILE":128,"UNROLL":2})");
  CHECK(next(21) == R"({"TILE":128,"UNROLL":4})");
  CHECK(next(21) == R"({"TILE":128,"UNROLL":1})");
  CHECK(next(99) == R"({"TILE":32,"UNROLL":4})");  // the only one left
  CHECK_FALSE(chooser.Next());
}

TEST_CASE("settings are never chosen twice, and are the same under the same seed") {
  std::string source;
  for (int i = 0; i < 8; ++i) source += "// knob K" + std::to_string(i) + ": 1 2 3 4 5 6 7 8\n";
  std::vector<std::vector<std::string>> runs;
  for (const uint64_t seed : {1, 1, 2}) {
    SettingChooser chooser(KnobsOf(source), seed);
    runs.emplace_back();
    for (int i = 0; i < 300; ++i) {
      const KnobSetting setting = chooser.Next().value();
      chooser.Report(setting, i == 0 ? 1 : 2);
      runs.back().push_back(SettingToText(setting));
    }
    CHECK(std::set<std::string>(runs.back().begin(), runs.back().end()).size() == 300);
  }
  CHECK(runs[0] == runs[1]);
  CHECK(runs[0] != runs[2]);
  CHECK(std::equal(runs[0].begin(), runs[0].begin() + 57, runs[2].begin()));  // moves of one knob
}

TEST_CASE("a value that only failed is tried last") {
  SettingChooser chooser(KnobsOf("// knob A: 1 2\n// knob B2: 1 2 3\n"), 0);
  std::vector<std::string> order;
  while (const auto setting = chooser.Next()) {
    order.push_back(SettingToText(*setting));
    const bool fails = setting->at(0).second == 2;
    chooser.Report(*setting,
                   fails ? std::nullopt : std::optional(10.0 - static_cast<double>(setting->at(1).second)));
  }
  REQUIRE(order.size() == 6);
  for (size_t i = 4; i < 6; ++i) CHECK(order[i].find("\"A\":2") != std::string::npos);
}

TEST_CASE("the fastest setting is put into the text") {
  Fixture tune;
  tune.environment.outcome = Bowl;
  std::vector<KnobTrial> told;
  tune.options.on_trial = [&](const KnobTrial& trial) { told.push_back(trial); };
  std::vector<std::string> phases;
  tune.options.evaluate.on_phase = [&](const std::string& phase) { phases.push_back(phase); };
  const Tuned tuned = tune(kTwoKnobs);
  CHECK(tuned.error.empty());
  CHECK(tuned.candidate.source == "constexpr int TILE = 128;\nconstexpr int UNROLL = 2;\n" + kLaunch);
  CHECK((tuned.trials.size() == 8 && told.size() == 8 && Texts(tuned.trials).size() == 8));
  CHECK(tuned.trials.front().setting == FirstSetting(KnobsOf(kTwoKnobs)));
  CHECK(std::count_if(tuned.trials.begin(), tuned.trials.end(),
                      [](const KnobTrial& t) { return t.chosen; }) == 1);
  CHECK(ChosenTrial(tuned.trials)->candidate_us == 11);
  CHECK(tune.environment.judged.empty());
  CHECK((phases.front() == "tune 1 to 2 of 8" && phases.back() == "tune 7 to 8 of 8"));
  CHECK(*tune.environment.limits.begin() == 0);             // the first batch knows none
  CHECK(*std::next(tune.environment.limits.begin()) < 33);  // later ones do: 1.3 times the fastest
}

TEST_CASE("a clearly slower setting is marked as timed for less long") {
  Fixture tune;
  tune.environment.outcome = [](const Values& values, const EvaluateOptions&) {
    return KnobEnvironment::Taking(static_cast<double>(values.at("T")));
  };
  const Tuned tuned = tune("// knob T: 10 11 12 100\n" + kLaunch);
  REQUIRE(tuned.trials.size() == 4);
  for (const KnobTrial& trial : tuned.trials) CHECK(trial.stopped == (trial.setting[0].second == 100));
}

TEST_CASE("a setting that fails or is incorrect drops out alone") {
  Fixture tune;
  tune.environment.outcome = [](const Values& values, const EvaluateOptions&) -> Outcome {
    switch (values.at("MODE")) {
      case 1:
        return CompileFailed{"candidate.cpp:1:1: error: no such mode\n"};
      case 2:
        return Wrong{"out[0] is 1, should be 0", 1, 0.1};
      case 3:
        return Crashed{"signal 11"};
      case 4:
        return TimedOut{"verify", 20};
      case 5:
        return Refused{"deferred work"};
      default:
        return KnobEnvironment::Taking(40);
    }
  };
  const Tuned tuned = tune("// knob MODE: 1 2 3 4 5 6\n" + kLaunch);
  CHECK(tuned.candidate.source == "constexpr int MODE = 6;\n" + kLaunch);
  REQUIRE(tuned.trials.size() == 6);
  std::map<int64_t, std::string> outcomes;
  for (const KnobTrial& trial : tuned.trials) {
    outcomes[trial.setting[0].second] = trial.outcome;
    CHECK(trial.candidate_us.has_value() == (trial.outcome == "measured"));
    CHECK(trial.reason.empty() == (trial.outcome == "measured"));
  }
  CHECK(outcomes == std::map<int64_t, std::string>{{1, "compile_failed"},
                                                   {2, "wrong"},
                                                   {3, "crashed"},
                                                   {4, "timed_out"},
                                                   {5, "refused"},
                                                   {6, "measured"}});
}

TEST_CASE("where no setting is correct the first values are taken; time-outs end the search") {
  Fixture tune;
  tune.environment.outcome = [](const Values&, const EvaluateOptions&) { return Wrong{"no", 1, 0.1}; };
  const Tuned wrong = tune(kTwoKnobs);
  CHECK(wrong.candidate.source == "constexpr int TILE = 64;\nconstexpr int UNROLL = 1;\n" + kLaunch);
  CHECK((wrong.trials.size() == 8 && wrong.trials.front().chosen));
  tune.environment.outcome = [](const Values&, const EvaluateOptions&) { return TimedOut{"verify", 20}; };
  CHECK(tune(kTwoKnobs).trials.size() == 2);
}

TEST_CASE("nothing is run without a choice") {
  Fixture tune;
  CHECK(tune(kLaunch).candidate.source == kLaunch);
  CHECK(tune(kLaunch).trials.empty());
  const Tuned one = tune("// knob A: 5\n" + kLaunch);
  CHECK(one.candidate.source == "constexpr int A = 5;\n" + kLaunch);
  CHECK((one.trials.size() == 1 && one.trials[0].chosen && one.trials[0].outcome.empty()));
  for (const int settings : {0, 1}) {
    tune.options.settings = settings;
    CHECK(tune(kTwoKnobs).candidate.source ==
          "constexpr int TILE = 64;\nconstexpr int UNROLL = 1;\n" + kLaunch);
  }
  CHECK(tune.environment.screened.empty());
  tune.options.settings = 100;
  CHECK(tune(kTwoKnobs).trials.size() == 9);  // there are no more
  CHECK((DefaultSettings("cpp") == 8 && DefaultSettings("cuda") == 24 && DefaultSettings("ptx") == 24));
}

TEST_CASE("of a million settings only as many are tried as were asked for, all different") {
  Fixture tune;
  std::string text;
  for (const char* name : {"TA", "TB", "TC", "TD"}) {
    text += std::string("// knob ") + name + ":";
    for (int value = 0; value < 32; ++value) text += " " + std::to_string(value);
    text += "\n";
  }
  CHECK(CountSettings(KnobsOf(text)) == 1 << 20);
  tune.options.settings = kMaxSettings;
  const Tuned tuned = tune(text + kLaunch);
  CHECK((tuned.trials.size() == static_cast<size_t>(kMaxSettings) &&
         Texts(tuned.trials).size() == static_cast<size_t>(kMaxSettings)));
  CHECK(tune.environment.screened.size() == static_cast<size_t>(kMaxSettings));
}

TEST_CASE("a bad declaration is an error of the text, and nothing is run") {
  Fixture tune;
  const Tuned tuned = tune("// knob N: 1 2\n" + kLaunch);
  CHECK(tuned.error ==
        "candidate.cpp:1:1: error: knob N needs another name: N is a constant of the problem\n");
  CHECK(tuned.candidate.source == "// knob N: 1 2\n" + kLaunch);
  CHECK((tuned.trials.empty() && tune.environment.screened.empty()));
}

TEST_CASE("of several shapes the weighted mean decides, and one failure is enough") {
  Fixture tune;
  tune.problem.sizes["mine/1"] = {{"B", 1}, {"N", 8}};
  tune.problem.sizes["mine/2"] = {{"B", 2}, {"N", 8}};
  tune.problem.shape_sets["mine"] = {{"mine/1", 3}, {"mine/2", 1}};
  tune.options.evaluate.workload.size = "mine";
  tune.environment.outcome = [](const Values& values, const EvaluateOptions& options) -> Outcome {
    const bool first = options.workload.size == "mine/1";
    if (values.at("A") == 1) return KnobEnvironment::Taking(first ? 16 : 1);  // 16^(3/4) = 8
    if (values.at("A") == 2) return KnobEnvironment::Taking(first ? 1 : 81);  // 81^(1/4) = 3
    return first == (values.at("A") == 3) ? Outcome(KnobEnvironment::Taking(1))
                                          : Outcome(Wrong{"no", 1, 0.1});
  };
  const Tuned tuned = tune("// knob A: 1 2 3 4\n" + kLaunch);
  REQUIRE(tuned.trials.size() == 4);
  CHECK(std::abs(*tuned.trials[0].candidate_us - 8) < 1e-9);
  CHECK((std::abs(*tuned.trials[1].candidate_us - 3) < 1e-9 && tuned.trials[1].chosen));
  CHECK((tuned.trials[2].outcome == "wrong" && tuned.trials[2].reason.starts_with("at mine/2: ")));
  CHECK((tuned.trials[3].outcome == "wrong" && tuned.trials[3].reason.starts_with("at mine/1: ")));
}

TEST_CASE("a fault of the machine is tried once more, then thrown; a stop ends it") {
  Fixture tune;
  int faults = 1;
  tune.environment.before = [&] {
    if (faults-- > 0) throw Error(ExitCode::kBroken, "evaluator: ended by signal 9");
  };
  CHECK(tune(kTwoKnobs).trials.size() == 8);
  faults = 1000;
  CHECK_THROWS_AS(tune(kTwoKnobs), Error);
  std::atomic<bool> stop{true};
  tune.options.evaluate.stop = &stop;
  faults = 1;
  CHECK_THROWS_AS(tune(kTwoKnobs), Error);
}

TEST_CASE("same seed, same trials") {
  std::vector<std::string> runs;
  for (int run = 0; run < 2; ++run) {
    Fixture tune;
    tune.options.settings = 9;
    tune.environment.outcome = Bowl;
    std::string text;
    for (const KnobTrial& trial : tune(kTwoKnobs).trials) text += SettingToText(trial.setting);
    runs.push_back(text);
  }
  CHECK(runs[0] == runs[1]);
}

}  // namespace kevin
