#include "trajectories/store.h"

#include <functional>
#include <nlohmann/json.hpp>

#include "env/error.h"
#include "tests/catch.h"
#include "tests/trajectories/sample_records.h"
#include "tests/trajectories/test_database.h"

namespace kevin {
namespace {

void CheckSame(const std::optional<Ratio>& a, const std::optional<Ratio>& b) {
  REQUIRE(a.has_value() == b.has_value());
  if (a) CHECK((a->value == b->value && a->low == b->low && a->high == b->high));
}

void CheckSame(const std::vector<Sample>& a, const std::vector<Sample>& b) {
  REQUIRE(a.size() == b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    CHECK((a[i].process == b[i].process && a[i].pair == b[i].pair && a[i].calls == b[i].calls));
    CHECK((a[i].phase == b[i].phase && a[i].side == b[i].side && a[i].total_us == b[i].total_us));
  }
}

void CheckSame(const EvaluationRecord& a, const EvaluationRecord& b) {
  CHECK(a.purpose == b.purpose);
  CHECK((a.candidate_hash == b.candidate_hash && a.kind == b.kind && a.source == b.source));
  CHECK((a.key == b.key && a.key_parts == b.key_parts && a.problem_hash == b.problem_hash));
  CHECK(a.workload == b.workload);
  CHECK((a.device == b.device && a.isolation == b.isolation));
  CHECK(
      (a.outcome == b.outcome && a.reason == b.reason && a.compiled == b.compiled && a.correct == b.correct));
  CHECK(a.verdict == b.verdict);
  CheckSame(a.speedup, b.speedup);
  if (a.speedup && b.speedup) {
    CHECK((a.speedup->log_se == b.speedup->log_se && a.speedup->pairs == b.speedup->pairs));
    CHECK(a.speedup->processes == b.speedup->processes);
  }
  CheckSame(a.against_start, b.against_start);
  CheckSame(a.against_best, b.against_best);
  CHECK(a.against_best_turn == b.against_best_turn);
  CHECK((a.backend == b.backend && a.own_share == b.own_share && a.device_us == b.device_us));
  CHECK((a.candidate_us == b.candidate_us && a.reference_us == b.reference_us && a.floor_us == b.floor_us));
  CHECK((a.gb_per_s == b.gb_per_s && a.gflop_per_s == b.gflop_per_s));
  CHECK((a.max_error == b.max_error && a.error_bound == b.error_bound && a.score == b.score));
  CHECK((a.compile_s == b.compile_s && a.verify_s == b.verify_s));
  CHECK((a.measure_s == b.measure_s && a.wait_s == b.wait_s));
  CHECK((a.seeds == b.seeds && a.log == b.log && a.machine == b.machine));
  CHECK((a.cached_from == b.cached_from && a.superseded_by == b.superseded_by));
  CHECK((a.kernels == b.kernels && a.launch_list == b.launch_list && a.profile == b.profile));
  CHECK((a.peak_gb_per_s == b.peak_gb_per_s && a.peak_gflop_per_s == b.peak_gflop_per_s));
  CHECK((a.device_s == b.device_s && a.shared_gpu == b.shared_gpu && a.rules_version == b.rules_version));
  CHECK((a.timeout_phase == b.timeout_phase && a.timeout_limit_s == b.timeout_limit_s));
  CHECK((a.failed_shape == b.failed_shape && ShapesToText(a.shapes) == ShapesToText(b.shapes)));
}

void CheckSame(const TurnRecord& a, const TurnRecord& b) {
  CHECK(a.turn == b.turn);
  REQUIRE(a.messages.size() == b.messages.size());
  for (size_t i = 0; i < a.messages.size(); ++i) {
    CHECK((a.messages[i].role == b.messages[i].role && a.messages[i].content == b.messages[i].content));
  }
  CHECK((a.reply == b.reply && a.reasoning == b.reasoning));
  CHECK((a.prompt_token_ids == b.prompt_token_ids && a.token_ids == b.token_ids && a.logprobs == b.logprobs));
  CHECK((a.sampling.temperature == b.sampling.temperature && a.sampling.top_p == b.sampling.top_p));
  CHECK((a.sampling.top_k == b.sampling.top_k && a.sampling.min_p == b.sampling.min_p));
  CHECK((a.sampling.max_tokens == b.sampling.max_tokens && a.sampling.seed == b.sampling.seed));
  CHECK((a.usage.prompt_tokens == b.usage.prompt_tokens && a.usage.cached_tokens == b.usage.cached_tokens));
  CHECK(a.usage.completion_tokens == b.usage.completion_tokens);
  CHECK(a.usage.reasoning_tokens == b.usage.reasoning_tokens);
  CHECK((a.model.name == b.model.name && a.model.weights_hash == b.model.weights_hash));
  CHECK((a.model.tokenizer_hash == b.model.tokenizer_hash && a.model.template_hash == b.model.template_hash));
  CHECK((a.stop_reason == b.stop_reason && a.parser_version == b.parser_version));
  CHECK((a.prompt_template == b.prompt_template && a.prompt_template_hash == b.prompt_template_hash));
  CHECK((a.summary == b.summary && a.feedback == b.feedback && a.source_path == b.source_path));
  CHECK((a.generate_s == b.generate_s && a.overhead_s == b.overhead_s && a.seconds == b.seconds));
  CHECK((a.reward == b.reward && a.tune_s == b.tune_s && a.reply_form == b.reply_form));
  REQUIRE(a.trials.size() == b.trials.size());
  for (size_t i = 0; i < a.trials.size(); ++i) {
    const KnobTrial &x = a.trials[i], &y = b.trials[i];
    CHECK((x.setting == y.setting && x.outcome == y.outcome && x.reason == y.reason));
    CHECK((x.candidate_us == y.candidate_us && x.stopped == y.stopped && x.chosen == y.chosen));
    CHECK(x.seconds == y.seconds);
  }
  CheckSame(a.evaluation, b.evaluation);
}

void CheckSame(const EpisodeRecord& a, const EpisodeRecord& b) {
  CHECK((a.run == b.run && a.problem == b.problem && a.problem_hash == b.problem_hash));
  CHECK((a.policy == b.policy && a.kind == b.kind && a.device == b.device && a.isolation == b.isolation));
  CHECK((a.workload.size == b.workload.size && a.workload.inputs == b.workload.inputs &&
         a.workload.precision == b.workload.precision && a.seed == b.seed));
  CHECK((a.turns_asked == b.turns_asked && a.prompt_template == b.prompt_template));
  CHECK(a.prompt_template_hash == b.prompt_template_hash);
  CHECK((a.start_source == b.start_source && a.note == b.note && a.until == b.until));
  CHECK(a.workload.tf32 == b.workload.tf32);
}

std::string NextStep(const std::function<void()>& act) {
  try {
    act();
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadRequest);
    return std::string(error.what()) + " | " + error.next_step();
  }
  return "nothing thrown";
}

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_CASE("what goes in comes out") {
  TestDatabase test;
  std::string run, episode;
  TurnRecord sent = SampleTurn(1, 1.5);
  sent.evaluation.shared_gpu = true;
  {
    Store store = test.Open(OpenMode::kCreate);
    run = store.BeginRun(SampleRun());
    episode = store.BeginEpisode(SampleEpisode(run), SampleProblem());
    store.AppendTurn(episode, sent);
    TurnRecord failed;  // a turn of which next to nothing is known
    failed.turn = 2;
    failed.evaluation.outcome = "parse_failed";
    failed.evaluation.reason = "no source";
    store.AppendTurn(episode, failed);
    store.FinishEpisode(episode, {EpisodeState::kDone, "until reached", 1, 1.4, 1.3, 1.5, "best.cpp", 12.5});
    store.FinishRun(run);
  }
  Store store = test.Open(OpenMode::kRead);

  const EpisodeRecord loaded = store.FindEpisode(episode);
  CHECK(loaded.id == episode);
  CheckSame(loaded, SampleEpisode(run));
  CHECK((loaded.state == EpisodeState::kDone && loaded.state_reason == "until reached"));
  CHECK((loaded.best_turn == 1 && loaded.best_speedup == 1.4));
  CHECK((loaded.best_speedup_low == 1.3 && loaded.best_speedup_high == 1.5));
  CHECK((loaded.best_path == "best.cpp" && loaded.seconds == 12.5));
  CHECK((loaded.turns == 2 && loaded.correct_turns == 1 && loaded.database == test.name()));
  CHECK(loaded.started_at.size() == 24);
  CHECK(loaded.finished_at >= loaded.started_at);

  const auto stored_run = store.FindRun(run);
  REQUIRE(stored_run);
  CHECK((stored_run->command == SampleRun().command && stored_run->machine == SampleRun().machine));
  CHECK(stored_run->finished_at >= stored_run->started_at);
  const auto problem = store.FindProblem(SampleProblem().content_hash);
  REQUIRE(problem);
  CHECK((problem->id == "level1/19" && problem->name == "ReLU" && problem->text == SampleProblem().text));
  CHECK((problem->families == SampleProblem().families && problem->flags == SampleProblem().flags));

  auto first = store.LoadTurn(episode, 1);
  REQUIRE(first);
  CheckSame(*first, sent);
  CheckSame(first->evaluation.samples, sent.evaluation.samples);
  CHECK(first->run == run);
  const auto turns = store.LoadTurns(episode);
  REQUIRE(turns.size() == 2);
  CheckSame(turns[0], sent);
  CHECK(turns[0].evaluation.samples.empty());
  CHECK(turns[1].evaluation.outcome == "parse_failed");
  CHECK((!turns[1].evaluation.speedup && !turns[1].evaluation.max_error && !turns[1].sampling.seed));
  CHECK((turns[1].evaluation.kernels.empty() && !turns[1].evaluation.peak_gb_per_s));
  CHECK((turns[1].token_ids.empty() && turns[1].evaluation.candidate_hash.empty()));
  CHECK_FALSE(store.LoadTurn(episode, 3));
}

TEST_CASE("trials of knobs are rows of their turn, and the chosen setting stands in the view") {
  TestDatabase test;
  Store store = test.Open(OpenMode::kCreate);
  const std::string episode = BeginSample(store);
  store.AppendTurn(episode, SampleTurn(1, 1.5));
  TurnRecord only = SampleTurn(2, 1.5);
  only.trials = {{{{"TILE", 64}}, "", "", std::nullopt, false, true, 0}};
  store.AppendTurn(episode, only);
  TurnRecord without = SampleTurn(3, 1.5);
  without.trials.clear();
  store.AppendTurn(episode, without);
  const auto turns = store.LoadTurns(episode);
  REQUIRE(turns.size() == 3);
  CHECK((turns[0].trials.size() == 3 && turns[1].trials.size() == 1 && turns[2].trials.empty()));
  CHECK(turns[1].trials[0].outcome.empty());
  CHECK(store.LoadTurn(episode, 2)->trials.size() == 1);
  Database database = test.Look();
  CHECK(database.QueryText("SELECT knobs FROM turn_results WHERE turn = 1") == R"({"TILE":64,"A":1})");
  CHECK(database.QueryInteger("SELECT count(*) FROM turn_results") == 3);
  CHECK(database.QueryInteger("SELECT count(*) FROM turn_results WHERE knobs IS NULL") == 1);
  CHECK(database.QueryInteger("SELECT count(*) FROM knob_trials WHERE outcome IS NULL") == 1);
  CHECK(database.QueryInteger("SELECT count(*) FROM evaluations") == 3);  // a trial is none
}

TEST_CASE("the fields of every outcome, and the results of single shapes") {
  const TestDatabase test;
  Store store = test.Open(OpenMode::kCreate);
  const std::string episode = BeginSample(store);
  store.AppendTurn(episode, SampleTurn(1, 1.5));
  const std::string where = "at mine/2 (N = 7)";
  const Outcome outcomes[] = {ParseFailed{"no source"},
                              CompileFailed{"k.cpp:2:3: error: x", where},
                              Refused{"deferred work"},
                              Crashed{"signal 11"},
                              TimedOut{"verify " + where, 2.5},
                              Wrong{"out[3] is 1", 2, 0.5},
                              OutcomeOf(SampleEvaluation("kernel 1", 1.5))};
  for (const Outcome& outcome : outcomes) {
    EvaluationRecord evaluation = SampleEvaluation("kernel 1", 1.5);
    evaluation.purpose = "audit";
    static_cast<OutcomeFields&>(evaluation) = FieldsOf(outcome);
    evaluation.shapes = {{"mine/1", {{"N", 8}}, 2.5, outcomes[6], 3, 4000, 60000},
                         {"mine/2", {{"N", 7}}, 1, outcome, 2, 0, 0}};
    const auto stored = store.FindEvaluation(store.AppendEvaluation(episode, 1, evaluation));
    REQUIRE(stored);
    CheckSame(*stored, evaluation);
    INFO(OutcomeName(outcome));
    const std::string log = outcome.index() == 1 ? std::get<CompileFailed>(outcome).log : "";
    CHECK(OutcomeToJson(OutcomeOf(*stored, log)) == OutcomeToJson(outcome));
    CHECK(OutcomeToJson(stored->shapes[1].outcome) == OutcomeToJson(outcome));
  }
}

TEST_CASE("unknown is NULL and equal texts are stored once") {
  TestDatabase test;
  Store store = test.Open(OpenMode::kCreate);
  const std::string episode = BeginSample(store);
  store.AppendTurn(episode, SampleTurn(1, 1.5));
  TurnRecord second = SampleTurn(2, 1.5);
  second.evaluation.shared_gpu = true;
  store.AppendTurn(episode, second);
  TurnRecord failed;
  failed.turn = 3;
  failed.evaluation.outcome = "compile_failed";
  store.AppendTurn(episode, failed);

  Database database = test.Look();
  CHECK(database.QueryInteger("SELECT count(*) FROM blobs WHERE body = 'You write kernels.'") == 1);
  CHECK(database.QueryText("SELECT content FROM turn_messages WHERE turn = 2 AND position = 1") == "Turn 2");
  CHECK(database.QueryInteger("SELECT count(*) FROM blobs WHERE codec = 'zlib'") == 3);
  CHECK(database.QueryInteger("SELECT count(*) FROM turn_results WHERE turn = 3 AND speedup IS NULL "
                              "AND candidate_us IS NULL AND max_error IS NULL AND source IS NULL "
                              "AND kernels IS NULL AND peak_gb_per_s IS NULL AND device_s IS NULL") == 1);
  CHECK(database.QueryInteger(
            "SELECT count(*) FROM turn_results WHERE kernels LIKE '[{\"name\":\"relu<4>\"%'") == 2);
  CHECK(database.QueryInteger("SELECT count(*) FROM turn_results WHERE shared_gpu = 1") == 1);
  CHECK(database.QueryInteger("SELECT min(rules_version) FROM turn_results") == kRulesVersion);
  CHECK(database.QueryText(
            "SELECT threads || '|' || tolerance_version || '|' || baseline_version || '|' || "
            "toolchain_version || '|' || device || '|' || device_model || '|' || driver || '|' || "
            "isolation || '|' || include_hashes || '|' || environment_version "
            "FROM evaluations LIMIT 1") == "2|1|eager 2.11|g++ 12|cpu: test|test|none|full|abc|1");
  CHECK(database.QueryInteger("SELECT count(*) FROM baselines WHERE reference_us = 21") == 2);
  CHECK(database.QueryInteger("SELECT count(DISTINCT key) FROM baselines") == 1);
  CHECK(database.QueryInteger("SELECT count(*) FROM samples") == 4);
}

TEST_CASE("episodes are found by a unique beginning of their id") {
  TestDatabase test;
  Store store = test.Open(OpenMode::kCreate);
  CHECK(Contains(NextStep([&] { store.FindEpisode("01J"); }), "no episodes yet"));
  const std::string a = BeginSample(store);
  std::string lower = a.substr(0, 20);
  for (char& c : lower) c = static_cast<char>(std::tolower(c));
  CHECK(store.FindEpisode(lower).id == a);
  const std::string b = BeginSample(store);
  size_t common = 0;
  while (a[common] == b[common]) ++common;
  CHECK(store.FindEpisode(b.substr(0, common + 1)).id == b);
  const std::string ambiguous = NextStep([&] { store.FindEpisode(a.substr(0, common)); });
  CHECK(Contains(ambiguous, "ambiguous"));
  CHECK((Contains(ambiguous, a) && Contains(ambiguous, b)));
  const std::string unknown = NextStep([&] { store.FindEpisode(b.substr(0, common + 1) + "!"); });
  CHECK(Contains(unknown, "nearest: " + b + ", " + a));
  CHECK(Contains(NextStep([&] { store.FindEpisode(""); }), "nearest"));
  const auto latest = store.ListEpisodes(1);
  REQUIRE(latest.size() == 1);
  CHECK(latest[0].id == b);
}

TEST_CASE("an episode is continued") {
  TestDatabase test;
  Store store = test.Open(OpenMode::kCreate);
  const std::string episode = BeginSample(store);
  TurnRecord start = SampleTurn(0, 1.0);
  start.evaluation.purpose = "start";
  store.AppendTurn(episode, start);
  store.AppendTurn(episode, SampleTurn(1, 1.5));
  store.FinishEpisode(episode, {EpisodeState::kInterrupted, "Ctrl-C", 1, 1.4, 1.3, 1.5, "best.cpp", 10});

  const std::string second = store.BeginRun(SampleRun());
  store.ResumeEpisode(episode, second, 3);
  EpisodeRecord resumed = store.FindEpisode(episode);
  CHECK((resumed.state == EpisodeState::kRunning && resumed.state_reason.empty() &&
         resumed.finished_at.empty()));
  CHECK((resumed.turns == 1 && resumed.turns_asked == 4 && resumed.best_turn == 1));
  store.AppendTurn(episode, SampleTurn(2, 1.6));
  CHECK(Contains(NextStep([&] { store.AppendTurn(episode, SampleTurn(2, 1.6)); }), "has a turn 2 already"));
  store.FinishEpisode(episode, {EpisodeState::kDone, "", 2, 1.6, 1.5, 1.7, "best.cpp", 5});
  const auto turns = store.LoadTurns(episode);
  REQUIRE(turns.size() == 3);
  CHECK((turns[0].turn == 0 && turns[0].evaluation.purpose == "start"));
  CHECK((turns[2].run == second && turns[1].run != second));
  CHECK(store.FindEpisode(episode).seconds == 15);
  CHECK(Contains(NextStep([&] { store.ResumeEpisode("01", second, 1); }), "no episode '01'"));
}

TEST_CASE("a stored verdict answers for its key until it is superseded") {
  TestDatabase test;
  Store store = test.Open(OpenMode::kCreate);
  const std::string episode = BeginSample(store);
  const std::string key = SampleTurn(1, 1.5).evaluation.key;
  CHECK_FALSE(store.FindEvaluationByKey(key));
  const std::string measured = store.AppendTurn(episode, SampleTurn(1, 1.5));

  TurnRecord repeat = SampleTurn(2, 1.5);
  repeat.evaluation = SampleTurn(1, 1.5).evaluation;
  repeat.evaluation.cached_from = measured;
  const std::string cached = store.AppendTurn(episode, repeat);
  EvaluationRecord confirm = SampleTurn(1, 1.4).evaluation;
  confirm.purpose = "confirm";
  const std::string confirmed = store.AppendEvaluation(episode, 1, confirm);
  auto found = store.FindEvaluationByKey(key);
  REQUIRE(found);
  CHECK(found->id == measured);  // neither the repetition nor the confirmation
  CHECK(found->source == "kernel 1");
  const auto all = store.LoadEvaluations(episode, 1);
  REQUIRE(all.size() == 2);
  CHECK((all[0].id == measured && all[1].id == confirmed && all[1].purpose == "confirm"));
  CHECK(all[1].samples.size() == 2);

  EvaluationRecord audit = SampleTurn(1, 1.5).evaluation;
  audit.purpose = "audit";
  audit.outcome = "wrong";
  audit.correct = false;
  audit.score = 0;
  audit.speedup.reset();
  const std::string contradiction = store.AppendEvaluation(episode, 2, audit);
  store.Supersede({measured}, contradiction);
  CHECK(store.FindEvaluationByKey(key)->id == contradiction);  // the text is wrong, whoever found it
  EvaluationRecord crashed = audit;
  crashed.outcome = "crashed";
  store.AppendEvaluation(episode, 2, crashed);
  CHECK(store.FindEvaluationByKey(key)->id == contradiction);  // and stays so
  CHECK(store.FindEvaluation(measured)->superseded_by == contradiction);
  CHECK(store.FindEvaluation(cached)->superseded_by == contradiction);  // it repeated the overridden verdict
  CHECK(store.FindEvaluation(contradiction)->superseded_by.empty());
  Database database = test.Look();
  CHECK(database.QueryInteger("SELECT count(*) FROM turn_results WHERE outcome = 'wrong' AND score = 0 "
                              "AND correct = 0 AND speedup IS NULL") == 2);

  const std::string last_word = store.AppendEvaluation(episode, 2, audit);
  store.Supersede({contradiction}, last_word);
  CHECK(store.FindEvaluation(measured)->superseded_by == last_word);
}

TEST_CASE("texts of any bytes survive") {
  TestDatabase test;
  Store store = test.Open(OpenMode::kCreate);
  const std::string episode = BeginSample(store);
  TurnRecord turn = SampleTurn(1, 1.5);
  turn.reply = std::string("nul \0 and bad utf-8 \xff\xc3", 22);
  turn.messages = {{"user", std::string("a\0b\xfe", 4)}, {"user", ""}, {"user", std::string(1 << 20, 'x')}};
  turn.token_ids.assign(100'000, 42);
  turn.evaluation.source = "// '\"; DROP TABLE turns;--";
  store.AppendTurn(episode, turn);
  turn.reply = test.AsTextIsKept(turn.reply);
  CheckSame(*store.LoadTurn(episode, 1), turn);
}

}  // namespace
}  // namespace kevin
