// From a database to batches: units, advantages, tokens, masks and everything that is refused.

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "agent/train/batches.h"
#include "agent/train/dry_run.h"
#include "agent/train/step_plan.h"
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
  SamplingRecord sampling = WholeSampling();
  std::string model = "search 1";
};

// An episode that is not of the usual kind.
struct Episode {
  EpisodeState state = EpisodeState::kDone;
  std::string policy = "p", kind = "cpp", device = "cpu: test", size = "small";
};

EpisodeEnd EndAs(EpisodeState state) {
  EpisodeEnd end;
  end.state = state;
  return end;
}

class Records {
 public:
  Records()
      : store_(Store::Open(folder_ / "kevin.db", OpenMode::kCreate)), run_(store_.BeginRun(SampleRun())) {}

  std::string Add(const std::string& problem, const std::vector<Told>& turns, const Episode& of = {}) {
    ProblemRecord record = SampleProblem();
    record.id = problem, record.text = "id = " + problem, record.content_hash = ContentHash(record.text);
    EpisodeRecord episode = SampleEpisode(run_);
    episode.problem = problem, episode.problem_hash = record.content_hash, episode.policy = of.policy;
    episode.kind = of.kind, episode.device = of.device, episode.workload.size = of.size;
    episode.start_source.clear();
    const std::string id = store_.BeginEpisode(episode, record);
    ++mark_;
    for (size_t i = 0; i < turns.size(); ++i) store_.AppendTurn(id, Make(static_cast<int>(i) + 1, turns[i]));
    if (of.state != EpisodeState::kRunning) store_.FinishEpisode(id, EndAs(of.state));
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
    t.sampling = told.sampling, t.model.name = told.model;
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

TEST_CASE("tpt's best is one for each problem, kind, device and size") {
  Records records;
  records.Add("level1/19", {{1.2}, {1.9}});
  records.Add("level1/19", {{1.1}}, {.kind = "cuda"});
  records.Add("level1/19", {{1.3}}, {.device = "cpu: another"});
  records.Add("level1/19", {{1.4}}, {.size = "full"});
  const LearnTurns turns(records.Request());
  const Units best = MakeUnits(*FindAlgorithm("tpt"), turns, {});
  std::vector<double> speedups;
  for (const Unit& unit : best.units) speedups.push_back(turns.turns()[unit.turns[0]].speedup);
  std::sort(speedups.begin(), speedups.end());
  CHECK(speedups == std::vector<double>{1.1, 1.3, 1.4, 1.9});
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

TEST_CASE("filters choose episodes by kind, device, model, version, date, state and problem") {
  Records records;
  records.Add("level1/19", {{.speedup = 1.1, .model = "m@3"}, {.speedup = 1.2, .model = "m@4"}},
              {.kind = "cuda"});
  records.Add("level1/20", {{.speedup = 1.3, .model = "m@9"}}, {.device = "cuda:0: H200"});
  records.Add("level1/21", {{.speedup = 1.4, .model = "other"}}, {.state = EpisodeState::kFailed});
  const auto count = [&](const RecordFilter& filter) {
    LearnRequest request = records.Request();
    request.filter = filter;
    request.leave_out = LeaveOut::kTurns;
    try {
      const LearnTurns turns(request);
      if (turns.turns().size() < 4)
        CHECK(turns.remarks().at(0).find("left out by the filters") != std::string::npos);
      return turns.turns().size();
    } catch (const Error& error) {
      CHECK(error.next_step().find("3 episodes left out by the filters") != std::string::npos);
      return size_t{0};
    }
  };
  CHECK(count({}) == 4);
  CHECK(count({.kind = "cuda"}) == 2);
  CHECK(count({.kind = "ptx"}) == 0);
  CHECK(count({.device = "H200"}) == 1);
  CHECK(count({.model = "m@"}) == 3);
  CHECK(count({.first_version = 4, .last_version = 9}) == 1);  // all turns of an episode must match
  CHECK(count({.first_version = 0, .last_version = 4}) == 2);
  CHECK(count({.since = "2020-01-01"}) == 4);
  CHECK(count({.since = "2999"}) == 0);
  CHECK(count({.until = "2020-01-01"}) == 0);
  CHECK(count({.states = {"failed"}}) == 1);
  CHECK(count({.problem_ids = {"level1/20", "level1/21"}}) == 2);
}

TEST_CASE("turns from an unknown distribution are no rollouts, with count and reason; imitation takes them") {
  Records records;
  SamplingRecord unknown = WholeSampling(), greedy = unknown, hot = unknown, filtered = unknown;
  unknown.min_p.reset(), greedy.temperature = 0, hot.temperature = 1.5, filtered.top_k = 20;
  records.Add("level1/19", {{.speedup = 1.1, .sampling = unknown},
                            {.speedup = 1.2, .sampling = hot},
                            {.speedup = 1.3, .sampling = greedy},
                            {.speedup = 1.4, .sampling = filtered}});
  records.Add("level1/20", {{.speedup = 1.1, .sampling = unknown}, {.speedup = 1.9, .sampling = unknown}});
  const Algorithm grpo = *FindAlgorithm("grpo");
  const LearnBatch made = FirstBatch(records, grpo);
  REQUIRE(made.batch.samples.size() == 1);
  CHECK(made.batch.samples[0].temperature == 1.5f);
  CHECK((made.facts.unknown_sampling == 3 && made.facts.greedy == 1 && made.facts.filtered == 1));
  const LearnTurns turns(records.Request());
  const Units usable = WithoutUnusable(turns, MakeUnits(grpo, turns, {}), grpo, {}, {});
  CHECK((usable.units.size() == 1 && usable.unknown_sampling == 3 && usable.greedy == 1 &&
         usable.filtered == 1));
  CHECK((usable.too_long == 0 && usable.voided == 0));
  CHECK(FirstBatch(records, *FindAlgorithm("sft")).batch.samples.size() == 6);
}

TEST_CASE("a dry run tells what would be learnt from, and shows the batch") {
  Records records;
  records.Add("level1/19",
              {{0}, {1.7}});  // advantages as above: -0.15, 1.05, 0.05, -0.95 over their deviation
  records.Add("level1/19", {{0.7}, {0, "length"}});
  records.Add("level1/20", {{1.2}, {1.2}}), records.Add("level1/20", {{1.2}, {1.2}});
  const Algorithm grpo = *FindAlgorithm("grpo");
  const LearnTurns turns(records.Request());
  const Units units = MakeUnits(grpo, turns, {});
  const Json event = DryRunEvent(grpo, turns, units, {"a remark"});
  CHECK((event.at("units") == 2 && event.at("turns") == 8 && event.at("steps_per_epoch") == 1));
  const Json& first = event.at("problems").at(0);
  CHECK((first.at("problem") == "level1/19" && first.at("episodes") == 2 && first.at("correct_turns") == 2));
  CHECK(first.at("best_speedup") == 1.7);
  CHECK(first.at("largest_advantage").get<double>() ==
        Approx(1.05 / std::sqrt((0.0225 + 1.1025 + 0.0025 + 0.9025) / 4)));
  int64_t counted = 0, between = 0;  // [-0.5, 0)
  for (const Json& bin : event.at("advantages")) {
    counted += bin.at("turns").get<int64_t>();
    if (bin.at("to") == 0) between = bin.at("turns").get<int64_t>();
  }
  CHECK((counted == 8 && between == 1));
  CHECK(DryRunText(event).find("level1/19") != std::string::npos);
  CHECK(DryRunText(event).find("advantages") != std::string::npos);
  CHECK(DryRunEvent(*FindAlgorithm("sft"), turns, units, {}).at("advantages").is_null());

  ModelText text;
  text.decode = [](std::span<const int32_t> ids, bool) {
    std::string all = "reply " + std::to_string(ids[0]) + "/" + std::to_string(ids[1]);
    return ids.size() == 3 ? std::string(3000, 'p') + "prompt " + std::to_string(ids[1]) : all;
  };
  const std::vector<Json> samples = SampleEvents(FirstBatch(records, grpo, text), text);
  REQUIRE(samples.size() == 8);
  const auto cut =
      std::find_if(samples.begin(), samples.end(), [](const Json& s) { return s.at("masked") == true; });
  REQUIRE(cut != samples.end());
  CHECK((cut->at("turn") == 2 && cut->at("reply") == "reply 2/2"));
  CHECK(cut->at("prompt").get<std::string>().ends_with("prompt 2"));
  const std::string shown = SampleText(*cut, 100);
  CHECK(shown.find("(masked: cut off)") != std::string::npos);
  CHECK(shown.find("prompt 2\n[reply]\nreply 2/2") != std::string::npos);
  CHECK(shown.size() < 600);
  CHECK(SampleEvents(FirstBatch(records, grpo), {}).at(0).at("prompt").is_null());
}

TEST_CASE("the length cap rises by step") {
  const LengthSchedule schedule("1:16384,31:22528");
  CHECK((schedule.At(1) == 16384 && schedule.At(30) == 16384 && schedule.At(31) == 22528 &&
         schedule.At(999) == 22528));
  CHECK(schedule.Largest() == 22528);
  CHECK(LengthSchedule().empty());
  for (const char* wrong : {"", "16384", "2:16384", "1:0", "1:16384,", "1:16384,1:20000", "1:16384,9:1000"})
    CHECK_THROWS_WITH(LengthSchedule(wrong), Catch::Contains("--max-tokens-schedule"));
}

TEST_CASE("a curriculum draws problems that are solved half of the time most often, each once") {
  std::vector<std::string> problems;
  for (int i = 0; i < 20; ++i) problems.push_back("p" + std::to_string(i));
  SolveRates rates;
  for (int i = 0; i < 10; ++i) rates[problems[static_cast<size_t>(i)]] = i < 5 ? 0 : 1;
  for (int i = 10; i < 15; ++i) rates[problems[static_cast<size_t>(i)]] = 0.5;
  std::map<std::string, int> drawn;
  for (uint64_t step = 1; step <= 400; ++step) {
    const std::vector<std::string> chosen = DrawProblems(problems, rates, 4, 7, step);
    REQUIRE(std::set<std::string>(chosen.begin(), chosen.end()).size() == 4);
    for (const std::string& id : chosen) ++drawn[id];
  }
  CHECK(DrawProblems(problems, rates, 4, 7, 3) == DrawProblems(problems, rates, 4, 7, 3));
  CHECK(DrawProblems(problems, rates, 4, 7, 3) != DrawProblems(problems, rates, 4, 8, 3));
  CHECK(DrawProblems(problems, rates, 99, 7, 3).size() == 20);
  int useful = 0, useless = 0;
  for (const auto& [id, count] : drawn) (std::stoi(id.substr(1)) < 10 ? useless : useful) += count;
  CHECK(useless > 20);  // never forgotten: about 1 in 16 of 1,600
  CHECK(useless < 240);
  CHECK(drawn["p12"] > 90);  // a problem never visited counts as one solved half of the time
  CHECK(std::abs(drawn["p12"] - drawn["p17"]) < 70);
  CHECK(useful + useless == 1600);

  Records records;
  records.Add("level1/19", {{0}, {1.7}});
  records.Add("level1/20", {{1}}), records.Add("level1/20", {{1}});
  const LearnTurns turns(records.Request());
  CHECK(SolveRatesOf(turns) == SolveRates{{"level1/19", 0.5}, {"level1/20", 1}});
  CHECK(FlatTasks(turns) == 1);
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
  // A special token in the middle of the reply is not in its text.
  for (const std::string special : {"", "<pad>"}) {
    text.decode = [special](std::span<const int32_t> ids, bool skip_special) {
      return "<think>reply " + (skip_special ? "" : special) + std::to_string(ids[0]) + "/" +
             std::to_string(ids[1]) + "<end>";
    };
    CHECK(FirstBatch(records, grpo, text).batch.samples.size() == 2);
  }
  text.decode = [](std::span<const int32_t>, bool) { return std::string("text"); };
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

TEST_CASE("a run does not learn from its own evaluations in the same database") {
  Records records;
  records.Add("level1/19", {{1.2}});
  records.Add("level1/40", {{1.5}}, {.policy = PolicyNameOfRun("/tmp/r")});
  LearnRequest request = records.Request();
  request.held_out = {"level1/40"};
  CHECK_THROWS_WITH(LearnTurns(request), Catch::Contains("level1/40"));
  request.evaluated_by = PolicyNameOfRun("/tmp/x/../r");
  const LearnTurns turns(request);
  REQUIRE(turns.turns().size() == 1);
  CHECK(turns.turns()[0].problem->id == "level1/19");
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
  sft.train.units_per_step = 1;
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

TEST_CASE("the longest samples that go through the model together: of one, of both of a pair") {
  Records records;
  records.Add("level1/19", {{1.2}, {1.9}});
  records.Add("level1/20", {{1.2}, {1.9, "length"}});
  const LearnTurns turns(records.Request());
  ModelText text;
  const auto longest = [&](const char* name, const BatchOptions& options) {
    const Algorithm algorithm = *FindAlgorithm(name);
    return WithoutUnusable(turns, MakeUnits(algorithm, turns, {}), algorithm, text, options).longest_tokens;
  };
  // Each prompt has 3 tokens and each reply 2.
  CHECK(longest("grpo", {}) == 5);
  CHECK(longest("dpo", {}) == 10);
  BatchOptions none;
  none.max_sample_tokens = 4;
  CHECK(longest("grpo", none) == 0);
}

TEST_CASE("a fingerprint of units changes with their episodes, order and verdicts") {
  Records records;
  records.Add("level1/19", {{1.2}, {1.9}});
  records.Add("level1/20", {{1.2}, {1.9}});
  const Algorithm grpo = *FindAlgorithm("grpo");
  const LearnTurns turns(records.Request()), again(records.Request());
  Units units = MakeUnits(grpo, turns, {});
  const std::string fingerprint = FingerprintOf(turns, units);
  CHECK(fingerprint.size() == 16);
  CHECK(FingerprintOf(again, MakeUnits(grpo, again, {})) == fingerprint);
  std::swap(units.units[0], units.units[1]);
  CHECK(FingerprintOf(turns, units) != fingerprint);
  {
    Database database(records.Request().sources[0].database, Database::Access::kReadWrite, 5000);
    database.Execute("UPDATE evaluations SET speedup = speedup * 1.01");
  }
  const LearnTurns measured(records.Request());
  const std::string other = FingerprintOf(measured, MakeUnits(grpo, measured, {}));
  CHECK(other != fingerprint);
  records.Add("level1/21", {{1.2}, {1.9}});
  const LearnTurns more(records.Request());
  CHECK(FingerprintOf(more, MakeUnits(grpo, more, {})) != other);
}

TEST_CASE("tasks that are cut off whole, or have no token ids, make no step of their own") {
  Records records;
  records.Add("level1/19", {{1.2}, {1.9}});
  records.Add("level1/20", {{1.2, "length"}, {1.9, "length"}});
  records.Add("level1/21", {{1.2, "stop", false}, {1.9, "stop", false}});
  Algorithm grpo = *FindAlgorithm("grpo");
  grpo.train.units_per_step = 1;
  const LearnTurns turns(records.Request());
  const Units all = MakeUnits(grpo, turns, {});
  REQUIRE(all.units.size() == 3);
  const Units usable = WithoutUnusable(turns, all, grpo, {}, {});
  CHECK((usable.units.size() == 1 && usable.cut_off == 1 && usable.without_tokens == 1));
  const BatchMaker maker(turns, usable, grpo, {}, {});
  for (int step = 1; step <= 4; ++step) {
    const LearnBatch batch = maker.Make(step);
    CHECK(std::any_of(batch.batch.samples.begin(), batch.batch.samples.end(),
                      [](const local::Sample& sample) { return !sample.masked; }));
  }
  BatchOptions keeps;
  keeps.mask_cut_off = false;
  CHECK(WithoutUnusable(turns, all, grpo, {}, keeps).units.size() == 2);
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
