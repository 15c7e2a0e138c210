// Episodes that are continued, fail, are interrupted, or cannot begin; what of them is kept.

#include <fstream>

#include "agent/episode.h"
#include "env/error.h"
#include "tests/agent/episode_fixture.h"
#include "tests/catch.h"

namespace kevin {
namespace {

using testing::EpisodeFixture;
using testing::FakeReply;
using testing::FakeSource;

void ContinueByOneTurn(EpisodeFixture& f, const EpisodeRecord& first) {
  const auto output = f.options.output;
  f.options = OptionsToContinue(first, 1);
  f.options.run = f.run;
  f.options.output = output;
}

}  // namespace

TEST_CASE("--continue goes on where the episode ended") {
  EpisodeFixture f;
  f.options.note = "Mind the cache.";
  f.options.start_source = FakeSource("measured 1.1");
  const EpisodeRecord first = f.Run({FakeReply("measured 1.5"), FakeReply("wrong")});
  ContinueByOneTurn(f, first);
  const EpisodeRecord second = f.Run({FakeReply("measured 1.7")});
  CHECK(second.id == first.id);
  CHECK(second.turns == 3);
  CHECK(second.best_turn == 3);
  CHECK(second.best_speedup == 1.7);
  REQUIRE(f.requests.size() == 1);
  CHECK(f.requests[0].task.turn == 3);
  CHECK(f.requests[0].task.attempts.size() == 2);
  CHECK(f.requests[0].messages[1].content.find("Mind the cache.") != std::string::npos);
  CHECK(f.requests[0].messages[1].content.find("### Turn 2") != std::string::npos);

  SECTION("not after the problem has changed") {
    f.problem.content_hash = "other";
    CHECK_THROWS_AS(f.Run({FakeReply("wrong")}), Error);
  }
  SECTION("not on another device") {
    f.environment.facts.device = "cpu: other, 64 threads";
    CHECK_THROWS_AS(f.Run({FakeReply("wrong")}), Error);
  }
  CHECK(f.store.FindEpisode(first.id).turns == 3);
}

TEST_CASE("what a continued episode finds superseded is not correct any more") {
  EpisodeFixture f;
  f.environment.then["// measured 1.5"] = {"// crash", "// crash"};
  const EpisodeRecord first = f.Run({FakeReply("measured 1.5"), FakeReply("measured 1.2")});
  ContinueByOneTurn(f, first);
  const EpisodeRecord second = f.Run({FakeReply("measured 1.1")});
  CHECK(second.best_turn == 2);
  CHECK(f.requests[0].task.attempts[0].outcome == "wrong");
}

TEST_CASE("a continued episode tells the policy the verdict that stands, not the superseded one") {
  EpisodeFixture f;
  f.environment.then["// measured 1.5"] = {"// crash", "// crash"};
  const EpisodeRecord first = f.Run({FakeReply("measured 1.2"), FakeReply("measured 1.5")});
  CHECK(first.best_turn == 1);
  ContinueByOneTurn(f, first);
  f.Run({FakeReply("measured 1.1")});
  const std::string& prompt = f.requests[0].messages[1].content;
  CHECK(prompt.find("Its speed-up is 1.2x") != std::string::npos);
  CHECK(prompt.find("Its speed-up is 1.5x") == std::string::npos);
  CHECK(prompt.find("its result is incorrect: non-deterministic") != std::string::npos);
}

TEST_CASE("an infrastructure error voids the turn: once it is tried again, twice it ends the episode") {
  EpisodeFixture f;
  SECTION("once") {
    bool failed = false;
    f.environment.before_evaluate = [&](int call) {
      if (call == 2 && !failed) {
        failed = true;
        throw Error(ExitCode::kBroken, "evaluator: gone");
      }
    };
    const EpisodeRecord episode = f.Run({FakeReply("wrong"), FakeReply("measured 1.5")});
    CHECK(episode.state == EpisodeState::kDone);
    CHECK(episode.best_turn == 2);
    CHECK(episode.turns == 2);
  }
  SECTION("twice") {
    f.options.turns = 3;
    try {
      f.Run({FakeReply("measured 1.5"), FakeReply("error"), FakeReply("wrong")});
      FAIL("no Error");
    } catch (const Error& error) {
      CHECK(error.what() == std::string("evaluator: ended by signal 9"));
    }
    const EpisodeRecord episode = f.store.ListEpisodes(1).at(0);
    CHECK(episode.state == EpisodeState::kFailed);
    CHECK(episode.state_reason == "evaluator: ended by signal 9");
    CHECK(episode.turns == 1);
    CHECK(episode.best_turn == 1);
    CHECK_FALSE(episode.best_speedup);
    CHECK(f.environment.calls.size() == 3);
    CHECK(f.Output(episode, "best.cpp") == FakeSource("measured 1.5"));
  }
}

TEST_CASE("a policy that fails ends the episode, what was done is kept") {
  EpisodeFixture f;
  f.options.turns = 2;
  CHECK_THROWS_AS(f.Run({FakeReply("measured 1.5")}), Error);
  CHECK(f.store.ListEpisodes(1).at(0).state == EpisodeState::kFailed);
  CHECK(f.store.ListEpisodes(1).at(0).turns == 1);
}

TEST_CASE("a policy without a further answer ends the episode: it is done, and its winner is confirmed") {
  class Exhausted : public testing::ScriptedPolicy {
   public:
    using ScriptedPolicy::ScriptedPolicy;
    Completion Complete(const Request& request, const CancelToken* cancel, const OnText& on_text) override {
      if (request.task.turn == 3) throw NothingLeft(ExitCode::kDone, "both texts were tried");
      return ScriptedPolicy::Complete(request, cancel, on_text);
    }
  };
  EpisodeFixture f;
  Exhausted policy({FakeReply("measured 1.5"), FakeReply("measured 1.2")});
  f.options.turns = 8;
  const EpisodeRecord episode =
      RunEpisode(f.problem, policy, f.environment, f.store, f.options, f.hooks, &f.cancel);
  CHECK(episode.state == EpisodeState::kDone);
  CHECK(episode.state_reason == "both texts were tried");
  CHECK(episode.turns == 2);
  CHECK(episode.best_turn == 1);
  CHECK(episode.best_speedup_low.has_value());
}

TEST_CASE("interrupted: what was done is kept, nothing more is measured") {
  EpisodeFixture f;
  f.options.turns = 4;
  SECTION("between turns") {
    f.hooks.on_turn = [&](const TurnRecord& turn, const EpisodeRecord&) { f.cancel = turn.turn == 2; };
  }
  SECTION("while a candidate is judged") {
    f.environment.before_evaluate = [&](int call) { f.cancel = call == 3; };
  }
  SECTION("by a signal that ended the evaluator as well") {
    f.environment.before_evaluate = [&](int call) {
      if (call < 3) return;
      f.cancel = true;
      throw Error(ExitCode::kBroken, "evaluator: gone");
    };
  }
  const EpisodeRecord episode =
      f.Run({FakeReply("measured 1.5"), FakeReply("measured 1.2"), FakeReply("wrong"), FakeReply("wrong")});
  CHECK(episode.state == EpisodeState::kInterrupted);
  CHECK(episode.turns == 2);
  CHECK(episode.best_turn == 1);
  CHECK_FALSE(episode.best_speedup);
  CHECK(f.Output(episode, "best.cpp") == FakeSource("measured 1.5"));
  CHECK(f.environment.calls.size() <= 3);
}

TEST_CASE("what cannot work is said before anything is stored") {
  EpisodeFixture f;
  SECTION("the policy cannot do the problem") {
    testing::ScriptedPolicy policy({});
    policy.why_not = "search knows elementwise";
    try {
      RunEpisode(f.problem, policy, f.environment, f.store, f.options, f.hooks, nullptr);
      FAIL("no Error");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::kBadRequest);
      CHECK(error.what() == std::string("level1/19: search knows elementwise"));
    }
  }
  SECTION("the output folder is a file") {
    std::ofstream(f.folder.path() / "file") << "x";
    f.options.output = f.folder.path() / "file";
    CHECK_THROWS_AS(f.Run({FakeReply("wrong")}), Error);
  }
  SECTION("an unknown size") {
    f.options.workload.size = "huge";
    CHECK_THROWS_AS(f.Run({FakeReply("wrong")}), Error);
  }
  CHECK(f.store.ListEpisodes(10).empty());
  CHECK(f.environment.calls.empty());
}

}  // namespace kevin
