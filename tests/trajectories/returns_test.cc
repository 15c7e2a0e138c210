// View turn_returns against numbers worked out by hand.

#include <cmath>

#include "tests/catch.h"
#include "tests/trajectories/sample_records.h"
#include "tests/trajectories/test_database.h"

namespace kevin {
namespace {

std::string EpisodeWithRewards(Store& store, const std::string& run, const std::vector<double>& rewards,
                               const std::string& problem_text = SampleProblem().text,
                               EpisodeState state = EpisodeState::kDone) {
  ProblemRecord problem = SampleProblem();
  problem.text = problem_text;
  problem.content_hash = ContentHash(problem_text);
  const std::string episode = store.BeginEpisode(SampleEpisode(run), problem);
  int turn = 0;
  for (const double reward : rewards) {
    TurnRecord record = SampleTurn(++turn, 1.0);
    record.reward = reward;
    store.AppendTurn(episode, record);
  }
  EpisodeEnd end;
  end.state = state;
  if (state != EpisodeState::kRunning) store.FinishEpisode(episode, end);
  return episode;
}

double Value(Database& database, const std::string& column, const std::string& episode, int turn) {
  Statement statement =
      database.Prepare("SELECT " + column + " FROM turn_returns WHERE episode = ? AND turn = ?");
  statement.Bind(episode, turn);
  REQUIRE(statement.Step());
  return statement.Real(0);
}

TEST_CASE("returns discount what comes after, advantages compare with the same problem in the same run") {
  TestDatabase test;
  Store store = test.Open(OpenMode::kCreate);
  const std::string run = store.BeginRun(SampleRun());
  const std::string a = EpisodeWithRewards(store, run, {0, 1, 2});
  const std::string b = EpisodeWithRewards(store, run, {1.5});
  EpisodeWithRewards(store, run, {100}, "another problem");
  EpisodeWithRewards(store, store.BeginRun(SampleRun()), {50});  // another run
  Database database = test.Look();

  // R3 = 2; R2 = 1 + 0.4 * 2 = 1.8; R1 = 0 + 0.4 * 1.8 = 0.72.
  CHECK(Value(database, "return", a, 3) == Approx(2.0));
  CHECK(Value(database, "return", a, 2) == Approx(1.8));
  CHECK(Value(database, "return", a, 1) == Approx(0.72));
  CHECK(Value(database, "return", b, 1) == Approx(1.5));

  // mean = (2 + 1.8 + 0.72 + 1.5) / 4 = 1.505; deviations 0.495, 0.295, -0.785, -0.005; their squares
  // 0.245025 + 0.087025 + 0.616225 + 0.000025 = 0.9483, a quarter of it 0.237075, its root 0.4869035.
  CHECK(Value(database, "group_mean", a, 1) == Approx(1.505));
  CHECK(Value(database, "group_turns", a, 1) == 4);
  CHECK(Value(database, "advantage", a, 3) == Approx(0.495 / 0.4869035).epsilon(1e-5));
  CHECK(Value(database, "advantage", a, 1) == Approx(-0.785 / 0.4869035).epsilon(1e-5));
  CHECK(Value(database, "advantage", b, 1) == Approx(-0.005 / 0.4869035).epsilon(1e-4));
  CHECK(database.QueryInteger("SELECT count(*) FROM turn_returns") == 6);
}

TEST_CASE("unfinished episodes are left out of returns, and counted beside those of their problem and run") {
  TestDatabase test;
  Store store = test.Open(OpenMode::kCreate);
  const std::string run = store.BeginRun(SampleRun()), text = SampleProblem().text;
  const std::string a = EpisodeWithRewards(store, run, {0, 1});
  const std::string b = EpisodeWithRewards(store, run, {1});
  const std::string alone = EpisodeWithRewards(store, run, {1}, "another problem");
  EpisodeWithRewards(store, run, {5}, text, EpisodeState::kRunning);
  const std::string stopped = EpisodeWithRewards(store, run, {6}, text, EpisodeState::kInterrupted);
  EpisodeWithRewards(store, run, {7, 8}, text, EpisodeState::kFailed);
  EpisodeWithRewards(store, run, {9}, "a third problem", EpisodeState::kRunning);
  Database database = test.Look();
  CHECK(database.QueryInteger("SELECT count(*) FROM turn_returns") == 4);
  // Returns 0.4, 1 and 1: mean 0.8, variance (0.16 + 0.04 + 0.04) / 3 = 0.08.
  CHECK(Value(database, "group_mean", a, 1) == Approx(0.8));
  CHECK(Value(database, "group_turns", a, 1) == 3);
  CHECK(Value(database, "advantage", a, 1) == Approx(-0.4 / std::sqrt(0.08)));
  CHECK(Value(database, "unfinished_episodes", a, 2) == 3);
  CHECK(Value(database, "unfinished_episodes", b, 1) == 3);
  CHECK(Value(database, "unfinished_episodes", alone, 1) == 0);
  // An episode that goes on and ends takes part again.
  store.ResumeEpisode(stopped, run, 1);
  store.FinishEpisode(stopped, {});
  CHECK(Value(database, "return", stopped, 1) == Approx(6));
  CHECK(Value(database, "unfinished_episodes", a, 1) == 2);
}

TEST_CASE("a group without spread has no advantage, and the user's own kernel takes no part") {
  TestDatabase test;
  Store store = test.Open(OpenMode::kCreate);
  const std::string run = store.BeginRun(SampleRun());
  const std::string a = EpisodeWithRewards(store, run, {1.3});
  const std::string b = EpisodeWithRewards(store, run, {1.3});
  TurnRecord start = SampleTurn(0, 9.0);
  start.evaluation.purpose = "start";
  store.AppendTurn(b, start);
  Database database = test.Look();
  CHECK(Value(database, "advantage", a, 1) == 0);
  CHECK(Value(database, "return", b, 1) == Approx(1.3));
  CHECK(database.QueryInteger("SELECT count(*) FROM turn_returns") == 2);
  CHECK(database.QueryInteger("SELECT count(*) FROM turn_results") == 3);
}

TEST_CASE("a superseded verdict changes the reward that returns are made of") {
  TestDatabase test;
  Store store = test.Open(OpenMode::kCreate);
  const std::string episode = BeginSample(store);
  TurnRecord turn = SampleTurn(1, 2.0);
  turn.reward = 2.3;
  const std::string first = store.AppendTurn(episode, turn);
  EvaluationRecord wrong = turn.evaluation;
  wrong.purpose = "audit";
  wrong.outcome = "wrong";
  wrong.score = 0;
  const std::string audit = store.AppendEvaluation(episode, 1, wrong);
  store.FinishEpisode(episode, {});
  Database database = test.Look();
  CHECK(Value(database, "reward", episode, 1) == Approx(2.3));
  store.Supersede({first}, audit);
  CHECK(Value(database, "reward", episode, 1) == 0);
  CHECK(database.QueryText("SELECT reward FROM turns") == "2.3");  // what was given then stays
}

}  // namespace
}  // namespace kevin
