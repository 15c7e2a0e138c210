// A size set with several shapes, from the verdict to the prompt.

#include <cmath>

#include "agent/conversation.h"
#include "agent/episode.h"
#include "agent/events.h"
#include "agent/feedback.h"
#include "agent/judge.h"
#include "agent/records.h"
#include "agent/shape_records.h"
#include "env/device_pool.h"
#include "env/error.h"
#include "env/problem/text.h"
#include "policies/search/search_policy.h"
#include "tests/catch.h"
#include "tests/support/fakes.h"
#include "tests/support/golden.h"
#include "tests/support/graph_text.h"

namespace kevin {
namespace {

using testing::FakeReply;
using testing::FakeSource;

// ReLU at "mine": 64 x 8 with weight 3, 2 x 7 with weight 1. The second is the cheaper one.
Problem ProblemWithShapes() {
  Problem problem = testing::ReluProblem();
  problem.sizes["mine/1"] = {{"B", 64}, {"N", 8}};
  problem.sizes["mine/2"] = {{"B", 2}, {"N", 7}};
  problem.shape_sets["mine"] = {{"mine/1", 3}, {"mine/2", 1}};
  return problem;
}

struct Fixture {
  Problem problem = ProblemWithShapes();
  testing::FakeEnvironment environment;
  EvaluateOptions options;

  Fixture() { options.workload.size = "mine"; }
  Evaluation Judge(const std::string& comment) {
    return environment.Evaluate(problem, {"cpp", FakeSource(comment)}, options);
  }
};

double SpeedupOf(const ShapeResult& shape) { return std::get<Measured>(shape.outcome).speedup.value; }

bool Has(const std::string& text, const std::string& part) { return text.find(part) != std::string::npos; }

}  // namespace

TEST_CASE("a candidate is judged at every shape, the cheapest first") {
  Fixture f;
  std::vector<std::string> phases;
  f.options.on_phase = [&](const std::string& phase) { phases.push_back(phase); };
  f.environment.at_size = {{"mine/1", "measured 2"}, {"mine/2", "measured 1.5"}};
  const Evaluation evaluation = f.Judge("both");
  CHECK(f.environment.calls == std::vector<std::string>{"// both at mine/2", "// both at mine/1"});
  CHECK(phases == std::vector<std::string>{"measure mine/2 (1 of 2)", "measure mine/1 (2 of 2)"});

  const auto* m = std::get_if<Measured>(&evaluation.outcome);
  REQUIRE(m != nullptr);
  CHECK(m->speedup.value == Approx(std::pow(2, 0.75) * std::pow(1.5, 0.25)));
  // The fake's intervals are 1 % to each side.
  CHECK(std::log(m->speedup.value / m->speedup.low) == Approx(-std::log(0.99) * std::hypot(0.75, 0.25)));
  CHECK(std::log(m->speedup.high / m->speedup.value) == Approx(std::log(1.01) * std::hypot(0.75, 0.25)));
  CHECK(m->verdict == Verdict::kFast);
  CHECK(Score(evaluation.outcome) == Approx(0.3 + m->speedup.value));

  REQUIRE(evaluation.shapes.size() == 2);  // in the file's order
  CHECK(evaluation.shapes[0].size == "mine/1");
  CHECK(evaluation.shapes[0].weight == 3);
  CHECK(evaluation.shapes[1].symbols == Symbols{{"B", 2}, {"N", 7}});
  CHECK(SpeedupOf(evaluation.shapes[0]) == 2);
  CHECK(SpeedupOf(evaluation.shapes[1]) == 1.5);
  CHECK(evaluation.workload.size == "mine");
  CHECK(evaluation.key_parts.at("size") == "mine");
  CHECK(evaluation.key == f.environment.EvaluationKey(f.problem, {"cpp", FakeSource("both")}, f.options));
  CHECK(evaluation.seeds == std::vector<uint64_t>{2, 1});
  REQUIRE(evaluation.samples.size() == 2);
  CHECK(evaluation.samples[0].process == 0);
  CHECK(evaluation.samples[1].process == 1);  // of another shape, so another process
}

TEST_CASE("the first failure is the outcome and names the shape") {
  Fixture f;
  f.environment.at_size = {{"mine/2", "wrong"}};
  Evaluation evaluation = f.Judge("measured 2");
  CHECK(f.environment.calls == std::vector<std::string>{"// measured 2 at mine/2"});  // that is enough
  CHECK(OutcomeName(evaluation.outcome) == std::string("wrong"));
  CHECK(OutcomeReason(evaluation.outcome) == "at mine/2 (B = 2, N = 7): out[0, 3] is 1.5, should be 0.25");
  CHECK(std::get<Wrong>(evaluation.outcome).error_bound == 0.001);
  CHECK(Score(evaluation.outcome) == 0);
  REQUIRE(evaluation.shapes.size() == 1);

  const std::string here = "at mine/1 (B = 64, N = 8)";
  f.environment.at_size = {{"mine/1", "crash"}};
  evaluation = f.Judge("measured 2");
  CHECK(OutcomeReason(evaluation.outcome) == here + ": signal 11 (segmentation fault) in the first call");
  REQUIRE(evaluation.shapes.size() == 2);
  CHECK(SpeedupOf(evaluation.shapes[1]) == 2);
  CHECK(Feedback(evaluation, {}).ends_with("\nIt is correct at mine/2 (B = 2, N = 7)."));

  f.environment.at_size = {{"mine/1", "timeout"}};
  CHECK(OutcomeReason(f.Judge("measured 2").outcome) == "verify " + here + " took longer than 20 s");
  f.environment.at_size = {{"mine/1", "refused"}};
  CHECK(OutcomeReason(f.Judge("measured 2").outcome) == here + ": deferred work");
  f.environment.at_size = {{"mine/1", "compile"}};
  evaluation = f.Judge("measured 2");
  CHECK(OutcomeReason(evaluation.outcome) == here + ": 2:3: error: 'y' was not declared in this scope");
  CHECK(Has(Feedback(evaluation, {}), "The kernel does not compile " + here + ":\n"));

  f.environment.at_size = {{"mine/1", "error"}};
  CHECK_THROWS_AS(f.Judge("measured 2"), Error);  // broken machinery is no verdict
}

TEST_CASE("each shape of a set is a size of its own, and other sizes are as ever") {
  Fixture f;
  f.options.workload.size = "mine/2";
  Evaluation evaluation = f.Judge("measured 2");
  CHECK(evaluation.workload.size == "mine/2");
  CHECK(evaluation.shapes.empty());
  f.options.workload.size = "small";
  CHECK(f.Judge("measured 2").shapes.empty());
  CHECK(f.environment.calls == std::vector<std::string>{"// measured 2 at mine/2", "// measured 2 at small"});
}

TEST_CASE("confirmation and a kernel to start from reach every shape") {
  Fixture f;
  f.options.confirm = true;
  f.options.start_source = FakeSource("measured 1");
  f.environment.at_size = {{"mine/1", "measured 2"}, {"mine/2", "measured 1.5"}};
  const Evaluation evaluation = f.Judge("both");
  CHECK(f.environment.calls == std::vector<std::string>{"// both at mine/2 (confirm) beside 1",
                                                        "// both at mine/1 (confirm) beside 1"});
  const auto& m = std::get<Measured>(evaluation.outcome);
  REQUIRE(m.against_start.has_value());
  CHECK(m.against_start->value == Approx(m.speedup.value));
}

TEST_CASE("machine code that is known at all shapes has its verdict from there") {
  Fixture f;
  f.environment.machine_keys = true;
  std::vector<std::string> asked;
  std::optional<Evaluation> stored;
  f.options.known = [&](const std::string& key) {
    asked.push_back(key);
    return stored;
  };
  Evaluation first = f.Judge("measured 2");
  REQUIRE(asked.size() == 1);  // once, for all shapes
  CHECK(first.machine_key == asked[0]);
  CHECK(f.environment.calls.size() == 2);

  stored = first;
  stored->cached_from = "01JEARLIER";
  const Candidate other{"cpp", FakeSource("measured 2") + "// another text\n"};
  const Evaluation again = f.environment.Evaluate(f.problem, other, f.options);
  CHECK(f.environment.calls.size() == 2);
  CHECK(again.cached_from == "01JEARLIER");
  CHECK(again.shapes.size() == 2);
  CHECK(again.machine_key == first.machine_key);
  CHECK(again.candidate_hash == Sha256Hex("cpp\n" + other.source));
  CHECK(again.key == f.environment.EvaluationKey(f.problem, other, f.options));

  f.options.confirm = true;
  f.environment.Evaluate(f.problem, other, f.options);
  CHECK(f.environment.calls.size() == 4);
}

TEST_CASE("a pool of devices judges all shapes too") {
  Fixture f;
  std::vector<std::unique_ptr<Environment>> devices;
  for (int i = 0; i < 2; ++i) {
    auto device = std::make_unique<testing::FakeEnvironment>();
    device->at_size = {{"mine/1", "measured 2"}, {"mine/2", "measured 1.5"}};
    devices.push_back(std::move(device));
  }
  DevicePool pool(std::move(devices));
  const Evaluation evaluation = pool.Evaluate(f.problem, {"cpp", FakeSource("both")}, f.options);
  CHECK(evaluation.shapes.size() == 2);
  CHECK(evaluation.workload.size == "mine");
}

TEST_CASE("shapes survive the store's text and are an additive field of events") {
  Fixture f;
  f.environment.at_size = {{"mine/2", "measured 1.5"}, {"mine/1", "wrong"}};
  const Candidate candidate{"cpp", FakeSource("measured 2")};
  const Evaluation evaluation = f.environment.Evaluate(f.problem, candidate, f.options);
  const EvaluationRecord record = ToRecord(evaluation, candidate, f.problem, "bench");
  CHECK(record.workload.size == "mine");
  CHECK(record.outcome == "wrong");
  const Evaluation back = FromRecord(record);
  REQUIRE(back.shapes.size() == 2);
  CHECK(ShapesToText(back.shapes) == ShapesToText(record.shapes));
  CHECK(ShapesToText(ShapesFromText(ShapesToText(record.shapes))) == ShapesToText(record.shapes));
  CHECK(OutcomeReason(back.outcome) == OutcomeReason(evaluation.outcome));
  CHECK(back.shapes[0].weight == 3);
  CHECK(SpeedupOf(back.shapes[1]) == 1.5);

  const Json event = EvaluationEvent(record, "mine/relu", "relu.cpp", 1);
  REQUIRE(event.at("shapes").size() == 2);
  CHECK(event["shapes"][0]["outcome"] == "wrong");
  CHECK(event["shapes"][0]["speedup"].is_null());
  CHECK(event["shapes"][1]["speedup"] == 1.5);
  CHECK(event["shapes"][1]["speedup_low"] == 1.5 * 0.99);
  CHECK(event["shapes"][1]["symbols"]["N"] == 7);

  f.options.workload.size = "small";
  const Evaluation one = f.environment.Evaluate(f.problem, candidate, f.options);
  const EvaluationRecord plain = ToRecord(one, candidate, f.problem, "bench");
  CHECK(plain.shapes.empty());
  CHECK(ShapesToText(plain.shapes).empty());
  CHECK(EvaluationEvent(plain, "mine/relu", "relu.cpp", 1).at("shapes").is_null());
  CHECK(ShapesFromText("not JSON").empty());
  CHECK(ShapesFromText(R"([{"size": 3}])").empty());

  // The shape at which it does not compile is a field of its own.
  f.options.workload.size = "mine";
  f.environment.at_size = {{"mine/1", "compile"}};
  const Evaluation failed = f.environment.Evaluate(f.problem, candidate, f.options);
  const Evaluation failed_back = FromRecord(ToRecord(failed, candidate, f.problem, "bench"));
  CHECK(OutcomeReason(failed_back.outcome) == OutcomeReason(failed.outcome));
}

TEST_CASE("an episode at several shapes: prompts, cached verdicts, the winner's numbers") {
  Fixture f;
  const testing::TempFolder folder;
  Store store = Store::Open(folder.path() / "kevin.db", OpenMode::kCreate);
  f.environment.at_size = {{"mine/2", "measured 1.5"}};
  EpisodeOptions options;
  options.run = store.BeginRun({});
  options.workload.size = "mine";
  options.output = folder.path() / "out";
  options.machine = "Fake CPU";
  options.audit_rates = {0, 0};
  options.turns = 2;
  testing::ScriptedPolicy policy({FakeReply("measured 2"), FakeReply("measured 2")});
  const CancelToken cancel{false};
  const EpisodeRecord episode = RunEpisode(f.problem, policy, f.environment, store, options, {}, &cancel);
  CHECK(f.environment.calls == std::vector<std::string>{"// measured 2 at mine/2", "// measured 2 at mine/1",
                                                        "// measured 2 at mine/2 (confirm)",
                                                        "// measured 2 at mine/1 (confirm)"});
  CHECK(episode.workload.size == "mine");
  const double expected = std::pow(2, 0.75) * std::pow(1.5, 0.25);
  CHECK(episode.best_speedup == Approx(expected));
  const std::vector<TurnRecord> turns = store.LoadTurns(episode.id);
  REQUIRE(turns.size() == 2);
  CHECK(turns[1].evaluation.cached_from == turns[0].evaluation.id);
  CHECK(turns[1].evaluation.shapes.size() == 2);
  CHECK(turns[1].reward == Approx(0.3 + expected));
  CHECK(Has(turns[0].feedback, "The speed-up is smallest at mine/2:"));
  testing::CheckGolden("tests/agent/golden/shapes_turn.txt", policy.requests[1].messages[1].content);
  CHECK(policy.requests[0].task.symbols == Symbols{{"B", 64}, {"N", 8}});
  CHECK(policy.requests[0].task.shapes == 2);
}

TEST_CASE("a policy that reads graphs gets one a shape, or is told which is missing") {
  Fixture f;
  EpisodeOptions options;
  options.workload.size = "mine";
  const auto search = MakeSearchPolicy();
  const GraphFunction graph_of = [&](const Problem& problem, const std::string& size) {
    return f.environment.Graph(problem, size);
  };
  try {
    RequirePolicyFor(f.problem, *search, options, "cpp", graph_of);
    FAIL("there is no graph");
  } catch (const Error& error) {
    CHECK(Has(error.what(), "there is no graph of the reference"));
  }
  for (const auto& [size, batch] : {std::pair("mine/1", 4L), std::pair("mine/2", 64L)})
    f.environment.graphs[size] = test::GraphText({{"x", {batch, 8}}}, test::ReluSteps({batch, 8}));
  RequirePolicyFor(f.problem, *search, options, "cpp", graph_of);
  f.environment.graphs["mine/1"] =
      test::GraphText({{"x", {4, 8}}}, {{"unknown_op", R"({"self":{"tensor":0}})", {4, 8}}});
  try {
    RequirePolicyFor(f.problem, *search, options, "cpp", graph_of);
    FAIL("one shape cannot be written");
  } catch (const Error& error) {
    CHECK(Has(error.what(), "`unknown_op`"));
  }
  options.workload.size = "mine/2";
  RequirePolicyFor(f.problem, *search, options, "cpp", graph_of);
}

}  // namespace kevin
