// Many rows at once: what reports read, and what attributions keep.

#include "trajectories/figures.h"

#include "tests/catch.h"
#include "tests/trajectories/sample_records.h"

namespace kevin {
namespace {

TurnRecord Failed(int turn, const std::string& outcome) {
  TurnRecord record = SampleTurn(turn, 1.0);
  record.evaluation = {};
  record.evaluation.outcome = outcome;
  record.evaluation.compiled = outcome == "wrong";
  record.reward = 0;
  record.stop_reason = "length";
  record.usage = {};
  return record;
}

TEST_CASE("figures: episodes and turns as they stand today") {
  TemporaryFolder folder;
  Store store = Store::Open(folder / "kevin.db", OpenMode::kCreate);
  const std::string run = store.BeginRun(SampleRun());
  const std::string first = store.BeginEpisode(SampleEpisode(run), SampleProblem());
  store.AppendTurn(first, SampleTurn(1, 1.5));
  store.AppendTurn(first, Failed(2, "wrong"));
  const std::string third = store.AppendTurn(first, SampleTurn(3, 2.0));
  EvaluationRecord confirm = SampleEvaluation("kernel 1", 1.4);
  confirm.purpose = "confirm", confirm.speedup->log_se = 0.02;
  store.AppendEvaluation(first, 1, confirm);
  EvaluationRecord audit = SampleEvaluation("kernel 3", 1.0);
  audit.purpose = "audit", audit.outcome = "wrong", audit.correct = false, audit.score = 0;
  audit.speedup.reset();
  store.Supersede({third}, store.AppendEvaluation(first, 3, audit));
  store.FinishEpisode(first, {EpisodeState::kDone, "", 1, 1.4, 1.3, 1.5, "best.cpp", 12.5});
  const std::string other_run = store.BeginRun(SampleRun());
  const std::string second = store.BeginEpisode(SampleEpisode(other_run), SampleProblem());
  store.AppendTurn(second, SampleTurn(1, 1.1));

  const Figures all = store.LoadFigures();
  REQUIRE((all.problems.size() == 1 && all.episodes.size() == 2 && all.turns.size() == 4));
  CHECK(all.problems[0].families == std::vector<std::string>{"elementwise"});
  const EpisodeFigures& e = all.episodes[0];
  CHECK((e.id == first && e.run == run && e.policy == "search" && e.state == "done" && e.workload.tf32));
  CHECK((e.best_turn == 1 && e.best_speedup == 1.4 && e.best_log_se == 0.02 && e.seconds == 12.5));
  CHECK((e.workload.size == "small" && e.workload.rules == "open" && e.turns_asked == 8));
  CHECK(e.device_s == 1.0);  // four evaluations of a quarter of a second; the failed one has none
  CHECK((e.first_turn == 0 && e.turn_count == 3));
  CHECK((all.turns[0].outcome == OutcomeKind::kMeasured && all.turns[0].speedup == 1.5));
  CHECK((all.turns[0].log_se == 0.01 && all.turns[0].score == 1.8 && all.turns[0].prompt_tokens == 100));
  CHECK((all.turns[1].outcome == OutcomeKind::kWrong && std::isnan(all.turns[1].speedup)));
  CHECK((all.turns[1].compiled && !all.turns[1].correct && all.turns[1].cut_off));
  CHECK(std::isnan(all.turns[1].completion_tokens));
  CHECK((all.turns[2].outcome == OutcomeKind::kWrong && all.turns[2].score == 0));  // superseded
  CHECK(all.turns[2].measure_s == 1.0);  // what the turn itself took stays
  CHECK((all.episodes[1].best_turn == -1 && std::isnan(all.episodes[1].best_speedup)));

  const Figures one = store.LoadFigures({other_run});
  REQUIRE((one.episodes.size() == 1 && one.turns.size() == 1));
  CHECK((one.episodes[0].id == second && one.turns[0].speedup == 1.1));
  CHECK(store.LoadFigures({run, other_run}).turns.size() == 4);
  CHECK(store.LoadFigures({"none"}).episodes.empty());
  const auto runs = store.ListRuns();
  REQUIRE(runs.size() == 2);
  CHECK((runs[0].id == run && runs[0].episodes == 1 && runs[0].finished_at.empty()));
}

TEST_CASE("figures: a winner that another episode's verdict contradicts is none any more") {
  TemporaryFolder folder;
  Store store = Store::Open(folder / "kevin.db", OpenMode::kCreate);
  const std::string first = BeginSample(store), second = BeginSample(store);
  store.AppendTurn(first, SampleTurn(1, 1.5));
  const std::string winner = store.AppendTurn(first, SampleTurn(2, 2.0));
  EvaluationRecord confirm = SampleEvaluation("kernel 2", 1.9);
  confirm.purpose = "confirm";
  store.AppendEvaluation(first, 2, confirm);
  store.FinishEpisode(first, {EpisodeState::kDone, "", 2, 1.9, 1.8, 2.0, "best.cpp", 12.5});
  CHECK(store.LoadFigures().episodes.at(0).best_turn == 2);
  store.AppendTurn(second, Failed(1, "wrong"), {winner});
  const EpisodeFigures e = store.LoadFigures().episodes.at(0);
  CHECK((e.best_turn == -1 && e.best_rules_version == 0));
  CHECK((std::isnan(e.best_speedup) && std::isnan(e.best_log_se)));
}

TEST_CASE("an attribution takes the place of an earlier one of its name and runs") {
  TemporaryFolder folder;
  Store store = Store::Open(folder / "kevin.db", OpenMode::kCreate);
  const std::string run = store.BeginRun(SampleRun());
  const std::string episode = store.BeginEpisode(SampleEpisode(run), SampleProblem());
  store.AppendTurn(episode, SampleTurn(1, 1.5));
  store.AppendTurn(episode, SampleTurn(2, 1.5));
  const AttributionRecord kevin = {"", "kevin", "{}", {run}, 1, 0};
  AttributionRecord other = kevin;
  other.scheme = "trloo";
  store.SaveAttribution(kevin, {episode}, {{0, 1, 1.8, 0.1, 2.5, 1}, {0, 2, 1.8, 0.1, 1.8, -1}});
  store.SaveAttribution(other, {episode}, {{0, 1, 9, 0, 9, 9}});
  const std::string id =
      store.SaveAttribution(kevin, {episode}, {{0, 1, 1, 0, 1, 0.5}, {0, 2, 2, 0, 2, -0.5}});
  Database database = Look(folder / "kevin.db");
  CHECK(database.QueryInteger("SELECT count(*) FROM attributions") == 2);
  CHECK(database.QueryInteger("SELECT count(*) FROM turn_attributions") == 3);
  CHECK(database.QueryInteger("SELECT turns FROM attributions WHERE scheme = 'kevin'") == 2);
  CHECK(database.QueryText("SELECT id FROM attributions WHERE scheme = 'kevin'") == id);
  CHECK(database.QueryText("SELECT \"return\" || ' ' || advantage || ' ' || outcome FROM attributed_turns "
                           "WHERE scheme = 'kevin' AND turn = 2") == "2.0 -0.5 measured");
}

}  // namespace
}  // namespace kevin
