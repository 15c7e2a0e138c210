// Doubtful verdicts: what is left out of figures, what is to be judged again, and what a new verdict supersedes.

#include "trajectories/doubtful_verdicts.h"

#include <fmt/format.h>

#include "tests/catch.h"
#include "tests/trajectories/sample_records.h"
#include "tests/trajectories/test_database.h"

namespace kevin {
namespace {

// A verdict of rules version `rules`; speed-up 0: wrong.
TurnRecord Turn(int number, const std::string& source, double speedup, int rules) {
  TurnRecord t = SampleTurn(number, speedup);
  t.evaluation = SampleEvaluation(source, speedup);
  t.evaluation.key = ContentHash("rules " + std::to_string(rules) + source);
  t.evaluation.rules_version = rules;
  if (speedup == 0) {
    t.evaluation.outcome = "wrong", t.evaluation.correct = false, t.evaluation.score = 0;
    t.evaluation.speedup.reset(), t.evaluation.verdict.clear();
  }
  t.reward = t.evaluation.score;
  return t;
}

struct Fixture {
  TestDatabase test;
  Store store = test.Open(OpenMode::kCreate);
  std::string run = store.BeginRun(SampleRun());

  std::string Episode(const std::vector<TurnRecord>& turns) {
    const std::string id = store.BeginEpisode(SampleEpisode(run), SampleProblem());
    for (const TurnRecord& turn : turns) store.AppendTurn(id, turn);
    return id;
  }
  void Finish(const std::string& episode, int best, double speedup, int rules) {
    EvaluationRecord confirm = SampleEvaluation("confirmed", speedup);
    confirm.purpose = "confirm", confirm.rules_version = rules;
    store.AppendEvaluation(episode, best, confirm);
    store.FinishEpisode(episode, {EpisodeState::kDone, "", best, speedup, 1, 2, "best.cpp", 1});
  }
  // Sources of the turns with old verdicts, in order.
  std::string Order() {
    std::string order;
    for (const DoubtfulVerdict& v : store.DoubtfulVerdicts()) {
      order += store.LoadTurn(v.episode, v.turn)->evaluation.source + (v.is_winner ? "! " : " ");
    }
    return order;
  }
};

TEST_CASE("old verdicts: winners first, then what else was measured, then failures; each question once") {
  Fixture f;
  f.Episode({Turn(1, "a", 1.2, 1), Turn(2, "b", 0, 1), Turn(3, "c", 3.0, 1)});
  f.Episode({Turn(1, "d", 5.0, 1), Turn(2, "a", 1.2, 1), Turn(3, "e", 2.0, 1)});
  f.Episode({Turn(1, "f", 9.0, kRulesVersion), Turn(2, "g", 7.0, 1)});  // its winner is new
  CHECK(f.Order() == "d! c! g e a b ");
  CHECK(f.store.DoubtfulVerdicts()[4].turns == 2);
  CHECK((f.store.DoubtfulVerdicts()[5].speedup == 0 && f.store.DoubtfulVerdicts()[5].outcome == "wrong"));
}

TEST_CASE("a new verdict supersedes all under the old key; the rows stay, turns and returns follow it") {
  Fixture f;
  const std::string one = f.Episode({Turn(1, "a", 15.0, 1), Turn(2, "b", 1.5, 1)});
  TurnRecord repeat = Turn(1, "a", 15.0, 1);
  repeat.evaluation.cached_from = f.store.LoadTurn(one, 1)->evaluation.id;
  TurnRecord other_text = Turn(2, "z", 15.0, 1);  // took over the verdict of "a" by its machine code
  other_text.evaluation.cached_from = repeat.evaluation.cached_from;
  const std::string two = f.Episode({repeat, other_text});
  f.Finish(one, 1, 14.0, 1);
  CHECK(f.store.EpisodesToConfirm() == std::vector<std::string>{one});

  EvaluationRecord now = Turn(1, "a", 0, kRulesVersion).evaluation;
  now.purpose = "rejudge";
  const std::string key = f.store.LoadTurn(one, 1)->evaluation.key;
  const std::string id = f.store.AppendRejudgement(one, 1, now, key);

  CHECK(f.store.LoadTurn(one, 1)->evaluation.superseded_by == id);
  CHECK(f.store.LoadTurn(two, 1)->evaluation.superseded_by == id);
  CHECK(f.store.LoadTurn(two, 2)->evaluation.superseded_by.empty());  // another text
  CHECK(f.store.LoadEvaluations(one, 1).size() == 3);
  CHECK(f.Order() == "z! b! ");
  const Figures figures = f.store.LoadFigures();
  CHECK((figures.turns[0].outcome == OutcomeKind::kWrong && figures.turns[0].rules_version == kRulesVersion));
  CHECK(figures.turns[3].rules_version == 1);
  f.store.FinishEpisode(two, {});
  Database database = f.test.Look();
  CHECK(database.QueryInteger(
            fmt::format("SELECT count(*) FROM turn_results WHERE rules_version = {} AND score = 0",
                        kRulesVersion)
                .c_str()) == 2);
  CHECK(database.QueryInteger("SELECT count(*) FROM turn_returns WHERE turn = 1 AND reward = 0") == 2);

  // Judged once more, by rules that are newer still: the last word counts everywhere.
  now.key = "newer";
  const std::string last =
      f.store.AppendRejudgement(one, 1, now, ContentHash(fmt::format("rules {}a", kRulesVersion)));
  CHECK(f.store.LoadTurn(two, 1)->evaluation.superseded_by == last);
  CHECK(
      database.QueryInteger("SELECT count(*) FROM evaluations a JOIN evaluations b ON b.id = a.superseded_by "
                            "WHERE b.superseded_by IS NOT NULL") == 0);
  CHECK(f.store.FindEvaluationByKey("newer")->id == last);  // it may answer for the next candidate
}

TEST_CASE("a verdict under older rules is left out, with all older ones of its run and the whole episode") {
  Fixture f;
  const std::string one = f.Episode({Turn(1, "a", 1.5, 1), Turn(2, "b", 0, 1)});
  f.Finish(one, 1, 1.4, 1);
  f.Episode({Turn(1, "c", 0, 1)});                                                // only a failure
  f.Episode({Turn(1, "d", 1.1, kRulesVersion), Turn(2, "e", 0, kRulesVersion)});  // new
  f.Episode({Turn(1, "f", 0, 1), Turn(2, "g", 1.2, kRulesVersion)});              // both
  f.run = f.store.BeginRun(SampleRun());
  f.Episode({Turn(1, "h", 0, 1), Turn(2, "i", 1.3, kRulesVersion)});  // a run without a measured old verdict

  Figures whole = f.store.LoadFigures();
  const LeftOutVerdicts left_out = LeaveOutDoubtful(LeaveOut::kEpisodes, {}, &whole);
  CHECK((left_out.old == 4 && left_out.episodes == 3));
  REQUIRE(whole.episodes.size() == 2);
  CHECK((whole.episodes[0].turn_count == 2 && whole.turns[whole.episodes[0].first_turn].speedup == 1.1));
  CHECK((whole.episodes[1].run == f.run && whole.episodes[1].turn_count == 2));

  Figures turns = f.store.LoadFigures();
  CHECK(LeaveOutDoubtful(LeaveOut::kTurns, {}, &turns).old == 4);
  REQUIRE(turns.episodes.size() == 3);
  CHECK((turns.episodes[1].turn_count == 1 && turns.turns[turns.episodes[1].first_turn].speedup == 1.2));

  // Once the last measured one has a verdict of today, the failures count again; its old confirmation does not.
  EvaluationRecord now = Turn(1, "a", 1.1, kRulesVersion).evaluation;
  now.purpose = "rejudge";
  f.store.AppendRejudgement(one, 1, now, f.store.LoadTurn(one, 1)->evaluation.key);
  Figures all = f.store.LoadFigures();
  CHECK(LeaveOutDoubtful(LeaveOut::kEpisodes, {}, &all).old == 0);
  CHECK(all.episodes.size() == 5);
  CHECK((all.turns[0].speedup == 1.1 && all.episodes[0].best_turn == -1));
  CHECK(std::isnan(all.episodes[0].best_speedup));
}

TEST_CASE("a time that was taken beside another process on the GPU is left out until it is taken again") {
  Fixture f;
  const auto shared = [](TurnRecord turn) {
    turn.evaluation.shared_gpu = true;
    return turn;
  };
  const std::string one =
      f.Episode({shared(Turn(1, "a", 1.5, kRulesVersion)), Turn(2, "b", 1.2, kRulesVersion)});
  f.Episode({shared(Turn(1, "c", 0, kRulesVersion))});  // a failure depends on no time
  const std::string confirmed = f.Episode({Turn(1, "d", 1.1, kRulesVersion)});
  EvaluationRecord confirm = SampleEvaluation("confirmed", 1.1);
  confirm.purpose = "confirm", confirm.rules_version = kRulesVersion, confirm.shared_gpu = true;
  f.store.AppendEvaluation(confirmed, 1, confirm);
  f.store.FinishEpisode(confirmed, {EpisodeState::kDone, "", 1, 1.1, 1, 2, "best.cpp", 1});
  CHECK(f.Order() == "a! ");
  CHECK(f.store.EpisodesToConfirm() == std::vector<std::string>{confirmed});

  Figures whole = f.store.LoadFigures();
  const LeftOutVerdicts left_out = LeaveOutDoubtful(LeaveOut::kEpisodes, {}, &whole);
  CHECK((left_out.old == 0 && left_out.shared_gpu == 2 && left_out.episodes == 2));
  REQUIRE(whole.episodes.size() == 1);
  Figures turns = f.store.LoadFigures();
  CHECK(LeaveOutDoubtful(LeaveOut::kTurns, {.old = true}, &turns).shared_gpu == 2);
  REQUIRE(turns.episodes.size() == 3);
  CHECK((turns.episodes[0].turn_count == 1 && turns.turns[turns.episodes[0].first_turn].speedup == 1.2));
  CHECK((turns.episodes[2].turn_count == 1 && turns.episodes[2].best_turn == -1));
  Figures kept = f.store.LoadFigures();
  CHECK(LeaveOutDoubtful(LeaveOut::kEpisodes, {.shared_gpu = true}, &kept).shared_gpu == 0);
  CHECK((kept.episodes.size() == 3 && kept.episodes[2].best_turn == 1));

  EvaluationRecord now = Turn(1, "a", 1.4, kRulesVersion).evaluation;
  now.purpose = "rejudge";
  f.store.AppendRejudgement(one, 1, now, f.store.LoadTurn(one, 1)->evaluation.key);
  CHECK(f.Order().empty());
  Figures all = f.store.LoadFigures();
  CHECK(LeaveOutDoubtful(LeaveOut::kEpisodes, {}, &all).episodes == 1);  // that of the confirmation
  CHECK(all.turns[0].speedup == 1.4);
}

TEST_CASE("what was left out is said with the command that evaluates it again") {
  CHECK(LeftOutText({}, {"kevin.db"}).empty());
  const std::string text = LeftOutText({12, 0, 3}, {"night.db"});
  CHECK(text.starts_with("12 verdicts were left out: "));
  CHECK(text.find("kevin db rejudge night.db") != std::string::npos);
  CHECK(text.find("--accept-old-verdicts") != std::string::npos);
  CHECK(text.find("--accept-shared-gpu") == std::string::npos);
  CHECK(LeftOutText({0, 1, 1}, {"night.db"})
            .starts_with("1 verdict was left out: timed while another process"));
  CHECK(LeftOutText({2, 1, 1}, {"night.db"}).find("; 1 verdict was left out") != std::string::npos);
  CHECK(LeftOutText({1}, {"postgresql://me:secret@host/kevin"}).find("secret") == std::string::npos);
  CHECK(LeftOutText({1}, {"a.db", "b.db"}).find("rejudge FILE") != std::string::npos);
}

}  // namespace
}  // namespace kevin
