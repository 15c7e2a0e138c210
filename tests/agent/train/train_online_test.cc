// `kevin train --online` as a user runs it: a random network whose tokens are whole kernels, a real
// problem, the programs that judge on this machine. Two of its eight kernels are right, which only trying
// tells.

#include <signal.h>

#include <chrono>
#include <fstream>
#include <functional>
#include <set>

#include "tests/agent/train/online_world.h"
#include "tests/agent/train/rank_processes.h"
#include "tests/catch.h"

namespace kevin {
namespace {

double MeanReward(const std::vector<json>& steps, size_t first, size_t last) {
  double sum = 0;
  for (size_t i = first; i < last; ++i) sum += steps[i].at("correct").get<double>();
  return sum / static_cast<double>(last - first);
}

TEST_CASE("a model learns from turns that it makes itself, judged for real") {
  const World world("cpp", {5});  // with one correct text there are few pairs to time
  const int code = world.Train(kSmall +
                               "--samples 16 --steps 14 --out run --eval-suite level1/20 --eval-samples 1 "
                               "--eval-turns 1 --eval-every 7 --test-suite level1/21");
  INFO(world.Errors());
  REQUIRE(code == 0);
  const std::vector<json> steps = world.Events("step");
  REQUIRE(steps.size() == 14);
  CHECK(MeanReward(steps, 0, 2) < 0.5);
  CHECK(MeanReward(steps, 11, 14) > 0.8);
  CHECK(steps[0].at("samples") == 32);
  CHECK(steps[5].at("staleness") == 0.0);
  CHECK(steps[5].at("sync_s").get<double>() < steps[5].at("turns_s").get<double>());  // nothing is copied
  CHECK(steps[5].at("turns_s").get<double>() > 0);
  for (const json& step : steps) {
    CHECK(step.at("delta_logprob").get<double>() < 1e-4);
  }

  // Every turn is a record, with the weights that made it: the run and the steps it had learnt.
  const std::string id = json::parse(ReadAll(world / "run/run.json")).at("id");
  Store store = Store::Open(world / "kevin.db", OpenMode::kRead);
  std::set<std::string> weights;
  for (const EpisodeRecord& episode : store.ListEpisodes(10000)) {
    for (const TurnRecord& turn : store.LoadTurns(episode.id)) {
      weights.insert(turn.model.weights_hash);
      CHECK(turn.model.weights_hash == id + turn.model.name.substr(turn.model.name.rfind('@')));
      CHECK(turn.model.tokenizer_hash == ContentHash(ReadAll(world / "model/tokenizer.json")));
      CHECK(turn.model.template_hash == ContentHash("?"));
      CHECK(turn.model.name.starts_with("model@"));
    }
  }
  CHECK(weights.size() == 15);  // before and after each step

  const std::vector<json> evaluations = world.Events("evaluation_step");
  REQUIRE(evaluations.size() == 4);
  CHECK(
      (evaluations[0].at("step") == 0 && evaluations[1].at("step") == 7 && evaluations[2].at("step") == 14));
  CHECK(evaluations[0].at("best") == true);
  CHECK(evaluations[0].at("serial").at("turns") == 1);
  CHECK(evaluations[3].at("split") == "test");
  CHECK(fs::exists(world / "run/best/model/config.json"));
  CHECK(fs::exists(world / "run/rollouts/00000014.jsonl"));
  const json run = json::parse(ReadAll(world / "run/run.json"));
  CHECK(run.at("test").at("suite") == "level1/21");
  CHECK(run.at("best").at("step") == evaluations[3].at("step"));
  // A second reading is refused.
  CHECK(world.Train(kSmall +
                    "--samples 16 --steps 14 --out run --resume --eval-suite level1/20 --eval-samples 1 "
                    "--eval-turns 1 --eval-every 7 --test-suite level1/21") == 2);
  CHECK(world.Errors().find("was read on") != std::string::npos);
}

// Kills the programs of a run that is under way once `ready` says so, as a lost machine would.
void KillWhen(const World& world, const std::string& arguments, const std::function<bool()>& ready) {
  const pid_t child = StartCommand(world.Command(arguments));
  ComesTrue(ready, std::chrono::seconds(120));
  kill(-child, SIGKILL);
  CodeOf(child);
}

TEST_CASE("killed between two steps and within one, a run goes on with the turns that are there") {
  const World world;
  const std::string six = kSmall + "--samples 8 --steps 6 --checkpoint-every 2 --keep 9 ";
  const auto steps_of = [&](const std::string& out) {
    std::ifstream lines(world / (out + "/metrics.jsonl"));
    int count = 0;
    for (std::string line; std::getline(lines, line);) ++count;
    return count;
  };
  REQUIRE(world.Train(six + "--out whole --db whole.db") == 0);
  KillWhen(world, six + "--out half --db half.db", [&] { return steps_of("half") >= 3; });
  const int before = steps_of("half");
  REQUIRE(before >= 3);
  REQUIRE(before < 6);
  const int code = world.Train(six + "--out half --db half.db --resume");
  INFO(world.Errors());
  REQUIRE(code == 0);
  const std::vector<json> steps = world.Events("step");
  CHECK(steps.front().at("step") <= before + 1);
  CHECK(steps.front().at("step") > 2);
  // The same turns (drawn by the same seeds from the same weights), none of them twice.
  const auto count = [&](const std::string& database) {
    size_t turns = 0;
    Store store = Store::Open(world / database, OpenMode::kRead);
    for (const EpisodeRecord& episode : store.ListEpisodes(10000))
      turns += store.LoadTurns(episode.id).size();
    return turns;
  };
  CHECK(count("half.db") == count("whole.db"));
  CHECK(count("half.db") == 6 * 16);
}

TEST_CASE("episodes that were begun on another model of device are named, not waited for") {
  const World world;
  // Of long episodes: one that has stored a turn is under way whenever the kill comes.
  const std::string step = "--suite level1/19 --turns 10 --samples 3 --steps 1 --parallel 2 --out run";
  KillWhen(world, step, [&] { return world.TurnsOf("step-1") >= 3; });
  {
    Database database(world / "kevin.db", Database::Access::kReadWrite, 5000);
    database.Execute(
        "UPDATE work_items SET device = 'Another' WHERE episode IS NOT NULL AND state <> 'done'");
    REQUIRE(database.QueryInteger("SELECT count(*) FROM work_items WHERE device = 'Another'") >= 1);
  }
  CHECK(world.Train(step + " --resume") == 3);
  INFO(world.Errors());
  CHECK(world.Errors().find("the episodes that are left were begun on Another, and this judge is ") !=
        std::string::npos);
  CHECK(world.Errors().find("go on with --resume on a machine with the same device") != std::string::npos);
  const pid_t ranks[2] = {StartCommand(RankOfTwo(0, 6015) + world.Command(step + " --resume")),
                          StartCommand(RankOfTwo(1, 6015) + world.Command(step + " --resume"))};
  for (const pid_t rank : ranks) CHECK(CodeWithin(rank, std::chrono::seconds(120)) == 3);
}

TEST_CASE("Ctrl-C at one of two ranks during an evaluation ends both, soon") {
  const World world;
  const int asked = GENERATE(0, 1);
  const std::string evaluation =
      "--suite level1/19 --turns 1 --samples 1 --steps 1 --eval-suite level1/20 --eval-turns 1 "
      "--eval-samples 300 --parallel 1 --out run";
  const pid_t ranks[2] = {StartCommand(RankOfTwo(0, 6007 + asked) + world.Command(evaluation)),
                          StartCommand(RankOfTwo(1, 6007 + asked) + world.Command(evaluation))};
  CHECK(ComesTrue([&] { return world.TurnsOf("evaluation-0") >= 5; }, std::chrono::seconds(60)));
  kill(ranks[asked], SIGINT);
  const int first = CodeWithin(ranks[0], std::chrono::seconds(60)),
            second = CodeWithin(ranks[1], std::chrono::seconds(60));
  INFO(world.Errors());
  CHECK((first == 130 && second == 130));
  CHECK(world.TurnsOf("evaluation-0") < 300);
  CHECK(world.Events("step").empty());
}

TEST_CASE(
    "Ctrl-C at rank 0, which chooses a step's problems, does not leave the other waiting for its choice") {
  const World world("cpp",
                    {});  // no kernel is right: all tasks are flat, and others are chosen in their place
  const std::string step =
      "--suite level1/19,level1/20 --problems-per-step 1 --turns 1 --samples 200 --steps 1 --refill 1 --parallel 1 "
      "--out run";
  const pid_t ranks[2] = {StartCommand(RankOfTwo(0, 6011) + world.Command(step)),
                          StartCommand(RankOfTwo(1, 6011) + world.Command(step))};
  CHECK(ComesTrue([&] { return world.TurnsOf("step-1") >= 5; }, std::chrono::seconds(60)));
  kill(ranks[0], SIGINT);
  const int first = CodeWithin(ranks[0], std::chrono::seconds(60)),
            second = CodeWithin(ranks[1], std::chrono::seconds(60));
  INFO(world.Errors());
  CHECK((first == 130 && second == 130));
  CHECK(world.Events("step").empty());
  CHECK(!fs::exists(world / "run/ending"));
  // Goes on where it ended: a file that was left behind, as by a rank that was killed, ends nothing.
  std::ofstream(world / "run/ending").flush();
  const pid_t again = StartCommand(RankOfTwo(1, 6013) + world.Command(step + " --resume"));
  CHECK(CodeWithin(StartCommand(RankOfTwo(0, 6013) + world.Command(step + " --resume")),
                   std::chrono::seconds(120)) == 0);
  CHECK(CodeWithin(again, std::chrono::seconds(60)) == 0);
  CHECK(world.Events("step").size() == 1);
}

TEST_CASE("the other ways: ahead of learning, from a second copy, imitation from the base") {
  const World world;
  INFO(world.Errors());
  REQUIRE(world.Train(kSmall + "--samples 4 --steps 4 --out ahead --staleness 2 --sampler-device cpu") == 0);
  CHECK(world.Errors().find(", a second copy of the weights ") != std::string::npos);  // in the memory plan
  for (const json& step : world.Events("step")) {
    CHECK(step.at("staleness").get<double>() <= 2);
    CHECK(step.at("staleness").get<double>() >= 0);
  }
  // The copy has the weights of each step before it answers for the next.
  REQUIRE(world.Train(kSmall + "--samples 8 --steps 4 --out copied --sampler-device cpu") == 0);
  int learnt = 0;
  for (const json& step : world.Events("step")) {
    CHECK(step.at("staleness") == 0.0);
    CHECK(step.at("sync_s").get<double>() > 0);
    CHECK(step.at("delta_logprob").get<double>() < 1e-4);
    learnt += step.at("updates") > 0;
  }
  CHECK(learnt >= 2);
  REQUIRE(world.Train(kSmall + "--samples 4 --steps 3 --out tpt --algorithm tpt --from-base") == 0);
  CHECK(world.Events("step").size() == 3);
  for (const json& step : world.Events("step")) CHECK(step.at("delta_logprob").get<double>() < 1e-4);
  // A round of imitation harvests from the whole suite.
  REQUIRE(
      world.Train(
          "--suite level1/19,level1/20,level1/21,level1/22,level1/23,level1/24,level1/25,level1/26,level1/27 "
          "--turns 1 --samples 1 --steps 1 --out round --algorithm tpt") == 0);
  CHECK(world.Events("step").at(0).at("problems").size() == 9);
  REQUIRE(world.Train(kSmall + "--samples 4 --steps 2 --out lora --lora 4") == 0);
  CHECK(fs::exists(world / "lora/adapter/adapter_config.json"));
}

TEST_CASE("a model learns to write the kind that is asked for, by the rules that are asked for") {
  const World world("modelnew");
  const std::string asked = "--suite level1/19 --turns 1 --samples 6 --steps 1 --out run --kind modelnew ";
  const int code = world.Train(asked + "--rules open --unsafe-python");
  INFO(world.Errors());
  REQUIRE(code == 0);
  const std::vector<json> steps = world.Events("step");
  REQUIRE(steps.size() == 1);
  CHECK(steps[0].at("samples") == 6);
  Store store = Store::Open(world / "kevin.db", OpenMode::kRead);
  const std::vector<EpisodeRecord> episodes = store.ListEpisodes(100);
  REQUIRE(episodes.size() == 6);
  for (const EpisodeRecord& episode : episodes) {
    CHECK((episode.kind == "modelnew" && episode.workload.rules == "open"));
    const TurnRecord turn = store.LoadTurns(episode.id).at(0);
    INFO(turn.evaluation.outcome << ", " << turn.stop_reason << ", reply: " << turn.reply);
    CHECK((turn.evaluation.outcome == "wrong" || turn.evaluation.outcome == "measured"));
    CHECK(turn.source_path.ends_with(".py"));
  }
  // The records are learnt from without a word about their kind, or by it.
  CHECK(world.Train("--kind triton --suite level1/19 --steps 1 --out other --prompts kernelbench") == 2);
  CHECK(world.Errors().find("--prompts kernelbench asks for ModelNew") != std::string::npos);
  CHECK(world.Train("--kind cuda --suite level1/19 --steps 1 --out other") == 2);
  CHECK(world.Errors().find("a kernel of kind cuda is not judged on device cpu") != std::string::npos);
}

TEST_CASE("what cannot be is said before anything is loaded") {
  const World world;
  const auto expect = [&](int code, const std::string& part, const std::string& arguments) {
    CHECK(world.Train("--out r " + arguments) == code);
    INFO(arguments + ": " + world.Errors());
    CHECK(world.Errors().find(part) != std::string::npos);
  };
  expect(2, "--suite", "");
  expect(2, "both learnt from and in --eval-suite: level1/19", "--suite level1/19 --eval-suite level1/19");
  expect(2, "chooses the checkpoint",
         "--suite level1/19 --eval-suite level1/20 --test-suite level1/20,level1/21");
  expect(2, "no such metric", "--suite level1/19 --eval-suite level1/20 --best-by luck");
  expect(2, "no entry", "--suite level1/19 --max-tokens-schedule many");
  expect(2, "one database", "--suite level1/19 --db a.db --db b.db");
}

}  // namespace
}  // namespace kevin
