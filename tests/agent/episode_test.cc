#include "agent/episode.h"

#include <fstream>
#include <sstream>

#include "agent/judge.h"
#include "env/error.h"
#include "tests/catch.h"
#include "tests/support/fakes.h"

namespace kevin {
namespace {

using testing::FakeReply;
using testing::FakeSource;

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  return text.str();
}

// One database, one output folder, one problem; episodes run in them.
struct Fixture {
  testing::TempFolder folder;
  Problem problem = testing::ReluProblem();
  testing::FakeEnvironment environment;
  Store store = Store::Open(folder.path() / "kevin.db", OpenMode::kCreate);
  std::string run = store.BeginRun({});
  EpisodeOptions options;
  EpisodeHooks hooks;
  CancelToken cancel{false};
  std::vector<Request> requests;  // of the latest episode

  Fixture() {
    options.run = run;
    options.output = folder.path() / "out";
    options.machine = "Fake CPU";
    options.threads = 2;
    options.audit_rates = {0, 0};
  }

  EpisodeRecord Run(const std::vector<std::string>& replies) {
    testing::ScriptedPolicy policy(replies);
    if (options.turns == 8) options.turns = static_cast<int>(replies.size());
    const EpisodeRecord record = RunEpisode(problem, policy, environment, store, options, hooks, &cancel);
    requests = policy.requests;
    return record;
  }
  std::string Output(const EpisodeRecord& episode, const std::string& file) const {
    return ReadFile(options.output / episode.id / file);
  }
};

}  // namespace

TEST_CASE("an episode: asked, judged, stored, told, confirmed") {
  Fixture f;
  std::vector<std::string> seen;
  f.hooks.on_begin = [&](const EpisodeRecord&) { seen.push_back("begin"); };
  f.hooks.on_phase = [&](int turn, const std::string& phase) {
    seen.push_back(fmt::format("{} {}", turn, phase));
  };
  f.hooks.on_turn = [&](const TurnRecord& turn, const EpisodeRecord& episode) {
    CHECK(f.store.LoadTurn(episode.id, turn.turn));  // stored before it is reported
    seen.push_back(fmt::format("{} {}", turn.turn, turn.evaluation.outcome));
  };
  const EpisodeRecord episode =
      f.Run({FakeReply("wrong"), FakeReply("measured 1.5", "Tiled."), "no code", FakeReply("measured 1.2")});

  CHECK(seen == std::vector<std::string>{"begin", "1 generate", "1 measure", "1 wrong", "2 generate",
                                         "2 measure", "2 measured", "3 generate", "3 parse_failed",
                                         "4 generate", "4 measure", "4 measured", "2 confirm"});
  CHECK(f.environment.calls == std::vector<std::string>{"// wrong", "// measured 1.5",
                                                        "// measured 1.2 beside 1.5",
                                                        "// measured 1.5 (confirm)"});
  CHECK(episode.state == EpisodeState::kDone);
  CHECK(episode.turns == 4);
  CHECK(episode.correct_turns == 2);
  CHECK(episode.best_turn == 2);
  CHECK(episode.best_speedup == 1.5);
  CHECK(episode.policy == "scripted");
  CHECK(f.Output(episode, "2.cpp") == FakeSource("measured 1.5"));
  CHECK(f.Output(episode, "best.cpp") == FakeSource("measured 1.5"));
  CHECK(episode.best_path == (f.options.output / episode.id / "best.cpp").string());
  CHECK_FALSE(std::filesystem::exists(f.options.output / episode.id / "3.cpp"));

  const auto turns = f.store.LoadTurns(episode.id);
  REQUIRE(turns.size() == 4);
  CHECK(turns[0].reply == FakeReply("wrong"));
  CHECK(turns[0].evaluation.source == FakeSource("wrong"));
  CHECK(turns[0].feedback.find("out[0, 3] is 1.5") != std::string::npos);
  CHECK(turns[1].summary == "Tiled.");
  CHECK(turns[1].reward == Approx(1.8));
  CHECK(turns[1].prompt_template == "refine_turn");
  CHECK(turns[1].messages.at(1).content == f.requests[1].messages[1].content);
  CHECK(turns[1].messages[1].content.find(turns[0].feedback) != std::string::npos);
  CHECK(turns[2].evaluation.outcome == "parse_failed");
  CHECK(turns[2].evaluation.candidate_hash.empty());
  CHECK(f.store.LoadEvaluations(episode.id, 2).size() == 2);
  CHECK(f.store.LoadEvaluations(episode.id, 2)[1].purpose == "confirm");
  CHECK(f.requests[3].task.attempts.size() == 3);
  CHECK(f.requests[3].task.turn == 4);
}

TEST_CASE("no kernel was right: no best, no speed-up") {
  Fixture f;
  const EpisodeRecord episode = f.Run({FakeReply("wrong"), FakeReply("crash"), FakeReply("timeout")});
  CHECK(episode.state == EpisodeState::kDone);
  CHECK_FALSE(episode.best_turn);
  CHECK_FALSE(episode.best_speedup);
  CHECK(episode.best_path.empty());
}

TEST_CASE("confirmation can change the winner, and only confirmations are reported") {
  Fixture f;
  f.environment.pair_half_width = 0.03;
  f.environment.then["// measured 1.5"] = {"// measured 1.4"};
  f.environment.then["// measured 1.505"] = {"// measured 1.52", "// measured 1.46"};
  const EpisodeRecord episode = f.Run({FakeReply("measured 1.5"), FakeReply("measured 1.505")});
  CHECK(f.environment.calls == std::vector<std::string>{"// measured 1.5", "// measured 1.505 beside 1.5",
                                                        "// measured 1.5 (confirm)",
                                                        "// measured 1.505 (confirm) beside 1.5",
                                                        "// measured 1.505 (confirm)"});
  CHECK(episode.best_turn == 2);
  CHECK(episode.best_speedup == 1.46);
  CHECK(f.Output(episode, "best.cpp") == FakeSource("measured 1.505"));
}

TEST_CASE("a turn that is the same as the best one within 2 % costs no confirmation") {
  Fixture f;
  const EpisodeRecord episode = f.Run({FakeReply("measured 1.5"), FakeReply("measured 1.505")});
  CHECK(f.environment.calls == std::vector<std::string>{"// measured 1.5", "// measured 1.505 beside 1.5",
                                                        "// measured 1.5 (confirm)"});
  CHECK(episode.best_turn == 1);
}

TEST_CASE("a leader that is wrong when measured again loses its turn too") {
  Fixture f;
  f.environment.then["// measured 1.5"] = {"// wrong"};
  const EpisodeRecord episode = f.Run({FakeReply("measured 1.5"), FakeReply("measured 1.2")});
  CHECK(episode.best_turn == 2);
  CHECK(episode.correct_turns == 1);
  const auto evaluations = f.store.LoadEvaluations(episode.id, 1);
  REQUIRE(evaluations.size() == 2);
  CHECK(evaluations[0].superseded_by == evaluations[1].id);
  CHECK(evaluations[1].outcome == "wrong");
  CHECK(evaluations[1].reason.find("non-deterministic") == 0);
  CHECK_FALSE(f.store.FindEvaluationByKey(evaluations[0].key));
}

TEST_CASE("--until stops at a confirmed speed-up") {
  Fixture f;
  f.options.until = 1.4;
  f.environment.then["// measured 1.45"] = {"// measured 1.3"};
  const EpisodeRecord episode = f.Run({FakeReply("measured 1.41"), FakeReply("measured 1.45"),
                                       FakeReply("measured 1.6"), FakeReply("measured 2")});
  CHECK(episode.turns == 3);
  CHECK(episode.best_turn == 3);
  CHECK(episode.best_speedup == 1.6);
  CHECK(f.environment.calls == std::vector<std::string>{"// measured 1.41", "// measured 1.45 beside 1.41",
                                                        "// measured 1.45 (confirm)",
                                                        "// measured 1.6 beside 1.45",
                                                        "// measured 1.6 (confirm)"});
}

TEST_CASE("--from: turn 0, and every later kernel is paired against it") {
  Fixture f;
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
  Fixture f;
  f.options.start_source = FakeSource("measured 2");
  const EpisodeRecord episode = f.Run({FakeReply("measured 1.5")});
  CHECK(episode.best_turn == 0);
  CHECK(f.Output(episode, "best.cpp") == FakeSource("measured 2"));
  CHECK(f.environment.calls.back() == "// measured 2 (confirm)");  // not against itself
}

TEST_CASE("each correct turn is timed beside the best so far, and only that makes another one the best") {
  Fixture f;
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
  Fixture f;
  f.options.start_source = FakeSource("measured 1");
  const EpisodeRecord episode = f.Run({FakeReply("measured 2"), FakeReply("measured 3")});
  const auto turns = f.store.LoadTurns(episode.id);
  CHECK(turns[2].evaluation.against_best_turn == 1);
  CHECK(turns[2].evaluation.against_best->value == Approx(1.5));
  CHECK(turns[2].evaluation.against_start->value == Approx(3));
  CHECK(turns[2].evaluation.against_start->low > 3 * 0.98);  // in quadrature, not added up
}

TEST_CASE("a stored verdict that may be the best is measured beside the best, a clearly slower one stands") {
  Fixture f;
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
  Fixture f;
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
  Fixture f;
  f.Run({FakeReply("measured 1.1")});
  f.options.start_source = FakeSource("measured 1.1");
  f.options.turns = 8;
  const EpisodeRecord episode = f.Run({FakeReply("measured 1.5")});
  const auto start = f.store.LoadTurn(episode.id, 0);
  CHECK_FALSE(start->evaluation.cached_from.empty());
  CHECK(start->feedback.find("judged before") == std::string::npos);
}

TEST_CASE("a reply may be a diff or a function against the latest kernel; one that does not fit says where") {
  Fixture f;
  f.options.asks_for_diff = true;
  const std::string diff = "```diff\n@@ -1,1 +1,1 @@\n-// measured 1.5\n+// measured 1.7\n```\nFaster.\n";
  const std::string late = "```diff\n@@ -1,1 +1,1 @@\n-// measured 1.9\n+// measured 2\n```\n";
  const EpisodeRecord episode = f.Run({FakeReply("measured 1.5"), diff, late, FakeReply("wrong")});
  const auto turns = f.store.LoadTurns(episode.id);
  CHECK((turns[0].reply_form == "whole" && turns[1].reply_form == "diff" && turns[2].reply_form.empty()));
  CHECK(turns[1].evaluation.source == FakeSource("measured 1.7"));
  CHECK(turns[1].summary == "Faster.");
  CHECK(turns[2].evaluation.reason ==
        "hunk 1 of the diff does not apply: the kernel has no line `// measured 1.9`");
  const std::string prompt = f.requests[3].messages[1].content;
  CHECK(prompt.find("The diff must fit the latest kernel above.") != std::string::npos);
  CHECK(prompt.find("The reply, shortened:\n\n~~~~\n```diff\n@@ -1,1 +1,1 @@\n-// measured 1.9") !=
        std::string::npos);
  CHECK(prompt.find("Answer with a unified diff against the kernel of turn 2 ") != std::string::npos);
  CHECK(f.requests[0].messages[1].content.find("unified diff") == std::string::npos);
}

TEST_CASE("a leader found wrong on the way leads no more") {
  Fixture f;
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

TEST_CASE("--continue goes on where the episode ended") {
  Fixture f;
  f.options.note = "Mind the cache.";
  f.options.start_source = FakeSource("measured 1.1");
  const EpisodeRecord first = f.Run({FakeReply("measured 1.5"), FakeReply("wrong")});
  const EpisodeOptions before = f.options;
  f.options = OptionsToContinue(first, 1);
  f.options.run = f.run;
  f.options.output = before.output;
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

TEST_CASE("what a continued episode finds superseded is not right any more") {
  Fixture f;
  f.environment.then["// measured 1.5"] = {"// crash", "// crash"};
  const EpisodeRecord first = f.Run({FakeReply("measured 1.5"), FakeReply("measured 1.2")});
  const EpisodeOptions before = f.options;
  f.options = OptionsToContinue(first, 1);
  f.options.run = f.run;
  f.options.output = before.output;
  const EpisodeRecord second = f.Run({FakeReply("measured 1.1")});
  CHECK(second.best_turn == 2);
  CHECK(f.requests[0].task.attempts[0].outcome == "wrong");
}

TEST_CASE("an infrastructure fault voids the turn: once it is tried again, twice it ends the episode") {
  Fixture f;
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
  Fixture f;
  f.options.turns = 2;
  CHECK_THROWS_AS(f.Run({FakeReply("measured 1.5")}), Error);
  CHECK(f.store.ListEpisodes(1).at(0).state == EpisodeState::kFailed);
  CHECK(f.store.ListEpisodes(1).at(0).turns == 1);
}

TEST_CASE("interrupted: what was done is kept, nothing more is measured") {
  Fixture f;
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

TEST_CASE("a verdict that is known is repeated, not measured") {
  Fixture f;
  const EpisodeRecord first = f.Run({FakeReply("measured 1.5"), FakeReply("wrong")});
  f.environment.calls.clear();
  const EpisodeRecord second = f.Run({FakeReply("measured 1.5"), FakeReply("wrong")});
  CHECK(f.environment.calls == std::vector<std::string>{"// measured 1.5 (confirm)"});
  const auto turns = f.store.LoadTurns(second.id);
  const auto earlier = f.store.LoadTurns(first.id);
  CHECK(turns[0].evaluation.cached_from == earlier[0].evaluation.id);
  CHECK(turns[0].evaluation.speedup->value == 1.5);
  CHECK(turns[1].evaluation.outcome == "wrong");
  CHECK(turns[1].feedback.find("judged before") != std::string::npos);
  CHECK(second.best_speedup == 1.5);
}

TEST_CASE("a stored time is not used where it would lack the pairs against the start") {
  Fixture f;
  f.Run({FakeReply("measured 1.5"), FakeReply("wrong")});
  f.environment.calls.clear();
  f.options.start_source = FakeSource("measured 1.1");
  f.Run({FakeReply("measured 1.5"), FakeReply("wrong")});
  CHECK(f.environment.calls == std::vector<std::string>{"// measured 1.1", "// measured 1.5 beside 1.1",
                                                        "// measured 1.5 (confirm) beside 1.1"});
}

TEST_CASE("cached verdicts that are checked again") {
  Fixture f;
  const EpisodeRecord first = f.Run({FakeReply("measured 1.5")});
  f.options.audit_rates.cached = 1;
  f.environment.calls.clear();
  SECTION("agreement: the verdict is the earlier one, the second measurement is kept beside it") {
    const EpisodeRecord second = f.Run({FakeReply("measured 1.5")});
    CHECK(f.environment.calls.size() == 2);
    const auto evaluations = f.store.LoadEvaluations(second.id, 1);
    REQUIRE(evaluations.size() == 3);
    CHECK_FALSE(evaluations[0].cached_from.empty());
    CHECK(evaluations[1].purpose == "audit");
    CHECK(evaluations[2].purpose == "confirm");
  }
  SECTION("what a busy machine may have caused contradicts nothing if it comes once") {
    f.environment.then["// measured 1.5"] = {"// crash", "// measured 1.4", "// timeout", "// measured 1.4"};
    const EpisodeRecord second = f.Run({FakeReply("measured 1.5")});
    CHECK(f.environment.calls.size() == 4);
    CHECK(second.best_turn == 1);
    CHECK(f.store.LoadEvaluations(first.id, 1)[0].superseded_by.empty());
  }
  SECTION("contradiction: wrong, and the earlier verdict is superseded") {
    f.environment.then["// measured 1.5"] = {"// crash", "// crash"};
    const EpisodeRecord second = f.Run({FakeReply("measured 1.5")});
    CHECK_FALSE(second.best_turn);
    const auto turn = f.store.LoadTurn(second.id, 1);
    CHECK(turn->evaluation.outcome == "wrong");
    CHECK(turn->evaluation.reason.find("non-deterministic: measured before, crashed on new seeds") == 0);
    CHECK(turn->evaluation.cached_from.empty());
    const auto before = f.store.LoadEvaluations(first.id, 1);
    CHECK(before[0].superseded_by == turn->evaluation.id);
  }
}

TEST_CASE("a text that compiles to known machine code gets its verdict") {
  const auto other_text = [](const std::string& comment) {
    return fmt::format("```cpp\n{}// another text\n```\n", FakeSource(comment));
  };
  Fixture f;
  f.environment.machine_keys = true;
  const EpisodeRecord first = f.Run({FakeReply("measured 1.5"), FakeReply("wrong"), FakeReply("crash")});
  f.environment.calls.clear();
  SECTION("it is repeated; what a busy machine may have caused is not") {
    const EpisodeRecord second =
        f.Run({other_text("measured 1.5"), other_text("wrong"), other_text("crash")});
    CHECK(f.environment.calls ==
          std::vector<std::string>{"// crash beside 1.5", "// measured 1.5 (confirm)"});
    const auto turns = f.store.LoadTurns(second.id), earlier = f.store.LoadTurns(first.id);
    CHECK(turns[0].evaluation.cached_from == earlier[0].evaluation.id);
    CHECK(turns[0].evaluation.key != earlier[0].evaluation.key);
    CHECK(turns[0].evaluation.speedup->value == 1.5);
    CHECK(turns[1].evaluation.outcome == "wrong");
  }
  SECTION("one that is checked again and contradicts it makes both wrong") {
    f.options.audit_rates.cached = 1;
    f.options.turns = 1;
    f.environment.then["// measured 1.5"] = {"// crash", "// crash"};
    const EpisodeRecord second = f.Run({other_text("measured 1.5")});
    const auto turn = f.store.LoadTurn(second.id, 1);
    CHECK(turn->evaluation.reason.find("non-deterministic: measured before, crashed on new seeds") == 0);
    CHECK(f.store.LoadEvaluations(first.id, 1)[0].superseded_by == turn->evaluation.id);
  }
  SECTION("other machine code is judged") {
    f.options.turns = 1;
    f.Run({FakeReply("measured 1.25")});
    CHECK(f.environment.calls.size() == 2);
  }
}

TEST_CASE("fresh measurements that are made twice") {
  Fixture f;
  f.options.audit_rates.fresh = 1;
  SECTION("agreement: the first counts, the second is kept beside it") {
    const EpisodeRecord episode = f.Run({FakeReply("measured 1.5")});
    const auto evaluations = f.store.LoadEvaluations(episode.id, 1);
    REQUIRE(evaluations.size() == 3);
    CHECK(evaluations[0].purpose == "turn");
    CHECK(evaluations[1].purpose == "audit");
  }
  SECTION("contradiction: wrong") {
    f.environment.then["// measured 1.5"] = {"// crash", "// crash"};
    const EpisodeRecord episode = f.Run({FakeReply("measured 1.5")});
    CHECK(f.store.LoadTurn(episode.id, 1)->evaluation.reason.find("non-deterministic") == 0);
    CHECK_FALSE(episode.best_turn);
  }
  SECTION("what was not measured is not repeated") {
    f.Run({FakeReply("wrong")});
    CHECK(f.environment.calls.size() == 1);
  }
}

TEST_CASE("what a busy machine may have caused is not answered from the store") {
  Fixture f;
  f.Run({FakeReply("crash")});
  f.environment.calls.clear();
  f.Run({FakeReply("crash")});
  CHECK(f.environment.calls.size() == 1);
}

TEST_CASE("one cached verdict in twenty is checked again") {
  Fixture f;
  f.Run({FakeReply("wrong")});
  f.environment.calls.clear();
  Judge judge(f.problem, f.environment, f.store, {}, AuditRates{0.05, 0}, 1, nullptr);
  int audits = 0;
  for (int i = 0; i < 1000; ++i) audits += judge.Decide(i, {"cpp", FakeSource("wrong")}).audit ? 1 : 0;
  CHECK(audits == static_cast<int>(f.environment.calls.size()));
  CHECK(audits >= 25);
  CHECK(audits <= 80);
}

namespace {
std::string CudaReply(const std::string& comment) {
  return fmt::format("```cuda\n{}```\n", FakeSource(comment));
}
}  // namespace

TEST_CASE("an episode on a GPU writes the environment's first kind at its default size") {
  Fixture f;
  f.environment.facts = testing::GpuFacts();
  f.environment.facts.gpu = {89, 142, 99 << 10};
  f.options.workload.tf32 = true;
  const EpisodeRecord episode = f.Run({CudaReply("wrong"), CudaReply("measured 1.5"), "no code"});
  CHECK((episode.kind == "cuda" && episode.device == "cuda:0: fake" && episode.workload.size == "full"));
  CHECK(episode.workload.tf32);
  CHECK(f.Output(episode, "1.cu") == FakeSource("wrong"));
  CHECK(f.Output(episode, "best.cu") == FakeSource("measured 1.5"));
  CHECK(episode.best_path == (f.options.output / episode.id / "best.cu").string());
  CHECK_FALSE(std::filesystem::exists(f.options.output / episode.id / "best.cpp"));

  REQUIRE(f.requests.size() == 3);
  CHECK((f.requests[0].task.kind == "cuda" && f.requests[0].task.tf32));
  CHECK((f.requests[0].task.device.capability == 89 && f.requests[0].task.device.multiprocessors == 142));
  CHECK(f.requests[0].task.signature == "void launch(const float* x, float* out)");
  const std::string prompt = f.requests[2].messages[1].content;
  CHECK(prompt.find("The machine: Fake GPU, 132 multiprocessors, sm_90a.") != std::string::npos);
  CHECK(prompt.find("occupancy 75 % (limited by registers)") != std::string::npos);
  CHECK(prompt.find("75 % of the 4 GB/s of device memory") != std::string::npos);

  const auto turns = f.store.LoadTurns(episode.id);
  CHECK((turns[1].evaluation.kind == "cuda" && turns[1].evaluation.workload.tf32));
  CHECK(turns[1].evaluation.kernels.find("\"registers\":40") != std::string::npos);
  CHECK((turns[1].evaluation.peak_gb_per_s == 4 && turns[1].evaluation.device_s == 0.25));
  CHECK((turns[2].evaluation.outcome == "parse_failed" && turns[2].evaluation.workload.tf32));
  CHECK(turns[2].feedback.find("marked `cuda`") != std::string::npos);

  SECTION("a verdict that is known is repeated with its kernels, but not under another rule for TF32") {
    f.environment.calls.clear();
    f.options.turns = 2;
    const EpisodeRecord again = f.Run({CudaReply("wrong"), CudaReply("measured 1.5")});
    CHECK(f.environment.calls == std::vector<std::string>{"// measured 1.5 (confirm)"});
    const auto repeated = f.store.LoadTurn(again.id, 2);
    CHECK(repeated->evaluation.kernels == turns[1].evaluation.kernels);
    CHECK_FALSE(repeated->evaluation.device_s);  // this time the device was not held
    f.options.workload.tf32 = false;
    f.environment.calls.clear();
    f.Run({CudaReply("wrong"), CudaReply("measured 1.5")});
    CHECK(f.environment.calls.size() == 3);
  }
  SECTION("it goes on as it was begun, on a GPU only") {
    const EpisodeOptions more = OptionsToContinue(episode, 1);
    CHECK((more.workload.tf32 && more.workload.size == "full"));
    f.options.continue_episode = more.continue_episode;
    f.environment.facts = testing::FakeEnvironment().facts;
    f.options.workload.size = "full";
    CHECK_THROWS_AS(f.Run({FakeReply("wrong")}), Error);
    CHECK(f.store.FindEpisode(episode.id).turns == 3);
  }
}

TEST_CASE("an episode of Python modules: files in .py, rules as asked, and continued as it was begun") {
  Fixture f;
  f.environment.facts.kinds = {"cpp", "modelnew", "triton"};
  f.options.kind = "modelnew";
  const auto source = [](const std::string& comment) {
    return "// " + comment + "\nimport torch\nclass ModelNew(torch.nn.Module):\n    pass\n";
  };
  const auto reply = [&](const std::string& comment) {
    return "```python\n" + source(comment) + "```\nChanged it.\n";
  };
  f.options.turns = 2;
  const EpisodeRecord episode = f.Run({reply("refused"), reply("measured 1.5")});
  CHECK((episode.kind == "modelnew" && episode.best_turn == 2));
  CHECK(f.Output(episode, "1.py") == source("refused"));
  CHECK(f.Output(episode, "best.py") == source("measured 1.5"));
  CHECK(f.requests[1].messages[1].content.find("at least 90 % of the time of `forward`") !=
        std::string::npos);
  CHECK(f.requests[1].messages[1].content.find("```python\n// refused") != std::string::npos);
  CHECK(f.requests[1].messages[1].content.find("| 1 | refused |") ==
        std::string::npos);  // a table of one is none
  const EpisodeOptions more = OptionsToContinue(episode, 1);
  CHECK(more.kind == "modelnew");
  f.options.workload.rules = "open";
  f.options.turns = 1;
  f.Run({reply("measured 1.2")});
  CHECK(f.requests[0].messages[1].content.find("at least 90 %") == std::string::npos);
  // Of a deep network the class has other widths than the problem at size small.
  f.problem.model = ModelFacts{};
  f.problem.model->sizes = {"full"};
  f.options.workload.size = "small";
  try {
    f.Run({reply("measured 1.5")});
    FAIL_CHECK("no error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadRequest);
    CHECK(error.next_step() == "use --size full, or a kind other than modelnew");
  }
}

TEST_CASE("the kernel of --from must be of the episode's kind") {
  Fixture f;
  f.options.start_source = FakeSource("measured 1.1");
  f.options.start_kind = "cuda";
  try {
    f.Run({FakeReply("wrong")});
    FAIL("no Error");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadRequest);
    CHECK(error.what() ==
          std::string("the kernel to start from is of kind cuda; this episode's are of kind cpp"));
  }
  CHECK(f.store.ListEpisodes(10).empty());
  f.environment.facts = testing::GpuFacts();
  const EpisodeRecord episode = f.Run({CudaReply("measured 1.5")});
  CHECK(f.Output(episode, "0.cu") == FakeSource("measured 1.1"));
}

TEST_CASE("an episode of CUDA kernels may start from PTX") {
  Fixture f;
  f.environment.facts = testing::GpuFacts();
  f.options.start_source = FakeSource("measured 1.1");
  f.options.start_kind = "ptx";
  const EpisodeRecord episode = f.Run({CudaReply("measured 1.5")});
  CHECK(f.Output(episode, "0.ptx") == FakeSource("measured 1.1"));
  const auto turns = f.store.LoadTurns(episode.id);
  REQUIRE(turns.size() == 2);
  CHECK((turns[0].evaluation.kind == "ptx" && turns[1].evaluation.kind == "cuda"));
  CHECK(turns[1].evaluation.against_start.has_value());
}

TEST_CASE("what cannot work is said before anything is stored") {
  Fixture f;
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

namespace {

// Reports requests as a remote policy does: one that fails, one that answers, and then what `end` says.
class PayingPolicy : public testing::ScriptedPolicy {
 public:
  using ScriptedPolicy::ScriptedPolicy;
  std::function<void(const Request&)> before;

  Completion Complete(const Request& request, const CancelToken* cancel, const OnText& on_text) override {
    if (before) before(request);
    RequestAttempt attempt;
    attempt.provider = "openai";
    attempt.url = "http://127.0.0.1/v1/chat/completions";
    attempt.request = "{\"turn\":" + std::to_string(request.task.turn) + "}";
    attempt.outcome = "sent";
    request.on_attempt(attempt);
    attempt.outcome = "failed";
    attempt.status = 529;
    attempt.error = "HTTP 529";
    attempt.cost_usd = 0;
    request.on_attempt(attempt);
    attempt.number = 2;
    attempt.outcome = "sent";
    attempt.status = {};
    attempt.error = "";
    attempt.cost_usd = {};
    request.on_attempt(attempt);
    Completion completion = ScriptedPolicy::Complete(request, cancel, on_text);
    completion.usage = {1000, 100, 50, 10, 5};
    completion.cost_usd = 0.25;
    attempt.outcome = "answered";
    attempt.status = 200;
    attempt.seconds = 1.5;
    attempt.usage = completion.usage;
    attempt.cost_usd = 0.25;
    attempt.response = "data: [DONE]\n\n";
    request.on_attempt(attempt);
    return completion;
  }
};

}  // namespace

TEST_CASE("every request of a policy is stored with its turn, also those of a turn that fails") {
  Fixture f;
  PayingPolicy policy({FakeReply("measured 1.5"), FakeReply("wrong")});
  f.options.turns = 3;
  std::string episode;
  std::vector<int> seen;
  f.hooks.on_begin = [&](const EpisodeRecord& record) { episode = record.id; };
  f.hooks.on_turn = [&](const TurnRecord& turn, const EpisodeRecord&) { seen.push_back(turn.requests); };
  CHECK_THROWS_AS(RunEpisode(f.problem, policy, f.environment, f.store, f.options, f.hooks, &f.cancel),
                  Error);
  CHECK(seen == std::vector<int>{2, 2});
  const auto requests = f.store.LoadRequests(episode, 1);
  REQUIRE(requests.size() == 2);
  CHECK((requests[0].attempt == 1 && requests[0].outcome == "failed" && requests[0].status == 529));
  CHECK((requests[1].attempt == 2 && requests[1].outcome == "answered" && requests[1].cost_usd == 0.25));
  CHECK((requests[1].usage.prompt_tokens == 1000 && requests[1].cache_write_tokens == 5));
  CHECK(requests[1].request == "{\"turn\":1}");
  CHECK(requests[1].response == "data: [DONE]\n\n");
  const auto turn = f.store.LoadTurn(episode, 1);
  CHECK((turn->requests == 2 && turn->cost_usd == 0.25));
  // The third turn has no answer; its request under way stays as it was left.
  REQUIRE(f.store.LoadRequests(episode, 3).size() == 2);
  CHECK(f.store.LoadRequests(episode, 3)[1].outcome == "sent");
  const EpisodeRecord record = f.store.FindEpisode(episode);
  CHECK(record.state == EpisodeState::kFailed);
  CHECK((record.turns == 2 && record.requests == 6));
  CHECK_FALSE(record.cost_usd);  // nobody knows what the last one cost
}

TEST_CASE("an episode follows one answer a turn") {
  Fixture f;
  f.options.sampling.n = 2;
  CHECK_THROWS_AS(f.Run({FakeReply("wrong")}), Error);
  CHECK(f.store.ListEpisodes(10).empty());
}

TEST_CASE("a budget that is reached ends the episode well: the winner is confirmed") {
  Fixture f;
  PayingPolicy policy({FakeReply("measured 1.5"), FakeReply("measured 1.2")});
  policy.before = [](const Request& request) {
    if (request.task.turn == 3) throw BudgetReached(ExitCode::kDone, "the budget of $1 is reached");
  };
  f.options.turns = 8;
  const EpisodeRecord episode =
      RunEpisode(f.problem, policy, f.environment, f.store, f.options, f.hooks, &f.cancel);
  CHECK(episode.state == EpisodeState::kInterrupted);
  CHECK(episode.state_reason == "the budget of $1 is reached");
  CHECK((episode.turns == 2 && episode.best_turn == 1 && episode.best_speedup == 1.5));
  CHECK(f.environment.calls.back() == "// measured 1.5 (confirm)");
}

TEST_CASE("a prompt that a server finds too long is made shorter until it fits") {
  Fixture f;
  std::vector<std::string> replies;
  for (int i = 0; i < 6; ++i) replies.push_back(FakeReply("wrong", "Summary." + std::string(2000, '.')));
  PayingPolicy policy(replies);
  size_t limit = 0;
  policy.before = [&](const Request& request) {
    size_t bytes = 0;
    for (const Message& message : request.messages) bytes += message.content.size();
    if (request.task.turn == 3) limit = bytes;
    if (request.task.turn > 3 && bytes > limit) throw PromptTooLong(ExitCode::kBadRequest, "too long");
  };
  f.options.turns = 6;
  f.options.prompt_token_budget = 100000;
  const EpisodeRecord episode =
      RunEpisode(f.problem, policy, f.environment, f.store, f.options, f.hooks, &f.cancel);
  CHECK((episode.state == EpisodeState::kDone && episode.turns == 6));
  const std::string last = f.store.LoadTurn(episode.id, 6)->messages.at(1).content;
  CHECK(last == policy.requests.back().messages[1].content);
  CHECK(last.find("| 5 | wrong: ") != std::string::npos);
  CHECK(last.find("| 4 | wrong: ") == std::string::npos);
  CHECK(last.find("### Turn 5\n") != std::string::npos);
  CHECK(last.find("### Turn 1\n") == std::string::npos);

  policy.before = [](const Request&) { throw PromptTooLong(ExitCode::kBadRequest, "too long"); };
  CHECK_THROWS_AS(RunEpisode(f.problem, policy, f.environment, f.store, f.options, f.hooks, &f.cancel),
                  PromptTooLong);
}

}  // namespace kevin
