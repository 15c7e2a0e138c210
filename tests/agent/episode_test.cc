// The loop of turns: what is asked, judged, stored and told, which turn wins, when it stops.

#include "agent/episode.h"

#include "tests/agent/episode_fixture.h"
#include "tests/catch.h"
#include "tests/support/golden.h"

namespace kevin {
namespace {

using testing::EpisodeFixture;
using testing::FakeReply;
using testing::FakeSource;

std::string TurnText(const TurnRecord& turn) {
  std::string text = fmt::format("######## turn {}: {}", turn.turn, turn.evaluation.outcome);
  if (turn.evaluation.speedup) text += fmt::format(" {:.2f}x", turn.evaluation.speedup->value);
  text += "\n";
  for (const MessageRecord& message : turn.messages)
    text += "==== " + message.role + "\n" + message.content + "\n";
  return text + "==== reply\n" + turn.reply + "==== feedback\n" + turn.feedback + "\n\n";
}

}  // namespace

TEST_CASE("an episode: asked, judged, stored, told, confirmed") {
  EpisodeFixture f;
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

TEST_CASE("no kernel was correct: no best, no speed-up") {
  EpisodeFixture f;
  const EpisodeRecord episode = f.Run({FakeReply("wrong"), FakeReply("crash"), FakeReply("timeout")});
  CHECK(episode.state == EpisodeState::kDone);
  CHECK_FALSE(episode.best_turn);
  CHECK_FALSE(episode.best_speedup);
  CHECK(episode.best_path.empty());
}

TEST_CASE("confirmation can change the winner, and only confirmations are reported") {
  EpisodeFixture f;
  f.environment.pair_half_width = 0.03;
  f.environment.then["// measured 1.5"] = {"// measured 1.4"};
  f.environment.then["// measured 1.505"] = {"// measured 1.52", "// measured 1.46"};
  const EpisodeRecord episode = f.Run({FakeReply("measured 1.5"), FakeReply("measured 1.505")});
  CHECK(f.environment.calls == std::vector<std::string>{"// measured 1.5", "// measured 1.505 beside 1.5",
                                                        "// measured 1.505 (confirm) beside 1.5",
                                                        "// measured 1.505 (confirm)"});
  CHECK(episode.best_turn == 2);
  CHECK(episode.best_speedup == 1.46);
  CHECK(f.Output(episode, "best.cpp") == FakeSource("measured 1.505"));
}

TEST_CASE("a turn that is the same as the best one within 2 % costs no confirmation") {
  EpisodeFixture f;
  const EpisodeRecord episode = f.Run({FakeReply("measured 1.5"), FakeReply("measured 1.505")});
  CHECK(f.environment.calls == std::vector<std::string>{"// measured 1.5", "// measured 1.505 beside 1.5",
                                                        "// measured 1.5 (confirm)"});
  CHECK(episode.best_turn == 1);
}

TEST_CASE("a leader that is wrong when measured again loses its turn too") {
  EpisodeFixture f;
  f.environment.then["// measured 1.5"] = {"// wrong"};
  const EpisodeRecord episode = f.Run({FakeReply("measured 1.5"), FakeReply("measured 1.2")});
  CHECK(episode.best_turn == 2);
  CHECK(episode.correct_turns == 1);
  const auto evaluations = f.store.LoadEvaluations(episode.id, 1);
  REQUIRE(evaluations.size() == 2);
  CHECK(evaluations[0].superseded_by == evaluations[1].id);
  CHECK(evaluations[1].outcome == "wrong");
  CHECK(evaluations[1].reason.find("non-deterministic") == 0);
  // The text is wrong from now on: it is not judged anew.
  CHECK(f.store.FindEvaluationByKey(evaluations[0].key)->id == evaluations[1].id);
  const size_t calls = f.environment.calls.size();
  f.options.turns = 1;
  const EpisodeRecord next = f.Run({FakeReply("measured 1.5")});
  CHECK((next.correct_turns == 0 && f.environment.calls.size() == calls));
  CHECK(f.store.LoadTurns(next.id).back().evaluation.cached_from == evaluations[1].id);
}

TEST_CASE("--until stops at a confirmed speed-up") {
  EpisodeFixture f;
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

TEST_CASE("a reply may be a diff or a function against the latest kernel; one that does not fit says where") {
  EpisodeFixture f;
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

TEST_CASE("an episode follows one answer a turn") {
  EpisodeFixture f;
  f.options.sampling.n = 2;
  CHECK_THROWS_AS(f.Run({FakeReply("wrong")}), Error);
  CHECK(f.store.ListEpisodes(10).empty());
}

// What was sent, what came back, what was decided. Read the diff when it changes.
TEST_CASE("a golden transcript of an episode") {
  testing::TempFolder folder;
  testing::FakeEnvironment environment;
  Store store = Store::Open(folder.path() / "kevin.db", OpenMode::kCreate);
  const Problem problem = testing::ReluProblem();
  testing::ScriptedPolicy policy({
      "<think>Which way?</think>\n" + testing::FakeReply("compile", "A first try."),
      testing::FakeReply("measured 0.8", "Declared y."),
      testing::FakeReply("measured 1.5", "Split the loop over the threads."),
  });
  EpisodeOptions options;
  options.turns = 3;
  options.run = store.BeginRun({});
  options.output = folder.path() / "out";
  options.machine = "Fake CPU, 2 cores, avx2 fma";
  options.threads = 2;
  options.note = "Keep it short.";
  const EpisodeRecord episode = RunEpisode(problem, policy, environment, store, options, {}, nullptr);
  std::string text;
  for (const TurnRecord& turn : store.LoadTurns(episode.id)) text += TurnText(turn);
  text += fmt::format("best: turn {} with {:.2f}x\n", episode.best_turn.value_or(-1),
                      episode.best_speedup.value_or(0));
  testing::CheckGolden("tests/playthroughs/scripted_relu.txt", text);
}

}  // namespace kevin
