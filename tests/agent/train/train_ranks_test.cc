// `kevin train` in several processes, as torchrun starts it: they learn what one learns, and none is waited for in vain.

#include <signal.h>

#include <chrono>
#include <cmath>
#include <fstream>
#include <future>

#include "policies/local/files/safetensors.h"
#include "tests/agent/train/rank_processes.h"
#include "tests/agent/train/recorded_world.h"
#include "tests/catch.h"
#include "tests/folders.h"

namespace kevin {
namespace {

// Between the float32 weights of two folders of one model.
double LargestGap(const std::filesystem::path& first, const std::filesystem::path& second) {
  const auto one = local::Checkpoint::Open(first), two = local::Checkpoint::Open(second);
  double largest = 0;
  for (const auto& [name, tensor] : one.Tensors()) {
    const auto* a = reinterpret_cast<const float*>(tensor.bytes.data());
    const auto* b = reinterpret_cast<const float*>(two.Find(name)->bytes.data());
    for (size_t i = 0; i < tensor.bytes.size() / 4; ++i)
      largest = std::max(largest, static_cast<double>(std::abs(a[i] - b[i])));
  }
  return largest;
}

// As a shell runs it; `environment` has the rank.
std::string RankCommand(const World& world, const std::string& environment, const std::string& arguments) {
  return "cd " + (world / "").string() + " && " + environment + BinaryFolder().string() +
         "/bin/kevin train --device cpu --dtype float32 " + arguments + " >rank1.txt 2>&1 </dev/null";
}

TEST_CASE("two processes train as one does") {
  const World world;
  REQUIRE(world.Train(kGrpo + "--out one").code == 0);
  const std::string ranks = RanksOfTwo(0);
  const std::string second = RankCommand(world, ranks + "RANK=1 ", kGrpo + "--out two") + " &";
  REQUIRE(std::system(second.c_str()) == 0);
  const TrainResult first = world.Train(kGrpo + "--out two", ranks + "RANK=0");
  INFO(first.errors);
  REQUIRE(first.code == 0);
  CHECK(LargestGap(world / "one/model", world / "two/model") < 1e-4);
  CHECK(ReadAll(world / "rank1.txt").empty());
  // The first rank says who is where.
  for (const char* rank : {"rank 0 of 2 on ", "rank 1 of 2 on "})
    CHECK(first.errors.find(rank) != std::string::npos);
  CHECK(first.errors.find(": trains on cpu") != std::string::npos);
}

TEST_CASE("two processes with sharded weights train as one does, and one goes on, sharded or not") {
  const World world;
  REQUIRE(world.Train(kGrpo + "--out one").code == 0);
  const std::string ranks = RanksOfTwo(1201);
  const std::string sharded = kGrpo + "--shard --checkpoint-every 2 --keep 9 --out two";
  const std::string second = RankCommand(world, ranks + "RANK=1 ", sharded) + " &";
  REQUIRE(std::system(second.c_str()) == 0);
  const TrainResult first = world.Train(sharded, ranks + "RANK=0");
  INFO(first.errors);
  REQUIRE(first.code == 0);
  CHECK(first.errors.find("two layers at a time") != std::string::npos);
  const auto gap = [&] { return LargestGap(world / "one/model", world / "two/model"); };
  CHECK(gap() < 1e-4);
  for (const std::string how : {"--shard ", ""}) {
    fs::remove_all(world / "two/checkpoints/step-00000004");
    fs::remove_all(world / "two/model");
    const TrainResult on = world.Train(kGrpo + how + "--out two --resume");
    INFO(how << on.errors);
    REQUIRE(on.code == 0);
    CHECK(on.events[0].at("step") == 3);
    CHECK(gap() < 1e-4);
  }
}

TEST_CASE("one damaged share ends both processes with its name, a rank that is missing the other, soon") {
  const World world;
  const auto start = std::chrono::steady_clock::now();
  const auto both = [&](const std::string& arguments, int offset) {
    const std::string second =
        RankCommand(world, RanksOfTwo(offset) + "RANK=1 ", arguments) + "; echo code $? >>rank1.txt";
    auto other = std::async(std::launch::async, [&] { return std::system(second.c_str()); });
    TrainResult ran = world.Train(arguments, RanksOfTwo(offset) + "RANK=0");
    other.wait();
    return ran;
  };
  const std::string four = kGrpo + "--checkpoint-every 2 --keep 9 --out two";
  REQUIRE(both(four, 9001).code == 0);
  const fs::path checkpoint = world / "two/checkpoints/step-00000004";
  const fs::path share = checkpoint / "optimizer-1-of-2.safetensors";
  fs::resize_file(share, fs::file_size(share) - 100);
  const TrainResult ran = both(four + " --resume", 9003);
  const std::string second = ReadAll(world / "rank1.txt");
  INFO(ran.errors << second);
  CHECK(ran.code == 2);
  CHECK(ran.errors.find("rank 1: ") != std::string::npos);
  for (const std::string& errors : {ran.errors, second})
    CHECK(errors.find("optimizer-1-of-2") != std::string::npos);
  CHECK(second.find("code 2") != std::string::npos);
  fs::remove_all(checkpoint);
  CHECK(both(four + " --resume", 9005).code == 0);  // from the checkpoint before

  const TrainResult alone =
      world.Train(kGrpo + "--out alone", RanksOfTwo(9007) + "RANK=0 KEVIN_JOIN_SECONDS=2");
  INFO(alone.errors);
  CHECK(alone.code == 4);
  CHECK(alone.errors.find("there is no rank 1") != std::string::npos);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(120));
}

TEST_CASE("two processes whose --out is not one folder end soon, in saving and in resuming") {
  const World world;
  const auto start = std::chrono::steady_clock::now();
  const std::string asked = kGrpo + "--checkpoint-every 2 ";
  const auto both = [&](const std::string& first, const std::string& second, int offset) {
    const std::string command =
        RankCommand(world, RanksOfTwo(offset) + "RANK=1 ", asked + second) + "; echo code $? >>rank1.txt";
    auto other = std::async(std::launch::async, [&] { return std::system(command.c_str()); });
    TrainResult ran = world.Train(asked + first, RanksOfTwo(offset) + "RANK=0");
    other.wait();
    ran.errors += ReadAll(world / "rank1.txt");
    return ran;
  };
  const TrainResult apart = both("--out one", "--out two", 9101);
  INFO(apart.errors);
  CHECK((apart.code == 4 && apart.errors.find("code 4") != std::string::npos));
  CHECK(apart.errors.find("one/checkpoints/.shares-2 has no share") != std::string::npos);
  CHECK(apart.errors.find("--out on a file system that they share") != std::string::npos);
  CHECK(apart.errors.find("checkpoint  ") == std::string::npos);
  REQUIRE(both("--out three", "--out three", 9103).code == 0);
  const TrainResult on = both("--out three --resume", "--out two --resume", 9105);
  INFO(on.errors);
  CHECK((on.code == 2 && on.errors.find("code 2") != std::string::npos));
  CHECK(on.errors.find("rank 0 goes on from step-00000004, rank 1 from no checkpoint") != std::string::npos);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(120));
}

TEST_CASE("where one of two processes is killed or hangs the other ends soon, and says so") {
  const World world;
  // Hangs as a machine does: its connections stay.
  const int signal = GENERATE(SIGKILL, SIGSTOP);
  const std::string ranks = RanksOfTwo(7919 + signal) + "KEVIN_LOST_SECONDS=5 ";
  const std::string endless =
      "--model model --steps 1000000 --checkpoint-every 0 --learning-rate 1e-6 --out two";
  const pid_t second = StartCommand(RankCommand(world, ranks + "RANK=1 exec ", endless));
  auto first = std::async(std::launch::async, [&] { return world.Train(endless, ranks + "RANK=0"); });
  const auto lines = [&] {
    const std::string text = ReadAll(world / "two/metrics.jsonl");
    return std::count(text.begin(), text.end(), '\n');
  };
  CHECK(ComesTrue([&] { return lines() >= 3; }, std::chrono::seconds(60)));
  // Its trainer has a session of its own, and ends with it; a machine that hangs stops both.
  std::ifstream children("/proc/" + std::to_string(second) + "/task/" + std::to_string(second) + "/children");
  pid_t trainer = 0;
  REQUIRE(children >> trainer);
  if (signal == SIGSTOP) kill(trainer, signal);
  kill(-second, signal);
  const auto killed = std::chrono::steady_clock::now();
  const TrainResult ran = first.get();
  CHECK(std::chrono::steady_clock::now() - killed < std::chrono::seconds(30));
  kill(-second, SIGKILL);
  CodeOf(second);
  INFO(ran.errors);
  CHECK(ran.code == 4);
  CHECK(ran.errors.find("rank 0 lost rank 1: it ") != std::string::npos);
  CHECK(ran.errors.find("--resume") != std::string::npos);
}

TEST_CASE("ranks that have read different records stop before they learn from them") {
  const World world;
  fs::copy(world / "kevin.db", world / "other.db");
  {
    Database database(world / "other.db", Database::Access::kReadWrite, 5000);
    database.Execute("UPDATE turns SET reward = reward * 2 WHERE turn = 2");
    database.Execute("UPDATE evaluations SET score = score * 2, speedup = speedup * 3 WHERE rowid % 3 = 0");
  }
  const std::string ranks = RanksOfTwo(3571);
  const std::string second = RankCommand(world, ranks + "RANK=1 ", kGrpo + "--db other.db --out two") + " &";
  REQUIRE(std::system(second.c_str()) == 0);
  const TrainResult first = world.Train(kGrpo + "--out two", ranks + "RANK=0");
  INFO(first.errors);
  CHECK(first.code == 4);
  CHECK(first.events.empty());
  CHECK(first.errors.find("step 1: rank 1 has read other records than rank 0") != std::string::npos);
}

TEST_CASE("Ctrl-C at one of two ranks ends both after the same step") {
  const World world;
  const std::string ranks = RanksOfTwo(5501);
  const std::string endless =
      "--model model --steps 1000000 --checkpoint-every 0 --learning-rate 1e-6 --out two";
  const pid_t second = StartCommand(RankCommand(world, ranks + "RANK=1 exec ", endless));
  auto first = std::async(std::launch::async, [&] { return world.Train(endless, ranks + "RANK=0"); });
  const auto lines = [&] {
    const std::string text = ReadAll(world / "two/metrics.jsonl");
    return std::count(text.begin(), text.end(), '\n');
  };
  CHECK(ComesTrue([&] { return lines() >= 3; }, std::chrono::seconds(60)));
  kill(second, SIGINT);
  const int of_second = CodeOf(second);
  const TrainResult ran = first.get();
  INFO(ran.errors << ReadAll(world / "rank1.txt"));
  CHECK(of_second == 130);
  CHECK(ran.code == 130);
  CHECK(ran.errors.find("interrupted after step") != std::string::npos);
  // The checkpoint of that step is whole.
  CHECK(std::distance(fs::directory_iterator(world / "two/checkpoints"), fs::directory_iterator()) == 1);
}

}  // namespace
}  // namespace kevin
