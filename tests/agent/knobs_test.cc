// Knobs in an episode: chosen before the verdict, kept with the turn, told to the policy.

#include <fstream>
#include <sstream>

#include "agent/episode.h"
#include "env/error.h"
#include "tests/catch.h"
#include "tests/support/fakes.h"
#include "tests/support/knob_environment.h"

namespace kevin {
namespace {

using testing::KnobEnvironment;

const std::string kLaunch = "extern \"C\" void launch(const float* x, float* out) {}\n";

std::string Reply(const std::string& source) { return "```cpp\n" + source + "```\nTuned it.\n"; }
std::string WithTile(int tile) { return "constexpr int TILE = " + std::to_string(tile) + ";\n" + kLaunch; }

struct Fixture {
  testing::TempFolder folder;
  Problem problem = testing::ReluProblem();
  KnobEnvironment environment;
  Store store = Store::Open(folder.path() / "kevin.db", OpenMode::kCreate);
  EpisodeOptions options;
  std::vector<Request> requests;

  Fixture() {
    options.run = store.BeginRun({});
    options.output = folder.path() / "out";
    options.audit_rates = {0, 0};
    options.tune = 8;
    // TILE 128 takes 50 us, everything else 100 us; TILE 7 is incorrect.
    environment.outcome = [](const KnobEnvironment::Values& values, const EvaluateOptions&) -> Outcome {
      const auto tile = values.find("TILE");
      if (tile != values.end() && tile->second == 7) return Wrong{"out[0] is 1, should be 0", 1, 0.1};
      return KnobEnvironment::Taking(tile != values.end() && tile->second == 128 ? 50 : 100);
    };
  }
  EpisodeRecord Run(const std::vector<std::string>& replies) {
    testing::ScriptedPolicy policy(replies);
    options.turns = static_cast<int>(replies.size());
    const EpisodeRecord episode = RunEpisode(problem, policy, environment, store, options, {}, nullptr);
    requests = policy.requests;
    return episode;
  }
};

}  // namespace

TEST_CASE("the chosen setting is what is judged, stored, written, confirmed and shown") {
  Fixture f;
  const EpisodeRecord episode = f.Run({Reply("// knob TILE: 64 128 7\n" + kLaunch), Reply(kLaunch)});
  const auto turns = f.store.LoadTurns(episode.id);
  REQUIRE(turns.size() == 2);
  CHECK(turns[0].evaluation.source == WithTile(128));
  CHECK(turns[0].evaluation.candidate_hash == Sha256Hex("cpp\n" + WithTile(128)));
  CHECK((turns[0].evaluation.outcome == "measured" && turns[0].evaluation.speedup->value == 2));
  CHECK(turns[0].reply == Reply("// knob TILE: 64 128 7\n" + kLaunch));
  CHECK((turns[0].trials.size() == 3 && turns[0].tune_s > 0 && turns[1].trials.empty() &&
         turns[1].tune_s == 0));
  CHECK(
      (f.environment.screened.size() == 3 && f.environment.judged.size() == 3));  // two turns, a confirmation
  CHECK((episode.best_turn == 1 && episode.best_speedup == 2));
  std::ifstream file(episode.best_path);
  std::ostringstream best;
  best << file.rdbuf();
  CHECK(best.str() == WithTile(128));
  CHECK(
      turns[0].feedback.find("Knobs: 3 settings tried, 2 correct; the kernel has the fastest, TILE = 128.") !=
      std::string::npos);
  CHECK(f.requests[1].messages[1].content.find(
            "- TILE = 128: 1.00\n- TILE = 64: 2.00\nWith TILE = 7: wrong") != std::string::npos);
  CHECK((f.requests[1].task.tune == 8 && f.requests[1].task.attempts[0].trials.size() == 3));
}

TEST_CASE("a bad declaration is a text that does not compile, and the episode goes on") {
  Fixture f;
  const std::string bad = "// knob TILE:\n" + kLaunch;
  const EpisodeRecord episode = f.Run({Reply(bad), Reply(bad), Reply(kLaunch)});
  const auto turns = f.store.LoadTurns(episode.id);
  REQUIRE(turns.size() == 3);
  for (const size_t turn : {0, 1}) {
    CHECK((turns[turn].evaluation.outcome == "compile_failed" && turns[turn].evaluation.source == bad));
    CHECK((turns[turn].evaluation.score == 0 && turns[turn].trials.empty()));
    CHECK(turns[turn].feedback.find("line 1, column 14: knob TILE has no values") != std::string::npos);
  }
  CHECK((f.environment.judged.size() == 2 && f.environment.screened.empty()));
  CHECK(episode.best_turn == 3);
}

TEST_CASE("with --tune 0 the first values are taken") {
  Fixture f;
  f.options.tune = 0;
  const EpisodeRecord episode = f.Run({Reply("// knob TILE: 64 128\n" + kLaunch)});
  const auto turns = f.store.LoadTurns(episode.id);
  CHECK(turns[0].evaluation.source == WithTile(64));
  CHECK(
      (f.environment.screened.empty() && turns[0].trials.size() == 1 && turns[0].trials[0].outcome.empty()));
}

TEST_CASE("a stored verdict answers for the text with its setting") {
  Fixture f;
  f.Run({Reply("// knob TILE: 64 128\n" + kLaunch)});
  const size_t judged = f.environment.judged.size();
  f.options.run = f.store.BeginRun({});
  const EpisodeRecord again = f.Run({Reply(WithTile(128))});
  CHECK_FALSE(f.store.LoadTurns(again.id)[0].evaluation.cached_from.empty());
  CHECK(f.environment.judged.size() == judged + 1);  // the confirmation
}

TEST_CASE("the kernel of --from may have knobs; later kernels are timed against the chosen setting") {
  Fixture f;
  f.options.start_source = "// knob TILE: 64 128\n" + kLaunch;
  std::vector<std::string> starts;
  const auto outcome = f.environment.outcome;
  f.environment.outcome = [&](const KnobEnvironment::Values& values, const EvaluateOptions& options) {
    if (!options.screen) starts.push_back(options.start_source);
    return outcome(values, options);
  };
  const EpisodeRecord episode = f.Run({Reply(kLaunch)});
  CHECK(starts == std::vector<std::string>{"", WithTile(128), ""});  // turn 0, turn 1, turn 0 confirmed
  const auto turns = f.store.LoadTurns(episode.id);
  CHECK((turns[0].turn == 0 && turns[0].trials.size() == 2));
  CHECK(f.requests[0].messages[1].content.find("constexpr int TILE = 128;") != std::string::npos);
}

TEST_CASE("a turn that was killed in its trials is made again, and is the same") {
  Fixture f;
  const std::string reply = Reply("// knob TILE: 64 128\n" + kLaunch);
  f.environment.before = [] { throw Error(ExitCode::kBroken, "killed"); };
  CHECK_THROWS_AS(f.Run({reply}), Error);
  const EpisodeRecord failed = f.store.ListEpisodes(1)[0];
  CHECK((failed.turns == 0 && failed.state == EpisodeState::kFailed));
  f.environment.before = nullptr;
  f.options.continue_episode = failed.id;
  const EpisodeRecord episode = f.Run({reply});
  const auto turns = f.store.LoadTurns(episode.id);
  REQUIRE(turns.size() == 1);
  CHECK((turns[0].trials.size() == 2 && turns[0].evaluation.source == WithTile(128)));
}

}  // namespace kevin
