// What is learnt from and in which order: filters, refusals, schedules, epochs, and what a dry run tells of it.

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "agent/train/batches.h"
#include "agent/train/dry_run.h"
#include "agent/train/step_plan.h"
#include "env/error.h"
#include "tests/agent/train/learn_records.h"
#include "tests/catch.h"

namespace kevin {
namespace {

TEST_CASE("filters choose episodes by kind, rules, device, model, version, date, state and problem") {
  Records records;
  records.Add("level1/19", {{.speedup = 1.1, .model = "m@3"}, {.speedup = 1.2, .model = "m@4"}},
              {.kind = "cuda"});
  records.Add("level1/20", {{.speedup = 1.3, .model = "m@9"}}, {.device = "cuda:0: H200", .rules = "open"});
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
  CHECK(count({.rules = "open"}) == 1);
  CHECK(count({.rules = "kevin"}) == 3);
  CHECK(count({.rules = "kernelbench"}) == 0);
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
