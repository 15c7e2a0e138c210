// `kevin train` as a user runs it: a database with tokens, a tiny model, the two programs.

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <fstream>
#include <future>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "agent/train/rollouts.h"
#include "agent/train/step_log.h"
#include "agent/train/trainer_process.h"
#include "env/process/machine.h"
#include "policies/local/files/safetensors.h"
#include "tests/agent/train/byte_tokenizer.h"
#include "tests/catch.h"
#include "tests/policies/local/formula_model.h"
#include "tests/trajectories/sample_records.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;

constexpr int kVocabulary = 32;

std::string ReadAll(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

void MakeModel(const fs::path& folder) {
  local::ModelConfig config;
  config.family = local::ModelFamily::kQwen2;
  config.hidden = 16, config.layers = 2, config.heads = 2, config.kv_heads = 1, config.head_dim = 8;
  config.ffn = 32, config.vocabulary = kVocabulary, config.context = 128, config.qkv_bias = true;
  config.dtype = local::NumberType::kF32;
  local::WriteFormulaModel(folder, config, 0.6f);
}

// Two problems, four episodes each, three turns each; speed-ups and tokens by a formula.
void MakeRecords(const fs::path& database, bool with_tokens) {
  Store store = Store::Open(database, OpenMode::kCreate);
  const std::string run = store.BeginRun(SampleRun());
  for (int e = 0; e < 8; ++e) {
    ProblemRecord problem = SampleProblem();
    problem.id = e % 2 == 0 ? "level1/19" : "level1/20";
    problem.text = problem.id, problem.content_hash = ContentHash(problem.text);
    EpisodeRecord episode = SampleEpisode(run);
    episode.problem = problem.id, episode.problem_hash = problem.content_hash;
    const std::string id = store.BeginEpisode(episode, problem);
    for (int t = 1; t <= 3; ++t) {
      TurnRecord turn = SampleTurn(t, 1 + 0.3 * ((e * 3 + t * 5) % 7));
      turn.evaluation = SampleEvaluation(id + std::to_string(t), turn.evaluation.speedup->value);
      turn.evaluation.speedup->log_se = 0.001, turn.reward = turn.evaluation.score;
      turn.model.tokenizer_hash.clear(), turn.reasoning = "Okay, so";
      turn.sampling = WholeSampling();
      turn.prompt_token_ids.clear(), turn.token_ids.clear(), turn.logprobs.clear();
      for (int i = 0; with_tokens && i < 6 + t; ++i)
        turn.prompt_token_ids.push_back((e + i * t) % kVocabulary);
      for (int i = 0; with_tokens && i < 4 + e; ++i)
        turn.token_ids.push_back((e * 7 + i * i + t) % kVocabulary);
      turn.logprobs.assign(turn.token_ids.size(), -3.4f);
      store.AppendTurn(id, turn);
    }
    store.FinishEpisode(id, {});
  }
}

struct Ran {
  int code = -1;
  std::string errors;
  std::vector<json> events;
};

class World {
 public:
  World() {
    MakeModel(folder_ / "model");
    MakeRecords(folder_ / "kevin.db", true);
  }

  Ran Train(const std::string& arguments, const std::string& environment = "") const {
    const std::string command = "cd " + folder_.path().string() + " && " + environment + " " +
                                KEVIN_BINARY_DIR + "/bin/kevin train --json --device cpu --dtype float32 " +
                                arguments + " >out.jsonl 2>errors.txt </dev/null";
    Ran ran;
    const int status = std::system(command.c_str());
    ran.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    ran.errors = ReadAll(folder_ / "errors.txt");
    std::ifstream lines(folder_ / "out.jsonl");
    for (std::string line; std::getline(lines, line);) ran.events.push_back(json::parse(line));
    return ran;
  }

  fs::path operator/(const std::string& name) const { return folder_ / name; }

 private:
  TemporaryFolder folder_;
};

const std::string kGrpo = "--model model --steps 4 --learning-rate 1e-3 ";

TEST_CASE("grpo from a database: events, metrics, curves, checkpoints and a model") {
  const World world;
  const Ran ran = world.Train(kGrpo + "--out run --checkpoint-every 2 --keep 1");
  INFO(ran.errors);
  REQUIRE(ran.code == 0);
  REQUIRE(ran.events.size() == 5);
  const json& step = ran.events[0];
  CHECK((step.at("event") == "step" && step.at("step") == 1 && step.at("steps") == 4));
  CHECK((step.at("tasks") == 2 && step.at("samples") == 24 && step.at("updates") == 2));
  CHECK(step.at("correct") == 1.0);
  CHECK(step.at("reward").get<double>() > 1.3);
  CHECK(step.at("not_okay") == 0.0);
  for (const char* name :
       {"loss", "grad_norm", "tokens", "tokens_per_s", "delta_logprob", "learning_rate", "entropy"})
    CHECK(step.at(name).is_number());
  CHECK(step.at("preference_accuracy").is_null());
  CHECK(ran.events[4].at("event") == "trained");
  CHECK(fs::exists(world / "run/model/config.json"));
  CHECK(ReadAll(world / "run/model/model.safetensors") != ReadAll(world / "model/model.safetensors"));
  CHECK(fs::exists(world / "run/checkpoints/step-00000004/trainer.json"));
  CHECK_FALSE(fs::exists(world / "run/checkpoints/step-00000002"));
  const std::string metrics = ReadAll(world / "run/metrics.jsonl");
  CHECK(std::count(metrics.begin(), metrics.end(), '\n') == 4);
  CHECK_FALSE(fs::is_empty(world / "run/tensorboard"));
  const Ran again = world.Train(kGrpo + "--out run");
  CHECK(again.code == 2);
  CHECK(again.errors.find("--resume") != std::string::npos);
}

TEST_CASE("stopped and gone on, a run ends with the same bytes") {
  const World world;
  REQUIRE(world.Train(kGrpo + "--out whole").code == 0);
  // The schedule is that of four steps, so the first half is cut off by taking its checkpoint alone.
  REQUIRE(world.Train(kGrpo + "--out half --checkpoint-every 2 --keep 9").code == 0);
  fs::remove_all(world / "half/checkpoints/step-00000004");
  fs::remove_all(world / "half/model");
  const Ran on = world.Train(kGrpo + "--out half --resume");
  INFO(on.errors);
  REQUIRE(on.code == 0);
  CHECK(on.events[0].at("step") == 3);
  CHECK(ReadAll(world / "half/model/model.safetensors") == ReadAll(world / "whole/model/model.safetensors"));
  const std::string metrics = ReadAll(world / "half/metrics.jsonl");
  CHECK(std::count(metrics.begin(), metrics.end(), '\n') == 4);
}

TEST_CASE("every algorithm runs") {
  const World world;
  for (const std::string name : {"sft", "tpt", "dr-grpo", "rloo", "trloo", "reinforce++", "dapo",
                                 "grpo-token-mean", "gspo", "cispo", "dpo"}) {
    const Ran ran = world.Train("--model model --steps 2 --algorithm " + name + " --out " + name);
    INFO(name + ": " + ran.errors);
    CHECK(ran.code == 0);
    CHECK(ran.events.size() == 3);
  }
}

TEST_CASE("adapters: trained, saved for PEFT, gone on with") {
  const World world;
  REQUIRE(world.Train(kGrpo + "--lora 4 --out whole").code == 0);
  CHECK(fs::exists(world / "whole/adapter/adapter_config.json"));
  REQUIRE(world.Train(kGrpo + "--lora 4 --out half --checkpoint-every 2 --keep 9").code == 0);
  fs::remove_all(world / "half/checkpoints/step-00000004");
  REQUIRE(world.Train(kGrpo + "--lora 4 --out half --resume").code == 0);
  CHECK(ReadAll(world / "half/adapter/adapter_model.safetensors") ==
        ReadAll(world / "whole/adapter/adapter_model.safetensors"));
  const Ran quantised = world.Train(kGrpo + "--lora 4 --quantization nf4 --out q");
  INFO(quantised.errors);
  CHECK(quantised.code == 0);
}

TEST_CASE("under adapters, the reference is the model without them") {
  const World world;
  // The same folder by another name is loaded as a second model.
  fs::create_directory_symlink(world / "model", world / "link");
  fs::copy(world / "model", world / "copy", fs::copy_options::recursive);
  const std::string kl = "--model model --steps 4 --lora 4 --learning-rate 3e-2 --kl k3 --kl-weight 0.1 ";
  const Ran own = world.Train(kl + "--out own"), linked = world.Train(kl + "--reference link --out linked"),
            other = world.Train(kl + "--reference copy --out other");
  INFO(own.errors << linked.errors << other.errors);
  REQUIRE((own.code == 0 && linked.code == 0 && other.code == 0));
  CHECK(own.events[3].at("kl").get<double>() > 1e-6);
  for (size_t step = 0; step < 4; ++step) {
    CHECK(own.events[step].at("kl") == other.events[step].at("kl"));
    CHECK(own.events[step].at("kl") == linked.events[step].at("kl"));
  }
  CHECK(ReadAll(world / "own/adapter/adapter_model.safetensors") ==
        ReadAll(world / "other/adapter/adapter_model.safetensors"));
  // A second model is in the memory plan where one is loaded.
  const Ran preferences = world.Train("--model model --steps 1 --lora 4 --algorithm dpo --out preferences");
  INFO(preferences.errors);
  CHECK(preferences.code == 0);
  for (const Ran* ran : {&own, &linked, &preferences}) {
    CHECK(ran->errors.find("memory plan") != std::string::npos);
    CHECK(ran->errors.find(", reference ") == std::string::npos);
  }
  CHECK(other.errors.find(", reference ") != std::string::npos);
}

TEST_CASE("dapo: cut-off replies count with their penalty, which other algorithms have by an option") {
  const World world;
  {
    Database database(world / "kevin.db", Database::Access::kReadWrite, 5000);
    database.Execute("UPDATE turns SET stop_reason = 'length' WHERE turn = 3");
  }
  const auto first = [&](const std::string& options, const std::string& out) {
    const Ran ran = world.Train("--model model --steps 1 --updates 1 " + options + " --out " + out);
    INFO(ran.errors);
    REQUIRE(ran.code == 0);
    return ran.events.at(0);
  };
  const json plain = first("--algorithm grpo-token-mean", "plain"), dapo = first("--algorithm dapo", "dapo"),
             other = first("--algorithm grpo-token-mean --weight-overlong 1 --learning-rate 1e-6", "other");
  CHECK(dapo.at("trained_tokens").get<int>() > plain.at("trained_tokens").get<int>());
  // A third of the turns has the penalty -1.
  CHECK(dapo.at("reward").get<double>() == Approx(plain.at("reward").get<double>() - 1.0 / 3));
  CHECK(dapo.at("learning_rate") == 1e-6);
  for (const char* equal : {"loss", "grad_norm", "reward", "trained_tokens", "learning_rate"})
    CHECK(dapo.at(equal) == other.at(equal));
  const Ran alone = world.Train("--model model --overlong-cache 0.1 --out alone");
  CHECK(alone.code == 2);
  CHECK(alone.errors.find("--weight-overlong 1") != std::string::npos);
}

TEST_CASE("a step waits while a pair is timed on its device") {
  const World world;
  const auto first_line = [&] {
    const std::string text = ReadAll(world / "run/metrics.jsonl");
    return !text.empty();
  };
  std::future<Ran> running;
  {
    const DeviceLock timing("cpu", LockMode::kExclusive, nullptr);
    running = std::async(std::launch::async, [&] { return world.Train(kGrpo + "--out run"); });
    // The first step takes less than a second once the model is loaded.
    for (int i = 0; i < 300 && !fs::exists(world / "run/tensorboard"); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    REQUIRE(fs::exists(world / "run/tensorboard"));
    std::this_thread::sleep_for(std::chrono::seconds(3));
    CHECK_FALSE(first_line());
  }
  CHECK(running.get().code == 0);
  CHECK(first_line());
}

TEST_CASE("a model in training is known to compute its answers on the device that it is sampled on") {
  TrainerProcess trainer;
  TrainerProcess::Opened opened;
  opened.url = "unix:/nowhere", opened.model = "model", opened.context = 4096;
  const OnlineSettings settings;
  for (const char* device : {"cpu", "cuda:0", "cuda:6"})
    CHECK(TrainedPolicy("online", trainer, opened, settings, device).ComputesOn() == device);
}

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

TEST_CASE("two processes train as one does") {
  const World world;
  REQUIRE(world.Train(kGrpo + "--out one").code == 0);
  const std::string port = std::to_string(20000 + getpid() % 20000);
  const std::string ranks = "MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port + " WORLD_SIZE=2 ";
  const std::string second = "cd " + (world / "").string() + " && " + ranks + "RANK=1 " + KEVIN_BINARY_DIR +
                             "/bin/kevin train --device cpu --dtype float32 " + kGrpo +
                             "--out two >rank1.txt 2>&1 </dev/null &";
  REQUIRE(std::system(second.c_str()) == 0);
  const Ran first = world.Train(kGrpo + "--out two", ranks + "RANK=0");
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
  const std::string port = std::to_string(20000 + (getpid() + 1201) % 20000);
  const std::string ranks = "MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port + " WORLD_SIZE=2 ";
  const std::string sharded = kGrpo + "--shard --checkpoint-every 2 --keep 9 --out two";
  const std::string second = "cd " + (world / "").string() + " && " + ranks + "RANK=1 " + KEVIN_BINARY_DIR +
                             "/bin/kevin train --device cpu --dtype float32 " + sharded +
                             " >rank1.txt 2>&1 </dev/null &";
  REQUIRE(std::system(second.c_str()) == 0);
  const Ran first = world.Train(sharded, ranks + "RANK=0");
  INFO(first.errors);
  REQUIRE(first.code == 0);
  CHECK(first.errors.find("two layers at a time") != std::string::npos);
  const auto gap = [&] { return LargestGap(world / "one/model", world / "two/model"); };
  CHECK(gap() < 1e-4);
  for (const std::string how : {"--shard ", ""}) {
    fs::remove_all(world / "two/checkpoints/step-00000004");
    fs::remove_all(world / "two/model");
    const Ran on = world.Train(kGrpo + how + "--out two --resume");
    INFO(how << on.errors);
    REQUIRE(on.code == 0);
    CHECK(on.events[0].at("step") == 3);
    CHECK(gap() < 1e-4);
  }
}

TEST_CASE("one damaged share ends both processes with its name, a rank that is missing the other, soon") {
  const World world;
  const auto start = std::chrono::steady_clock::now();
  const auto ranks = [&](int offset) {
    return "MASTER_ADDR=127.0.0.1 MASTER_PORT=" + std::to_string(20000 + (getpid() + offset) % 20000) +
           " WORLD_SIZE=2 ";
  };
  const auto both = [&](const std::string& arguments, int offset) {
    const std::string second = "cd " + (world / "").string() + " && " + ranks(offset) + "RANK=1 " +
                               KEVIN_BINARY_DIR + "/bin/kevin train --device cpu --dtype float32 " +
                               arguments + " >rank1.txt 2>&1 </dev/null; echo code $? >>rank1.txt";
    auto other = std::async(std::launch::async, [&] { return std::system(second.c_str()); });
    Ran ran = world.Train(arguments, ranks(offset) + "RANK=0");
    other.wait();
    return ran;
  };
  const std::string four = kGrpo + "--checkpoint-every 2 --keep 9 --out two";
  REQUIRE(both(four, 9001).code == 0);
  const fs::path checkpoint = world / "two/checkpoints/step-00000004";
  const fs::path share = checkpoint / "optimizer-1-of-2.safetensors";
  fs::resize_file(share, fs::file_size(share) - 100);
  const Ran ran = both(four + " --resume", 9003);
  const std::string second = ReadAll(world / "rank1.txt");
  INFO(ran.errors << second);
  CHECK(ran.code == 2);
  CHECK(ran.errors.find("rank 1: ") != std::string::npos);
  for (const std::string& errors : {ran.errors, second})
    CHECK(errors.find("optimizer-1-of-2") != std::string::npos);
  CHECK(second.find("code 2") != std::string::npos);
  fs::remove_all(checkpoint);
  CHECK(both(four + " --resume", 9005).code == 0);  // from the checkpoint before

  const Ran alone = world.Train(kGrpo + "--out alone", ranks(9007) + "RANK=0 KEVIN_JOIN_SECONDS=2");
  INFO(alone.errors);
  CHECK(alone.code == 4);
  CHECK(alone.errors.find("there is no rank 1") != std::string::npos);
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(120));
}

TEST_CASE("where one of two processes is killed the other ends soon, and says so") {
  const World world;
  const std::string port = std::to_string(20000 + (getpid() + 7919) % 20000);
  const std::string ranks = "MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port + " WORLD_SIZE=2 ";
  const std::string endless =
      "--model model --steps 1000000 --checkpoint-every 0 --learning-rate 1e-6 --out two";
  const pid_t second = fork();
  if (second == 0) {
    setpgid(0, 0);  // its trainer goes with it
    const std::string command = "cd " + (world / "").string() + " && " + ranks + "RANK=1 exec " +
                                KEVIN_BINARY_DIR + "/bin/kevin train --device cpu --dtype float32 " +
                                endless + " >rank1.txt 2>&1 </dev/null";
    execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  setpgid(second, second);
  auto first = std::async(std::launch::async, [&] { return world.Train(endless, ranks + "RANK=0"); });
  const auto lines = [&] {
    const std::string text = ReadAll(world / "two/metrics.jsonl");
    return std::count(text.begin(), text.end(), '\n');
  };
  for (int i = 0; i < 6000 && lines() < 3; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(lines() >= 3);
  kill(-second, SIGKILL);
  waitpid(second, nullptr, 0);
  const auto killed = std::chrono::steady_clock::now();
  const Ran ran = first.get();
  CHECK(std::chrono::steady_clock::now() - killed < std::chrono::seconds(30));
  INFO(ran.errors);
  CHECK(ran.code == 4);
  CHECK(ran.errors.find("lost another rank") != std::string::npos);
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
  const std::string port = std::to_string(20000 + (getpid() + 3571) % 20000);
  const std::string ranks = "MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port + " WORLD_SIZE=2 ";
  const std::string second = "cd " + (world / "").string() + " && " + ranks + "RANK=1 " + KEVIN_BINARY_DIR +
                             "/bin/kevin train --device cpu --dtype float32 " + kGrpo +
                             "--db other.db --out two >rank1.txt 2>&1 </dev/null &";
  REQUIRE(std::system(second.c_str()) == 0);
  const Ran first = world.Train(kGrpo + "--out two", ranks + "RANK=0");
  INFO(first.errors);
  CHECK(first.code == 4);
  CHECK(first.events.empty());
  CHECK(first.errors.find("step 1: rank 1 has read other records than rank 0") != std::string::npos);
}

TEST_CASE("Ctrl-C at one of two ranks ends both after the same step") {
  const World world;
  const std::string port = std::to_string(20000 + (getpid() + 5501) % 20000);
  const std::string ranks = "MASTER_ADDR=127.0.0.1 MASTER_PORT=" + port + " WORLD_SIZE=2 ";
  const std::string endless =
      "--model model --steps 1000000 --checkpoint-every 0 --learning-rate 1e-6 --out two";
  const pid_t second = fork();
  if (second == 0) {
    const std::string command = "cd " + (world / "").string() + " && " + ranks + "RANK=1 exec " +
                                KEVIN_BINARY_DIR + "/bin/kevin train --device cpu --dtype float32 " +
                                endless + " >rank1.txt 2>&1 </dev/null";
    execl("/bin/sh", "sh", "-c", command.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  auto first = std::async(std::launch::async, [&] { return world.Train(endless, ranks + "RANK=0"); });
  const auto lines = [&] {
    const std::string text = ReadAll(world / "two/metrics.jsonl");
    return std::count(text.begin(), text.end(), '\n');
  };
  for (int i = 0; i < 6000 && lines() < 3; ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  CHECK(lines() >= 3);
  kill(second, SIGINT);
  int status = 0;
  waitpid(second, &status, 0);
  const Ran ran = first.get();
  INFO(ran.errors << ReadAll(world / "rank1.txt"));
  CHECK((WIFEXITED(status) && WEXITSTATUS(status) == 130));
  CHECK(ran.code == 130);
  CHECK(ran.errors.find("interrupted after step") != std::string::npos);
  // The checkpoint of that step is whole.
  CHECK(std::distance(fs::directory_iterator(world / "two/checkpoints"), fs::directory_iterator()) == 1);
}

TEST_CASE("records of another tokenizer are refused, with the next step") {
  const World world;
  std::ofstream(world / "model/tokenizer.json") << ByteTokenizer(json::array()).dump();
  std::ofstream(world / "model/chat_template.jinja") << "?";
  {
    Database database(world / "kevin.db", Database::Access::kReadWrite, 5000);
    database.Execute("UPDATE turns SET tokenizer_hash = '0123456789abcdef'");
  }
  const Ran ran = world.Train(kGrpo + "--out run");
  INFO(ran.errors);
  CHECK(ran.code == 2);
  CHECK(ran.errors.find("its tokenizer's hash is 0123456789ab, not") != std::string::npos);
  CHECK(ran.errors.find("train the model that made the records") != std::string::npos);
}

TEST_CASE("runs over records have one epoch; adapters learn with ten times the rate") {
  const World world;
  const auto rate = [](const Ran& ran) { return ran.events.at(0).at("learning_rate").get<double>(); };
  const Ran full = world.Train("--model model --batch 1 --out full");
  INFO(full.errors);
  REQUIRE(full.code == 0);
  CHECK(full.events.at(0).at("steps") == 2);  // two tasks
  const Ran lora = world.Train("--model model --batch 1 --lora 2 --out lora");
  CHECK(rate(lora) == Approx(10 * rate(full)));
  const Ran given = world.Train("--model model --batch 1 --lora 2 --learning-rate 1e-6 --out given");
  CHECK(rate(given) == Approx(1e-6));
}

TEST_CASE("records whose sampling is not known are refused, counted where others stay") {
  const World world;
  {
    Database database(world / "kevin.db", Database::Access::kReadWrite, 5000);
    database.Execute("UPDATE turns SET top_k = NULL WHERE turn = 1");
  }
  const Ran some = world.Train(kGrpo + "--out some");
  INFO(some.errors);
  REQUIRE(some.code == 0);
  CHECK(some.events.at(0).at("samples") == 16);
  CHECK(some.errors.find("8 turns were left out: of 8 it is not known from which distribution") !=
        std::string::npos);
  {
    Database database(world / "kevin.db", Database::Access::kReadWrite, 5000);
    database.Execute("UPDATE turns SET min_p = NULL");
  }
  const Ran none = world.Train(kGrpo + "--out none");
  CHECK(none.code == 2);
  CHECK(none.errors.find("24 turns were left out") != std::string::npos);
  CHECK(none.errors.find("--token-ids") != std::string::npos);
}

TEST_CASE("a dry run trains nothing and needs no folder; filters say what is learnt from") {
  const World world;
  std::ofstream(world / "problems.txt") << "# those to keep\nlevel1/20\n";
  const Ran dry =
      world.Train("--model model --problem-list problems.txt --judged-on test --kind cpp --dry-run");
  INFO(dry.errors);
  REQUIRE(dry.code == 0);
  REQUIRE(dry.events.size() == 13);
  CHECK((dry.events[0].at("event") == "dry_run" && dry.events[0].at("turns") == 12));
  CHECK(dry.events[0].at("problems").size() == 1);
  CHECK(dry.events[0].at("remarks").at(0) == "4 episodes left out by the filters");
  CHECK((dry.events[1].at("event") == "sample" && dry.events[1].at("problem") == "level1/20"));
  const Ran run = world.Train(kGrpo + "--problem-list problems.txt --out run");
  INFO(run.errors);
  CHECK(run.code == 0);
  CHECK(run.events.at(0).at("samples") == 12);
}

TEST_CASE("what is wrong is named, with the next step") {
  const World world;
  const auto expect = [&](int code, const std::string& part, const std::string& arguments) {
    const Ran ran = world.Train(arguments);
    INFO(arguments + ": " + ran.errors);
    CHECK(ran.code == code);
    CHECK(ran.errors.find(part) != std::string::npos);
  };
  expect(2, "no algorithm is called x", "--model model --out r --algorithm x");
  expect(2, "--lora 32", "--model model --out r --quantization nf4");
  expect(2, "--kl-weight has no effect without --kl", "--model model --out r --kl-weight 0.1");
  expect(2, "no folder for the trained model", "--model model");
  expect(2, "not a date", "--model model --dry-run --since yesterday");
  expect(2, "not a range of steps", "--model model --dry-run --versions new");
  expect(2, "nothing.txt: cannot be read", "--model model --dry-run --problem-list nothing.txt");
  expect(2, "left out by the filters", "--model model --dry-run --kind cuda");
  expect(2, "filters are for records", "--model model --out r --online --suite level1/19 --since 2026-11-01");
  for (const char* option : {"--rules open", "--kind modelnew --prompts kernelbench"}) {
    const std::string part = "--prompts and --rules are for turns that the model makes itself";
    expect(2, part, "--model model --out r " + std::string(option));
    const Ran evaluated =
        world.Train("--model nothing --out r --eval-suite level1/20 " + std::string(option));
    CHECK((evaluated.code == 2 && evaluated.errors.find(part) == std::string::npos));
  }
  expect(2, "not a valid number", "--model model --out r --clip-low much");
  expect(2, "surrogate", "--model model --out r --surrogate much");
  expect(2, "level1/19", "--model model --out r --held-out level1/19");
  expect(2, "config.json", "--model nothing --out r");
  expect(2, "no turns to learn from", "--model model --out r --problems level3/");
  MakeRecords(world / "text.db", false);
  expect(2, "no token ids", "--model model --out r --db text.db");
  Store::Open(world / "empty.db", OpenMode::kCreate);
  expect(2, "no turns to learn from", "--model model --out r --db empty.db");
  const Ran broken =
      world.Train("--model model --steps 2 --out r --learning-rate 1e30 --max-grad-norm 0 --updates 2");
  INFO(broken.errors);
  CHECK(broken.code == 4);
  CHECK(broken.errors.find("not finite") != std::string::npos);
  CHECK(broken.errors.find("level1/20") != std::string::npos);
}

// ---- Curves ----

TEST_CASE("event files: known checksums, whole records") {
  CHECK(Crc32c("123456789") == 0xE3069283u);
  CHECK(Crc32c("") == 0);
  const TemporaryFolder folder;
  {
    TensorBoardFile file(folder.path(), 1234.5);
    file.Add(300, 1235.5, {{"loss", 0.25}});
  }
  const std::string bytes = ReadAll(fs::directory_iterator(folder.path())->path());
  // The first record's payload: 0x09, a double, 0x1A, 13, "brain.Event:2": 24 bytes.
  REQUIRE(bytes.size() == 16 + 24 + 16 + 9 + 3 + 2 + 13);
  CHECK((bytes[0] == 24 && bytes.substr(23, 13) == "brain.Event:2"));
  const std::string second = bytes.substr(40 + 12, 27);
  CHECK(second[9] == 0x10);                                // step
  CHECK(second.substr(10, 2) == std::string("\xAC\x02"));  // 300
  CHECK(second.substr(12, 2) == std::string("\x2A\x0D"));
  CHECK(second.substr(14, 8) == std::string("\x0A\x0B\x0A\x04loss"));
  CHECK(second.substr(22, 5) == std::string("\x15\x00\x00\x80\x3E", 5));  // 0.25f
}

}  // namespace
}  // namespace kevin
