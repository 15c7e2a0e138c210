// `kevin train --online`: which tasks a step learns from, and those that teach nothing.

#include <fstream>

#include "tests/agent/train/online_world.h"
#include "tests/catch.h"

namespace kevin {
namespace {

TEST_CASE("tasks without a difference are replaced by others, problems are drawn by their solve rates") {
  const World world;
  // One episode of one turn: no task has a difference, so each of the two rounds replaces its problem.
  const int code = world.Train(
      "--suite level1/19,level1/20,level1/21,level1/22 --turns 1 --samples 1 --problems-per-step 1 --steps 2 "
      "--refill 2 --curriculum --max-tokens-schedule 1:1,2:2 --out run");
  INFO(world.Errors());
  REQUIRE(code == 0);
  const std::vector<json> steps = world.Events("step");
  REQUIRE(steps.size() == 2);
  for (const json& step : steps) {
    CHECK((step.at("tasks") == 3 && step.at("flat_tasks") == 3 && step.at("flat_share") == 1.0));
    CHECK((step.at("problems").size() == 3 && step.at("updates") == 0));
    const double turns_s = step.at("turns_s"), generate_s = step.at("generate_s");
    CHECK((generate_s > 0 && generate_s < turns_s));
  }
  // A verdict that is in the database takes no time of a judge.
  const double turns_s = steps[0].at("turns_s"), judge_s = steps[0].at("judge_s");
  CHECK((judge_s > 0 && judge_s < turns_s));
  const json run = json::parse(ReadAll(world / "run/run.json"));
  CHECK(run.at("chosen").at("step-1").size() == 1);
  CHECK(run.at("chosen").at("step-1-refill-2").size() == 1);
  CHECK(run.at("collections").contains("step-2-refill-2"));
  CHECK(run.at("solve_rates").size() >= 3);
  Database database(world / "kevin.db", Database::Access::kReadOnly, 5000);
  CHECK(database.QueryText("SELECT group_concat(DISTINCT max_tokens) FROM turns ORDER BY max_tokens") ==
        "1,2");
}

TEST_CASE("a step learns from the tasks that replaced those without a difference") {
  const World world("cpp", {1, 5});
  // All kernels that the model writes are for level1/19, and incorrect for level1/20.
  const int code = world.Train(
      "--suite level1/19,level1/20 --turns 2 --samples 8 --problems-per-step 1 --steps 2 --refill 1 "
      "--learning-rate 1e-4 --out run");
  INFO(world.Errors());
  REQUIRE(code == 0);
  const std::vector<json> steps = world.Events("step");
  REQUIRE(steps.size() == 2);
  // Each problem is the first of one step.
  const json& refilled = steps[steps[0].at("tasks") == 2 ? 0 : 1];
  const json& other = steps[steps[0].at("tasks") == 2 ? 1 : 0];
  CHECK((refilled.at("tasks") == 2 && refilled.at("flat_tasks") == 1 && refilled.at("flat_share") == 0.5));
  CHECK((refilled.at("updates") > 0 && refilled.at("grad_norm") > 0.0 && refilled.at("trained_tokens") > 0));
  CHECK(refilled.at("delta_logprob").get<double>() < 1e-4);
  CHECK((other.at("tasks") == 1 && other.at("flat_tasks") == 0));
  CHECK(other.at("updates") > 0);
  const json chosen = json::parse(ReadAll(world / "run/run.json")).at("chosen");
  const std::string step = std::to_string(refilled.at("step").get<int>());
  CHECK(chosen.at("step-" + step + "-refill-1") == json::array({"level1/19"}));
}

TEST_CASE("a task whose episodes are all parked is replaced by another one, and the step says so") {
  const World world("cpp", {1, 5});
  // The prompt of level1/20 (leaky_relu) is longer than the context of 4096.
  std::ofstream(world / "model/chat_template.jinja") << "{% if 'leaky_relu' in messages[-1]['content'] %}"
                                                     << std::string(5000, '?') << "{% else %}?{% endif %}";
  const int code = world.Train(
      "--suite level1/19,level1/20 --turns 2 --samples 4 --problems-per-step 1 --steps 2 --refill 1 --out run");
  INFO(world.Errors());
  REQUIRE(code == 0);
  const std::vector<json> steps = world.Events("step");
  REQUIRE(steps.size() == 2);
  CHECK(steps[0].at("parked_tasks").get<int>() + steps[1].at("parked_tasks").get<int>() == 1);
  const json chosen = json::parse(ReadAll(world / "run/run.json")).at("chosen");
  // Each problem is the first of one step.
  for (const json& step : steps) {
    CHECK((step.at("tasks") == 1 && step.at("problems") == json::array({"level1/19"})));
    CHECK(step.at("updates") > 0);
    const bool parked = step.at("parked_tasks") == 1;
    const std::string name = "step-" + std::to_string(step.at("step").get<int>()) + "-refill-1";
    CHECK(chosen.at(name).size() == (parked ? 1 : 0));
  }
  CHECK(world.Errors().find("  parked tasks 1") != std::string::npos);
}

TEST_CASE("dapo replaces tasks without a difference unless it is told otherwise") {
  const World world;
  const std::string asked =
      "--suite level1/19,level1/20,level1/21 --turns 1 --samples 1 --problems-per-step 1 --steps 1 ";
  REQUIRE(world.Train(asked + "--algorithm dapo --out run") == 0);
  INFO(world.Errors());
  CHECK(world.Events("step").at(0).at("tasks") == 3);  // until no problem is left
  REQUIRE(world.Train(asked + "--algorithm dapo --refill 0 --out once") == 0);
  CHECK(world.Events("step").at(0).at("tasks") == 1);
}

TEST_CASE("a step whose episodes are all parked is passed over, the run goes on") {
  const World world;
  std::ofstream(world / "model/chat_template.jinja") << std::string(5000, '?');  // beyond the context of 4096
  const std::string asked =
      "--suite level1/19,level1/20 --turns 1 --samples 2 --problems-per-step 1 --steps 2 ";
  for (const std::string more : {"--out plain", "--refill 1 --out refilled", "--curriculum --out chosen"}) {
    const int code = world.Train(asked + more);
    INFO(more + ": " + world.Errors());
    REQUIRE(code == 0);
    const std::vector<json> steps = world.Events("step");
    REQUIRE(steps.size() == 2);
    for (const json& step : steps)
      CHECK((step.at("samples") == 0 && step.at("tasks") == 0 && step.at("updates") == 0));
    CHECK(world.Errors().find("all of its episodes are parked") != std::string::npos);
  }
}

}  // namespace
}  // namespace kevin
