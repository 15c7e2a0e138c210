// From a database to batches: units, advantages, tokens and masks of each algorithm.

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "agent/train/batches.h"
#include "env/error.h"
#include "tests/agent/train/learn_records.h"
#include "tests/catch.h"

namespace kevin {
namespace {

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
  request.accept.old = true;
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

TEST_CASE("dapo: its composition, and advantages with the penalty of overlong replies") {
  const Algorithm dapo = *FindAlgorithm("dapo");
  CHECK((dapo.train.loss.clip_low == 0.2 && dapo.train.loss.clip_high == 0.28));
  CHECK(dapo.train.loss.normaliser == local::Normaliser::kTokenMean);
  CHECK((dapo.train.loss.kl == local::KlEstimator::kNone && dapo.refills == 10));
  CHECK((dapo.scheme.score.overlong == 1 && dapo.scheme.score.overlong_cache == 0.2));
  Records records;
  SamplingRecord tight = WholeSampling();
  tight.max_tokens = 2;                                                  // as many as each reply has
  records.Add("level1/19", {{0}, {.speedup = 1.7, .sampling = tight}});  // scores 0, 2 - 1; returns 0.4, 1
  records.Add("level1/19", {{0.7}, {0}});                                // returns 1, 0
  const LearnBatch made = FirstBatch(records, dapo);
  const double s = std::sqrt((0.04 + 0.16 + 0.16 + 0.36) / 4);  // about the mean 0.6
  CHECK(SampleOf(made, 1, 1).advantage == Approx(-0.2 / s));
  CHECK(SampleOf(made, 1, 2).advantage == Approx(0.4 / s));
  CHECK(SampleOf(made, 2, 1).advantage == Approx(0.4 / s));
  CHECK(SampleOf(made, 2, 2).advantage == Approx(-0.6 / s));
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
  records.Add("level1/19", {{1.5}, {3.0, "length"}}, {.policy = "another"});
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

TEST_CASE("tpt's best is one for each problem, kind, device, size and rules") {
  Records records;
  records.Add("level1/19", {{1.2}, {1.9}});
  records.Add("level1/19", {{1.1}}, {.kind = "cuda"});
  records.Add("level1/19", {{1.3}}, {.device = "cpu: another"});
  records.Add("level1/19", {{1.4}}, {.size = "full"});
  records.Add("level1/19", {{1.5}, {1.6}}, {.rules = "open"});
  const LearnTurns turns(records.Request());
  const Units best = MakeUnits(*FindAlgorithm("tpt"), turns, {});
  std::vector<double> speedups;
  for (const Unit& unit : best.units) speedups.push_back(turns.turns()[unit.turns[0]].speedup);
  std::sort(speedups.begin(), speedups.end());
  CHECK(speedups == std::vector<double>{1.1, 1.3, 1.4, 1.6, 1.9});
}

TEST_CASE("unfinished episodes are left out of returns and counted; imitation keeps their turns") {
  Records records;
  records.Add("level1/19", {{0}, {1.7}});
  records.Add("level1/19", {{0.7}, {0}});
  const Algorithm grpo = *FindAlgorithm("grpo");
  const float before = SampleOf(FirstBatch(records, grpo), 1, 1).advantage;
  records.Add("level1/19", {{2.5}}, {.state = EpisodeState::kRunning});
  records.Add("level1/19", {{3.5}}, {.state = EpisodeState::kInterrupted});
  records.Add("level1/19", {{4.5}}, {.state = EpisodeState::kFailed});
  CHECK(SampleOf(FirstBatch(records, grpo), 1, 1).advantage == before);
  LearnRequest request = records.Request();
  const LearnTurns finished(request);
  CHECK(finished.turns().size() == 4);
  REQUIRE(finished.remarks().size() == 1);
  CHECK(finished.remarks()[0].starts_with(
      "3 unfinished episodes were left out (1 failed, 1 interrupted, 1 running)"));
  request.filter.states = {"done", "running"};
  CHECK(LearnTurns(request).turns().size() == 5);
  request.filter.states.clear();
  request.leave_out = LeaveOut::kTurns;
  const LearnTurns all(request);
  CHECK((all.turns().size() == 7 && all.remarks().empty()));
  request.leave_out = LeaveOut::kEpisodes;
  request.scheme.returns.kind = ReturnRule::Kind::kOwn;
  CHECK(LearnTurns(request).turns().size() == 7);
}

TEST_CASE(
    "a step has probes at the sampler's temperature where its samples do not tell the gap to the sampler") {
  const auto batch_of = [](const Records& records, const char* algorithm) {
    BatchOptions of_step;
    of_step.is_for_step = true;
    return FirstBatch(records, *FindAlgorithm(algorithm), {}, of_step).batch;
  };
  Records records;
  for (int i = 0; i < 20; ++i) records.Add("level1/19", {{i == 3 ? 2.0 : 0.0}});
  const local::Batch best = batch_of(records, "tpt");
  REQUIRE((best.samples.size() == 1 && best.probes.size() == local::kMostProbes));
  CHECK(best.samples[0].temperature == 1);
  std::set<int32_t> episodes;
  for (const local::Sample& probe : best.probes) {
    CHECK((probe.temperature == 0.9f && probe.sampler_logprobs == std::vector<float>{-0.5f, -0.25f}));
    episodes.insert(probe.completion[0]);
  }
  CHECK(episodes.size() == local::kMostProbes);
  CHECK(batch_of(records, "sft").probes.size() == local::kMostProbes);
  CHECK(batch_of(records, "dpo").probes.size() == local::kMostProbes);
  CHECK(batch_of(records, "grpo").probes.empty());  // its samples tell it
  CHECK(local::BatchFromJson(local::ToJson(best)).probes.size() == local::kMostProbes);

  Records flat;
  SamplingRecord greedy = WholeSampling();
  greedy.temperature = 0;
  flat.Add("level1/19", {{0}}), flat.Add("level1/19", {{0}});
  flat.Add("level1/20", {{0, "stop", true, kRulesVersion, greedy}});
  const local::Batch idle = batch_of(flat, "grpo");
  CHECK((idle.samples.empty() && idle.probes.size() == 2));
}

TEST_CASE("a step whose episodes are all parked has an idle batch") {
  Records records;
  const Algorithm grpo = *FindAlgorithm("grpo");
  LearnRequest request = records.Request();
  CHECK_THROWS_WITH(LearnTurns(request), Catch::Contains("no turns to learn from"));
  request.may_be_empty = true;
  const LearnTurns turns(request);
  BatchOptions of_step;
  of_step.is_for_step = true;
  const LearnBatch made = BatchMaker(turns, MakeUnits(grpo, turns, {}), grpo, {}, of_step).Make(3);
  CHECK((made.batch.step == 3 && made.batch.samples.empty() && made.batch.may_be_idle));
  CHECK((made.turns.empty() && made.facts.tasks == 0));
}

}  // namespace
}  // namespace kevin
