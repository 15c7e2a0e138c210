// A whole episode as text: what was sent, what came back, what was decided. Read the diff when it changes.

#include "agent/episode.h"
#include "tests/catch.h"
#include "tests/support/fakes.h"
#include "tests/support/golden.h"

namespace kevin {
namespace {

std::string TurnText(const TurnRecord& turn) {
  std::string text = fmt::format("######## turn {}: {}", turn.turn, turn.evaluation.outcome);
  if (turn.evaluation.speedup) text += fmt::format(" {:.2f}x", turn.evaluation.speedup->value);
  text += "\n";
  for (const MessageRecord& message : turn.messages)
    text += "==== " + message.role + "\n" + message.content + "\n";
  return text + "==== reply\n" + turn.reply + "==== feedback\n" + turn.feedback + "\n\n";
}

}  // namespace

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
