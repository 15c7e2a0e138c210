// `kevin train --online` in two processes that sample together, each with a part of the model's heads.

#include <signal.h>

#include <chrono>
#include <map>

#include "tests/agent/train/online_world.h"
#include "tests/agent/train/rank_processes.h"
#include "tests/catch.h"

namespace kevin {
namespace {

const std::string kTogether = kSmall + "--keep-flat --shard --split-sampler ";

std::string OfRank(const World& world, int rank, int port, const std::string& arguments) {
  return RankOfTwo(rank, port) + "export KEVIN_LOST_SECONDS=5; " + world.Command(arguments);
}

// Of both ranks, the worse one.
int Train(const World& world, const std::string& arguments, int port) {
  const pid_t second = StartCommand(OfRank(world, 1, port, arguments));
  const int first = CodeOf(StartCommand(OfRank(world, 0, port, arguments)));
  return std::max(first, CodeOf(second));
}

// Replies by the weights that made them and the episode's number.
std::multimap<std::string, std::string> Replies(const fs::path& database) {
  std::multimap<std::string, std::string> replies;
  Store store = Store::Open(database, OpenMode::kRead);
  for (const EpisodeRecord& episode : store.ListEpisodes(10000)) {
    for (const TurnRecord& turn : store.LoadTurns(episode.id))
      replies.emplace(turn.model.name + " " + std::to_string(turn.sampling.seed.value_or(0)), turn.reply);
  }
  return replies;
}

TEST_CASE("two processes that sample together draw what one draws, and learn from it") {
  const World world("cpp", {1, 5}, 2);  // half of what is drawn
  const std::string four =
      "--suite level1/19 --turns 2 --learning-rate 1e-3 --max-grad-norm 0.5 --constant-tokens 1 --keep-flat "
      "--samples 8 --steps 4 --eval-suite level1/20 --eval-samples 2 --eval-turns 1 ";
  const int alone = world.Train(four + "--out run --db one.db");
  INFO(world.Errors());
  REQUIRE(alone == 0);
  fs::remove(world / "errors.txt"), fs::remove(world / "out.jsonl");
  fs::rename(world / "run", world / "one");  // seeds follow from the name of the output
  const int together = Train(world, four + "--shard --split-sampler --out run --db two.db", 11);
  const std::string errors = world.Errors();
  INFO(errors);
  REQUIRE(together == 0);
  CHECK(errors.find("sampled by 2 ranks together") != std::string::npos);
  CHECK(errors.find("as it is sampled here") != std::string::npos);
  const std::vector<json> steps = world.Events("step");
  REQUIRE(steps.size() == 4);
  int learnt = 0;
  for (const json& step : steps) {
    CHECK(step.at("samples") == 16);
    CHECK(step.at("staleness") == 0.0);
    if (step.at("updates") == 0) continue;
    ++learnt;
    // The slices have the weights that the shards have learnt.
    CHECK(step.at("delta_logprob").get<double>() < 1e-4);
  }
  CHECK(learnt >= 2);
  CHECK(world.Events("evaluation_step").size() == 2);
  CHECK(fs::exists(world / "run/model/model.safetensors"));
  // Before the first update the weights are the same, and so is what is drawn from them.
  const auto one = Replies(world / "one.db"), two = Replies(world / "two.db");
  CHECK(one.size() == two.size());
  size_t same = 0;
  for (const auto& [key, reply] : one) {
    if (!key.starts_with("model@0 ")) continue;
    const auto other = two.find(key);
    REQUIRE(other != two.end());
    same += other->second == reply;
    CHECK(other->second == reply);
  }
  CHECK(same >= 16);
}

TEST_CASE("a run of ranks that sample together is resumed by one process") {
  const World world("cpp", {3, 7}, 2);
  const std::string two = "--samples 4 --steps 2 --staleness 1 --out run ";
  const int code = Train(world, kTogether + two, 23);
  INFO(world.Errors());
  REQUIRE(code == 0);
  fs::remove_all(world / "run/checkpoints"), fs::remove_all(world / "run/model");
  CHECK(Train(world, kTogether + two + "--checkpoint-every 1 --resume ", 29) == 0);
  fs::remove_all(world / "run/checkpoints/step-00000002");
  const int on = world.Train(kSmall + "--keep-flat " + two + "--resume");
  INFO(world.Errors());
  CHECK(on == 0);
  CHECK(world.Events("step").size() == 1);
}

TEST_CASE("where one of two processes that sample together is killed the other ends soon, and says so") {
  const World world("cpp", {3, 7}, 2);
  const int victim = GENERATE(0, 1);
  const std::string endless = kTogether + "--samples 30 --steps 1000 --out run";
  const pid_t ranks[2] = {StartCommand(OfRank(world, 0, 31 + victim, endless)),
                          StartCommand(OfRank(world, 1, 31 + victim, endless))};
  CHECK(ComesTrue([&] { return !ReadAll(world / "run/metrics.jsonl").empty(); }, std::chrono::seconds(60)));
  kill(-ranks[victim], SIGKILL);
  const auto killed = std::chrono::steady_clock::now();
  CodeOf(ranks[victim]);
  const int code = CodeOf(ranks[1 - victim]);
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - killed).count();
  INFO(world.Errors() << "after " << seconds << " s");
  CHECK(code == 4);
  CHECK(seconds < 60);
  CHECK(world.Errors().find(" lost rank " + std::to_string(victim)) != std::string::npos);
}

TEST_CASE("Ctrl-C at rank 0 ends both ranks; its server answers until the other has ended its turns") {
  const World world("cpp", {3, 7}, 2);
  const std::string long_evaluation =
      kTogether +
      "--samples 1 --steps 1 --eval-suite level1/20 --eval-turns 1 --eval-samples 300 --parallel 1 "
      "--out run";
  const pid_t first = StartCommand(OfRank(world, 0, 41, long_evaluation)),
              second = StartCommand(OfRank(world, 1, 41, long_evaluation));
  CHECK(ComesTrue([&] { return world.TurnsOf("evaluation-0") >= 5; }, std::chrono::seconds(60)));
  kill(first, SIGINT);
  const int of_first = CodeWithin(first, std::chrono::seconds(60)),
            of_second = CodeWithin(second, std::chrono::seconds(60));
  INFO(world.Errors());
  CHECK((of_first == 130 && of_second == 130));
  CHECK(world.TurnsOf("evaluation-0") < 300);
  CHECK(world.Errors().find("discarded") == std::string::npos);  // no turn lost its answer
  CHECK(world.Events("step").empty());
}

TEST_CASE("a sampler that cannot be split is refused before anything is loaded") {
  const World world, two_heads("cpp", {3, 7}, 2);
  const auto expect = [](const World& in, const std::string& part, const std::string& arguments,
                         const std::string& ranks =
                             "WORLD_SIZE=2 RANK=0 MASTER_ADDR=127.0.0.1 MASTER_PORT=1") {
    fs::remove(in / "errors.txt");
    const std::string command = "export " + ranks + "; " + in.Command("--out r " + arguments);
    CHECK(CodeOf(StartCommand(command)) == 2);
    INFO(arguments + ": " + in.Errors());
    CHECK(in.Errors().find(part) != std::string::npos);
  };
  expect(two_heads, "add --shard", "--suite level1/19 --split-sampler");
  expect(two_heads, "leave out --sampler-device", kTogether + "--sampler-device cpu");
  expect(two_heads, "there is one", kTogether, "NO_RANKS=1");
  expect(world, "heads of keys and values are 1, which 2 does not divide", kTogether);
}

}  // namespace
}  // namespace kevin
