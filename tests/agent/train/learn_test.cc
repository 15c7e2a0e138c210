// From a database to batches: units, advantages, tokens, masks and everything that is refused.

#include <algorithm>
#include <cmath>

#include "agent/train/batches.h"
#include "env/error.h"
#include "tests/catch.h"
#include "tests/trajectories/sample_records.h"

namespace kevin {
namespace {

// A turn as told by its speed-up; 0: wrong. Tokens say where it came from: {episode mark, turn}.
struct Told {
  double speedup = 0;
  std::string stop = "stop";
  bool tokens = true;
  int rules_version = kRulesVersion;
};

class Records {
 public:
  Records()
      : store_(Store::Open(folder_ / "kevin.db", OpenMode::kCreate)), run_(store_.BeginRun(SampleRun())) {}

  std::string Add(const std::string& problem, const std::vector<Told>& turns,
                  const std::string& policy = "p") {
    ProblemRecord record = SampleProblem();
    record.id = problem, record.text = "id = " + problem, record.content_hash = ContentHash(record.text);
    EpisodeRecord episode = SampleEpisode(run_);
    episode.problem = problem, episode.problem_hash = record.content_hash, episode.policy = policy;
    episode.start_source.clear();
    const std::string id = store_.BeginEpisode(episode, record);
    ++mark_;
    for (size_t i = 0; i < turns.size(); ++i) store_.AppendTurn(id, Make(static_cast<int>(i) + 1, turns[i]));
    return id;
  }

  LearnRequest Request(const std::string& scheme = "kevin") const {
    LearnRequest request;
    request.sources = {{(folder_ / "kevin.db").string(), {}}};
    request.scheme = *FindScheme(scheme);
    return request;
  }

 private:
  TurnRecord Make(int number, const Told& told) {
    TurnRecord t = SampleTurn(number, told.speedup);
    const std::string source = std::to_string(mark_) + "/" + std::to_string(number);
    t.evaluation = SampleEvaluation(source, told.speedup);
    t.evaluation.speedup->log_se = 0.001;
    t.evaluation.rules_version = told.rules_version;
    if (told.speedup == 0) {
      t.evaluation.outcome = "wrong", t.evaluation.correct = false, t.evaluation.score = 0;
      t.evaluation.speedup.reset(), t.evaluation.verdict.clear();
    }
    t.reward = t.evaluation.score;
    t.stop_reason = told.stop;
    t.reply = "reply " + source;
    t.prompt_token_ids.clear(), t.token_ids.clear(), t.logprobs.clear();
    if (told.tokens) {
      t.prompt_token_ids = {mark_, number, 9};
      t.token_ids = {mark_, number}, t.logprobs = {-0.5f, -0.25f};
    }
    return t;
  }

  TemporaryFolder folder_;
  Store store_;
  std::string run_;
  int mark_ = 0;
};

std::vector<int> Turns(const LearnTurns& turns, const Units& units) {
  std::vector<int> numbers;
  for (const Unit& unit : units.units) {
    for (const size_t i : unit.turns) numbers.push_back(turns.turns()[i].turn);
  }
  return numbers;
}

LearnBatch FirstBatch(const Records& records, const Algorithm& algorithm, const ModelText& text = {},
                      const BatchOptions& options = {}) {
  LearnRequest request = records.Request();
  request.scheme = algorithm.scheme;
  const LearnTurns turns(request);
  const Units units = MakeUnits(algorithm, turns, {});
  return BatchMaker(turns, units, algorithm, text, options).Make(1);
}

const local::Sample& SampleOf(const LearnBatch& batch, int mark, int turn) {
  const auto found = std::find_if(batch.batch.samples.begin(), batch.batch.samples.end(), [&](const auto& s) {
    return s.completion[0] == mark && s.completion[1] == turn;
  });
  REQUIRE(found != batch.batch.samples.end());
  return *found;
}

TEST_CASE(
    "verdicts under older rules are not learnt from: whole episodes where returns need them, else the turns") {
  Records records;
  records.Add("level1/19", {{0, "stop", true, 1}, {15, "stop", true, 1}});
  records.Add("level1/19", {{1.2}, {1.4}});
  records.Add("level1/20", {{9, "stop", true, 1}, {1.1}});
  LearnRequest request = records.Request();
  const LearnTurns whole(request);
  REQUIRE(whole.turns().size() == 2);
  CHECK((whole.turns()[0].speedup == 1.2 && whole.turns()[1].speedup == 1.4));
  CHECK(whole.left_out().starts_with("3 verdicts were left out"));
  request.leave_out = LeaveOut::kTurns;
  const LearnTurns turns(request);
  const Units best = MakeUnits(*FindAlgorithm("tpt"), turns, {});
  CHECK(Turns(turns, best) == std::vector<int>{2, 2});  // 1.4 and 1.1, not 15 and 9
  request.accept_old_verdicts = true;
  CHECK((LearnTurns(request).turns().size() == 6 && LearnTurns(request).left_out().empty()));

  Records old;
  old.Add("level1/19", {{15, "stop", true, 1}});
  try {
    const LearnTurns none(old.Request());
    FAIL("there is nothing to learn from");
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadRequest);
    CHECK(error.next_step().find("kevin db rejudge") != std::string::npos);
  }
}

TEST_CASE("grpo: one sample a turn, z-scores of discounted returns over all turns of a task") {
  Records records;
  records.Add("level1/19", {{0}, {1.7}});  // scores 0, 2; returns 0.8, 2
  records.Add("level1/19", {{0.7}, {0}});  // scores 1, 0; returns 1, 0
  const LearnBatch made = FirstBatch(records, *FindAlgorithm("grpo"));
  REQUIRE(made.batch.samples.size() == 4);
  const double s = std::sqrt((0.15 * 0.15 + 1.05 * 1.05 + 0.05 * 0.05 + 0.95 * 0.95) / 4);
  CHECK(SampleOf(made, 1, 1).advantage == Approx(-0.15 / s));
  CHECK(SampleOf(made, 1, 2).advantage == Approx(1.05 / s));
  CHECK(SampleOf(made, 2, 1).advantage == Approx(0.05 / s));
  CHECK(SampleOf(made, 2, 2).advantage == Approx(-0.95 / s));
  const local::Sample& sample = SampleOf(made, 1, 2);
  CHECK(sample.prompt == std::vector<int32_t>{1, 2, 9});
  CHECK(sample.completion == std::vector<int32_t>{1, 2});
  CHECK(sample.sampler_logprobs == std::vector<float>{-0.5f, -0.25f});
  CHECK(sample.temperature == 0.9f);
  CHECK((made.facts.samples == 4 && made.facts.tasks == 1));
  CHECK(made.facts.reward == Approx(0.75));
  CHECK(made.facts.value == Approx(0.95));
  CHECK(made.facts.correct == Approx(0.5));
  CHECK(made.facts.speedup == Approx(std::sqrt(1.7 * 0.7)));
  CHECK(made.facts.not_okay == 1);  // "because"
}

TEST_CASE("each algorithm's advantages, worked out by hand") {
  Records records;
  records.Add("level1/19", {{0}, {1.7}});
  records.Add("level1/19", {{0.7}, {0}});
  const auto of = [&](const std::string& name, int mark, int turn) {
    return SampleOf(FirstBatch(records, *FindAlgorithm(name)), mark, turn).advantage;
  };
  CHECK(of("dr-grpo", 1, 2) == Approx(1.05));
  CHECK(of("rloo", 1, 2) == Approx(2 - (0.8 + 1 + 0) / 3));
  // trloo: score k + k min(s, 3), sum with 1: turn 1: 2.7, 1.7; turn 2: 2.7, 0
  CHECK(of("trloo", 1, 1) == Approx(1.0));
  CHECK(of("trloo", 2, 2) == Approx(-2.7));
  // reinforce++: {-0.15, 1.05, 0.05, -0.95} whitened over the batch, whose mean is 0
  CHECK(of("reinforce++", 2, 2) == Approx(-0.95 / std::sqrt((0.0225 + 1.1025 + 0.0025 + 0.9025) / 4)));
}

TEST_CASE("leave-one-out per turn goes by the rollouts that have the turn") {
  Records records;
  records.Add("level1/19", {{1}, {2}});
  records.Add("level1/19", {{2}, {1}});
  records.Add("level1/19", {{2.5}});  // no second turn
  const LearnBatch made = FirstBatch(records, *FindAlgorithm("trloo"));
  CHECK(SampleOf(made, 1, 2).advantage == Approx(1.0));        // 3 against 2, not against 2 and nothing
  CHECK(SampleOf(made, 3, 1).advantage == Approx(3.5 - 5.0));  // 1 + 2.5 against 5 and 5
}

TEST_CASE("tasks without a difference beyond the measurement error are no units") {
  Records records;
  records.Add("level1/19", {{1.000}}), records.Add("level1/19", {{1.001}});
  records.Add("level1/20", {{1.0}}), records.Add("level1/20", {{1.5}});
  records.Add("level1/21", {{0}}), records.Add("level1/21", {{0}});
  const LearnTurns turns(records.Request());
  const Algorithm grpo = *FindAlgorithm("grpo");
  const Units units = MakeUnits(grpo, turns, {});
  REQUIRE(units.units.size() == 1);
  CHECK(turns.turns()[units.units[0].turns[0]].problem->id == "level1/20");
  CHECK((units.dropped == 2 && turns.flat_groups() == 2));
  CHECK(MakeUnits(grpo, turns, {2, 0, true}).units.size() == 3);
}

TEST_CASE("cut-off replies are masked but compared; cancelled ones and those without tokens are left out") {
  Records records;
  records.Add("level1/19", {{0, "length"}, {1.7}});
  records.Add("level1/19", {{1, "cancelled"}, {1.2, "stop", false}});
  const LearnBatch made = FirstBatch(records, *FindAlgorithm("grpo"));
  REQUIRE(made.batch.samples.size() == 2);
  CHECK(SampleOf(made, 1, 1).masked);
  CHECK(SampleOf(made, 1, 1).advantage < 0);
  CHECK_FALSE(SampleOf(made, 1, 2).masked);
  CHECK((made.facts.voided == 1 && made.facts.without_tokens == 1));
  CHECK(made.facts.cut_off == Approx(0.5));
  BatchOptions trained;
  trained.mask_cut_off = false;
  CHECK_FALSE(SampleOf(FirstBatch(records, *FindAlgorithm("grpo"), {}, trained), 1, 1).masked);
}

TEST_CASE("tpt keeps the fastest right turn of each problem; sft what is asked for") {
  Records records;
  records.Add("level1/19", {{0}, {1.2}, {1.9}});
  records.Add("level1/19", {{1.5}, {3.0, "length"}}, "another");
  records.Add("level1/20", {{0.5}, {0}});
  records.Add("level1/21", {{0}});
  const LearnTurns turns(records.Request());
  CHECK(Turns(turns, MakeUnits(*FindAlgorithm("tpt"), turns, {})) == std::vector<int>{3, 1});
  Algorithm sft = *FindAlgorithm("sft");
  CHECK(MakeUnits(sft, turns, {}).units.size() == 4);
  CHECK(MakeUnits(sft, turns, {2, 1.4, false}).units.size() == 2);
  sft.picked = Picked::kAll;
  CHECK(MakeUnits(sft, turns, {}).units.size() == 7);  // all but the cut-off one
}

TEST_CASE("preferences climb ladders and compare first turns") {
  Records records;
  records.Add("level1/19", {{0}, {1.2}, {1.9}});
  records.Add("level1/19", {{1.5}, {1.5005}});
  const LearnTurns turns(records.Request());
  const Algorithm dpo = *FindAlgorithm("dpo");
  // Episode 1: 1 -> 3, 2 -> 3; episode 2: no difference beyond the error; first turns: the second's.
  CHECK(Turns(turns, MakeUnits(dpo, turns, {})) == std::vector<int>{1, 3, 1, 2, 3, 2, 1, 1, 1});
  const LearnBatch made = FirstBatch(records, dpo);
  REQUIRE(made.batch.samples.size() == 6);
  CHECK(made.batch.unit == 2);
  for (size_t i = 0; i < 6; i += 2) {
    const local::Sample &chosen = made.batch.samples[i], &rejected = made.batch.samples[i + 1];
    CHECK(chosen.prompt == rejected.prompt);  // the worse one's
    CHECK((rejected.prompt[0] == rejected.completion[0] && rejected.prompt[1] == rejected.completion[1]));
    CHECK(chosen.completion != rejected.completion);
  }
}

TEST_CASE("every epoch takes every unit once, in another order, no step takes one twice") {
  std::vector<int> seen(10);
  std::vector<size_t> first, second;
  CHECK(StepsPerEpoch(10, 4) == 3);
  for (int64_t step = 1; step <= 6; ++step) {
    for (const size_t unit : UnitsOfStep(10, 4, step, 5)) {
      seen[unit]++;
      (step <= 3 ? first : second).push_back(unit);
    }
  }
  CHECK(seen == std::vector<int>(10, 2));
  CHECK(first != second);
  CHECK(UnitsOfStep(10, 4, 2, 5) == UnitsOfStep(10, 4, 2, 5));
  CHECK(UnitsOfStep(10, 4, 2, 5) != UnitsOfStep(10, 4, 2, 6));
  CHECK(UnitsOfStep(3, 8, 7, 5).size() == 3);
}

TEST_CASE("text is tokenised for imitation only") {
  Records records;
  records.Add("level1/19", {{1.2, "stop", false}, {1.5, "stop", false}});
  ModelText text;
  text.encode_prompt = [](const std::vector<MessageRecord>& m) { return std::vector<int32_t>(m.size(), 7); };
  text.encode_reply = [](const std::string& reasoning, const std::string& reply) {
    return std::vector<int32_t>{static_cast<int32_t>(reasoning.size()), static_cast<int32_t>(reply.size())};
  };
  const LearnBatch made = FirstBatch(records, *FindAlgorithm("sft"), text);
  REQUIRE(made.batch.samples.size() == 2);
  CHECK(made.batch.samples[0].prompt == std::vector<int32_t>{7, 7});
  CHECK(made.batch.samples[0].completion == std::vector<int32_t>{7, 9});  // "because", "reply 1/1"
  CHECK(made.batch.samples[0].temperature == 1);
  CHECK_THROWS_WITH(FirstBatch(records, *FindAlgorithm("grpo"), text), Catch::Contains("no token ids"));
}

TEST_CASE("records of another model are refused") {
  Records records;
  records.Add("level1/19", {{1.2}, {1.5}});
  const Algorithm grpo = *FindAlgorithm("grpo");
  ModelText text;
  text.model = "models/m", text.vocabulary = 9;
  CHECK_THROWS_WITH(FirstBatch(records, grpo, text), Catch::Contains("token 9 is outside"));
  text.vocabulary = 10;
  CHECK(FirstBatch(records, grpo, text).batch.samples.size() == 2);
  text.tokenizer_hash = "u";  // recorded: "t"
  CHECK_THROWS_WITH(FirstBatch(records, grpo, text), Catch::Contains("models/m") && Catch::Contains("hash"));
  text.tokenizer_hash = "t";
  text.decode = [](std::span<const int32_t> ids) {
    return "<think>reply " + std::to_string(ids[0]) + "/" + std::to_string(ids[1]) + "<end>";
  };
  CHECK(FirstBatch(records, grpo, text).batch.samples.size() == 2);
  text.decode = [](std::span<const int32_t>) { return std::string("text"); };
  CHECK_THROWS_WITH(FirstBatch(records, grpo, text), Catch::Contains("do not spell"));
}

TEST_CASE("an empty database and held-out problems are refused by name") {
  Records records;
  CHECK_THROWS_WITH(LearnTurns(records.Request()), Catch::Contains("no turns to learn from"));
  records.Add("level1/19", {{1.2}}), records.Add("level1/20", {{1.2}});
  LearnRequest request = records.Request();
  request.held_out = {"level1/20", "level1/40"};
  CHECK_THROWS_WITH(LearnTurns(request), Catch::Contains("level1/20"));
  request.left_out = {"level1/20"};
  CHECK(LearnTurns(request).turns().size() == 1);
  request.problems = "level2/";
  CHECK_THROWS_AS(LearnTurns(request), Error);
}

TEST_CASE("long samples are left out") {
  Records records;
  records.Add("level1/19", {{1.2}, {1.5}});
  BatchOptions options;
  options.max_sample_tokens = 4;  // they have 5
  CHECK(FirstBatch(records, *FindAlgorithm("grpo"), {}, options).facts.too_long == 2);
}

TEST_CASE("units without a usable sample are left out before steps are formed, and counted") {
  Records records;
  const std::vector<int32_t> many(90, 7);
  for (int i = 0; i < 4; ++i) records.Add("level1/" + std::to_string(19 + i), {{1.2}});
  records.Add("level1/30", {{1.5, "cancelled"}});
  records.Add("level1/31", {{1.5, "stop", false}});  // tokenised when a batch is made
  ModelText text;
  text.encode_prompt = [](const std::vector<MessageRecord>&) { return std::vector<int32_t>{1, 2}; };
  text.encode_reply = [&](const std::string&, const std::string&) { return many; };
  Algorithm sft = *FindAlgorithm("sft");
  sft.units_per_step = 1;
  BatchOptions options;
  options.max_sample_tokens = 80;
  const LearnTurns turns(records.Request());
  const Units all = MakeUnits(sft, turns, {});
  REQUIRE(all.units.size() == 6);
  const Units usable = WithoutUnusable(turns, all, sft, text, options);
  CHECK(usable.units.size() == 4);
  CHECK(usable.too_long == 1);
  CHECK(usable.voided == 1);
  const BatchMaker maker(turns, usable, sft, text, options);
  for (int step = 1; step <= 8; ++step) CHECK(maker.Make(step).batch.samples.size() == 1);

  options.max_sample_tokens = 4;  // the others have 5
  CHECK(WithoutUnusable(turns, all, sft, text, options).too_long == 5);
  // Turns without token ids stay, so that a batch of them is refused with its reason.
  CHECK(WithoutUnusable(turns, all, sft, {}, options).units.size() == 1);
  const Units pairs = MakeUnits(*FindAlgorithm("dpo"), turns, {});
  CHECK(WithoutUnusable(turns, pairs, *FindAlgorithm("dpo"), text, options).units.empty());
}

TEST_CASE("what tells of junk") {
  CHECK(LacksOpening("Hmm", "Okay"));
  CHECK_FALSE(LacksOpening("\n Okay, so", "Okay"));
  CHECK_FALSE(LacksOpening("", "Okay"));
  std::vector<int32_t> fresh(100), loop(100);
  for (int i = 0; i < 100; ++i) fresh[static_cast<size_t>(i)] = i, loop[static_cast<size_t>(i)] = i % 4;
  CHECK(Repetition(fresh) == 0);
  CHECK(Repetition(loop) == Approx(1 - 4 / 93.0));
  CHECK(Repetition(std::vector<int32_t>(8, 1)) == 0);
}

}  // namespace
}  // namespace kevin
