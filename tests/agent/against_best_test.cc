// Each turn is timed beside the best one so far, or the user's own kernel: which leads, and what is said of it.

#include "agent/episode.h"
#include "env/error.h"
#include "tests/agent/episode_fixture.h"
#include "tests/catch.h"

namespace kevin {
namespace {

using testing::EpisodeFixture;
using testing::FakeReply;
using testing::FakeSource;

}  // namespace

TEST_CASE("--from: turn 0, and every later kernel is paired against it") {
  EpisodeFixture f;
  f.options.start_source = FakeSource("measured 1.1");
  const EpisodeRecord episode = f.Run({FakeReply("measured 1.5")});
  CHECK(f.environment.calls == std::vector<std::string>{"// measured 1.1", "// measured 1.5 beside 1.1",
                                                        "// measured 1.5 (confirm) beside 1.1"});
  const auto turns = f.store.LoadTurns(episode.id);
  REQUIRE(turns.size() == 2);
  CHECK(turns[0].turn == 0);
  CHECK(turns[0].evaluation.purpose == "start");
  CHECK(turns[1].evaluation.against_start->value == Approx(1.5 / 1.1));
  CHECK(turns[1].evaluation.against_best->value == Approx(1.5 / 1.1));
  CHECK(turns[1].evaluation.against_best_turn == 0);
  CHECK(f.requests[0].messages[1].content.find("You start from this kernel.") != std::string::npos);
  CHECK(f.requests[0].task.start_source == f.options.start_source);
  CHECK(episode.turns == 1);
  CHECK(episode.best_turn == 1);
}

TEST_CASE("--from: the start stays the best when nothing beats it") {
  EpisodeFixture f;
  f.options.start_source = FakeSource("measured 2");
  const EpisodeRecord episode = f.Run({FakeReply("measured 1.5")});
  CHECK(episode.best_turn == 0);
  CHECK(f.Output(episode, "best.cpp") == FakeSource("measured 2"));
  CHECK(f.environment.calls.back() == "// measured 2 (confirm)");  // not against itself
}

TEST_CASE("each correct turn is timed beside the best so far, and only that makes another one the best") {
  EpisodeFixture f;
  f.environment.then["// measured 1.5"] = {"// measured 1.5"};
  const EpisodeRecord episode =
      f.Run({FakeReply("measured 1.5"), FakeReply("measured 1.505"), FakeReply("measured 1.4"),
             FakeReply("measured 1.6"), FakeReply("wrong")});
  const auto turns = f.store.LoadTurns(episode.id);
  REQUIRE(turns.size() == 5);
  CHECK_FALSE(turns[0].evaluation.against_best);
  CHECK(turns[1].evaluation.against_best->value == Approx(1.505 / 1.5));
  for (const int later : {1, 2, 3}) CHECK(turns[later].evaluation.against_best_turn == 1);
  CHECK_FALSE(turns[4].evaluation.against_best);
  CHECK_FALSE(turns[1].evaluation.against_start);  // there is no start
  INFO(turns[1].feedback);
  const auto has = [&](int turn, const std::string& text) {
    return turns[static_cast<size_t>(turn) - 1].feedback.find(text) != std::string::npos;
  };
  CHECK(has(
      2,
      "Timed side by side with turn 1, the best so far, it is as fast as that one (within 2 %): 1.003x (0.993x to 1.013x)."));
  CHECK(has(3, "Timed side by side with turn 1, the best so far, it is slower than that one: "));
  CHECK(has(4, "Timed side by side with turn 1, the best so far, it is faster than that one: "));
  CHECK(has(4, "It is the new best."));
  const std::string third = f.requests[2].messages[1].content;
  CHECK(third.find("The best result so far is turn 1 with 1.5x") !=
        std::string::npos);  // not turn 2, which reads more
  INFO(third);
  CHECK(third.find("turn 1: 1.003x (0.993x to 1.013x), same") != std::string::npos);
  CHECK(episode.best_turn == 4);
}

TEST_CASE("against the start, through the best so far") {
  EpisodeFixture f;
  f.options.start_source = FakeSource("measured 1");
  const EpisodeRecord episode = f.Run({FakeReply("measured 2"), FakeReply("measured 3")});
  const auto turns = f.store.LoadTurns(episode.id);
  CHECK(turns[2].evaluation.against_best_turn == 1);
  CHECK(turns[2].evaluation.against_best->value == Approx(1.5));
  CHECK(turns[2].evaluation.against_start->value == Approx(3));
  CHECK(turns[2].evaluation.against_start->low > 3 * 0.98);  // in quadrature, not added up
}

TEST_CASE("a stored verdict that may be the best is measured beside the best, a clearly slower one stands") {
  EpisodeFixture f;
  f.Run({FakeReply("measured 1.8"), FakeReply("measured 1.2")});
  f.environment.calls.clear();
  f.options.turns = 4;
  const EpisodeRecord episode = f.Run({FakeReply("measured 1.5"), FakeReply("measured 1.8"),
                                       FakeReply("measured 1.2"), FakeReply("measured 1.8")});
  CHECK(f.environment.calls == std::vector<std::string>{"// measured 1.5", "// measured 1.8 beside 1.5",
                                                        "// measured 1.8 (confirm)"});
  const auto turns = f.store.LoadTurns(episode.id);
  REQUIRE(turns.size() == 4);
  CHECK((turns[1].evaluation.cached_from.empty() && turns[1].evaluation.against_best));
  CHECK((!turns[2].evaluation.cached_from.empty() && !turns[2].evaluation.against_best));
  CHECK_FALSE(turns[3].evaluation.cached_from.empty());  // compared in this episode before
  CHECK(episode.best_turn == 2);
}

TEST_CASE("a best kernel that fails beside another one is checked alone, and that one is judged without it") {
  EpisodeFixture f;
  f.environment.before_evaluate = [&](int call) {
    if (call == 2 || call == 3)
      throw Error(ExitCode::kBadRequest, "the kernel to compare with: wrong: out[0] = 1, expected 2");
  };
  f.environment.then["// measured 1.5"] = {"// wrong"};
  const EpisodeRecord episode =
      f.Run({FakeReply("measured 1.5"), FakeReply("measured 1.2"), FakeReply("measured 1.3")});
  CHECK(f.environment.calls ==
        std::vector<std::string>{"// measured 1.5", "// measured 1.2 beside 1.5",
                                 "// measured 1.2 beside 1.5", "// measured 1.2", "// measured 1.5 (confirm)",
                                 "// measured 1.3 beside 1.2", "// measured 1.3 (confirm)"});
  CHECK(episode.state == EpisodeState::kDone);
  CHECK(episode.best_turn == 3);
  CHECK(f.requests[2].task.attempts[0].outcome == "wrong");
  CHECK(f.store.LoadEvaluations(episode.id, 1)[1].purpose == "audit");
}

TEST_CASE("the kernel of --from is not told that it was judged before") {
  EpisodeFixture f;
  f.Run({FakeReply("measured 1.1")});
  f.options.start_source = FakeSource("measured 1.1");
  f.options.turns = 8;
  const EpisodeRecord episode = f.Run({FakeReply("measured 1.5")});
  const auto start = f.store.LoadTurn(episode.id, 0);
  CHECK_FALSE(start->evaluation.cached_from.empty());
  CHECK(start->feedback.find("judged before") == std::string::npos);
}

TEST_CASE("a leader found wrong on the way leads no more") {
  EpisodeFixture f;
  f.options.until = 1.4;
  f.environment.then["// measured 1.5"] = {"// wrong"};
  SECTION("the next one takes over") {
    f.options.turns = 3;
    f.hooks.on_turn = [&](const TurnRecord& turn, const EpisodeRecord&) { f.cancel = turn.turn == 3; };
    const EpisodeRecord episode =
        f.Run({FakeReply("measured 1.2"), FakeReply("measured 1.5"), FakeReply("measured 1.1")});
    CHECK(episode.state == EpisodeState::kInterrupted);
    CHECK(episode.best_turn == 1);
    CHECK(f.Output(episode, "best.cpp") == FakeSource("measured 1.2"));
    CHECK(f.requests[2].task.attempts[1].outcome == "wrong");
    CHECK(f.requests[2].messages[1].content.find("non-deterministic") != std::string::npos);
  }
  SECTION("without another there is no best") {
    const EpisodeRecord episode = f.Run({FakeReply("measured 1.5")});
    CHECK_FALSE(episode.best_turn);
    CHECK_FALSE(std::filesystem::exists(f.options.output / episode.id / "best.cpp"));
  }
}

}  // namespace kevin
