// `kevin train` as a user runs it: a database with tokens, a tiny model, the two programs.

#include <chrono>
#include <cmath>
#include <fstream>
#include <future>
#include <thread>

#include "agent/train/rollouts.h"
#include "agent/train/step_log.h"
#include "agent/train/trainer_process.h"
#include "env/process/machine.h"
#include "tests/agent/train/byte_tokenizer.h"
#include "tests/agent/train/recorded_world.h"
#include "tests/catch.h"
#include "tools/train_devices.h"
#include "tools/train_options.h"

namespace kevin {
namespace {

TEST_CASE("grpo from a database: events, metrics, curves, checkpoints and a model") {
  const World world;
  const TrainResult ran = world.Train(kGrpo + "--out run --checkpoint-every 2 --keep 1");
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
  const TrainResult again = world.Train(kGrpo + "--out run");
  CHECK(again.code == 2);
  CHECK(again.errors.find("--resume") != std::string::npos);
}

TEST_CASE("the device of a run that names none is decided by the memory plan, before anything is loaded") {
  const World world;
  const std::string auto_device = "CUDA_VISIBLE_DEVICES=";  // the CPU alone
  REQUIRE(world.Train(kGrpo + "--out small", auto_device, "auto").code == 0);
  const std::string large = kGrpo + "--micro-tokens 1000000000000 ";
  const TrainResult refused = world.Train(large + "--out large", auto_device, "auto");
  INFO(refused.errors);
  CHECK(refused.code == 3);
  CHECK(refused.errors.find("by the memory plan the run does not fit cpu (") != std::string::npos);
  CHECK(refused.errors.find(" GB while learning, and of ") != std::string::npos);
  CHECK(refused.errors.find("try --micro-tokens") != std::string::npos);
  CHECK(refused.errors.find("memory plan of each") == std::string::npos);
  CHECK(world.Train(large + "--out large", auto_device, "cpu").code == 0);
}

TEST_CASE("a turn whose log-probabilities are not numbers ends the run before it teaches anything") {
  const World world;
  MakeRecords(world / "nan.db", true, std::nanf(""));
  const TrainResult ran = world.Train(kGrpo + "--db nan.db --out run");
  INFO(ran.errors);
  CHECK(ran.code == 4);
  CHECK(ran.events.empty());
  CHECK(ran.errors.find("step 1, update 1 of 2") != std::string::npos);
  CHECK(ran.errors.find("not finite") != std::string::npos);
  CHECK(ran.errors.find("level1/19") != std::string::npos);
}

TEST_CASE("the longest sample or pair of the records decides the memory plan where a pass is shorter") {
  const World world;
  const auto plan = [&](const std::string& arguments) {
    const TrainResult ran = world.Train("--model model --steps 1 --out run" + arguments);
    CHECK(ran.code == 0);
    fs::remove_all(world / "run");
    return ran.errors;
  };
  CHECK(plan("").find("(16384 tokens by --micro-tokens)") != std::string::npos);
  // At most 9 tokens of a prompt and 11 of a reply.
  CHECK(plan(" --micro-tokens 8").find("(20 tokens by the longest sample)") != std::string::npos);
  CHECK(plan(" --micro-tokens 8 --algorithm dpo").find(" tokens by the longest pair)") != std::string::npos);
}

TEST_CASE("online, a sample may be as long as the context of the sampler and the limit of samples allow") {
  OnlineSettings settings;
  const Algorithm grpo = *FindAlgorithm("grpo");
  CHECK(LongestOnline(settings, grpo, 0) == 0);
  CHECK(LongestOnline(settings, grpo, 4096) == 4096);
  settings.context = 2048;
  CHECK(LongestOnline(settings, grpo, 0) == 2048);
  CHECK(LongestOnline(settings, grpo, 4096) == 2048);
  CHECK(LongestOnline(settings, grpo, 1024) == 1024);
  CHECK(LongestOnline(settings, *FindAlgorithm("dpo"), 1024) == 2048);
}

TEST_CASE("the judge's memory is known on the GPU that trains, wherever turns are made") {
  const GpuFinder two_gpus = [](std::string*) {
    return std::vector<GpuFound>{{0, "NVIDIA H200", 9, 0, 0, 13000}, {1, "NVIDIA H200", 9, 0, 0, 13000}};
  };
  OnlineSettings settings;
  settings.online = true, settings.suite = "level1/19";
  const TrainSuites suites(settings, "");
  const auto bytes = [&](const PlaceRequest& request, const std::string& device, const LocalRank& rank = {}) {
    return JudgeBytesOn(device, PlaceRank(request, rank), settings, suites, two_gpus);
  };
  const int64_t judge = JudgeBytes(settings, suites);
  REQUIRE(judge > 0);
  const PlaceRequest plain{"", "cuda:0", "", {}, 2}, second{"", "cuda:0", "cuda:1", {}, 2},
      beside{"", "cuda:0", "", {"cuda:1"}, 2}, placed{"trainer=0-1,sampler=2-3", "auto", "", {}, 4};
  for (const std::string kind : {"", "cuda"}) {
    settings.kind = kind;
    CHECK((bytes(plain, "cuda:0") == judge && bytes(second, "cuda:0") == judge));
    CHECK((bytes(second, "cuda:1") == 0 && bytes(beside, "cuda:0") == 0 && bytes(plain, "cpu") == 0));
    CHECK(bytes(placed, "cuda:1", {1, 2, 1, 2}) == judge);
    settings.sampler = "openai:m@http://127.0.0.1:1/v1";
    CHECK(bytes(plain, "cuda:0") == judge);
    settings.sampler.clear();
  }
  settings.kind = "cpp";
  CHECK(bytes(plain, "cuda:0") == 0);
  settings.kind.clear(), settings.online = false;
  CHECK(bytes(plain, "cuda:0") == 0);
}

TEST_CASE("every algorithm runs") {
  const World world;
  for (const std::string name : {"sft", "tpt", "dr-grpo", "rloo", "trloo", "reinforce++", "dapo",
                                 "grpo-token-mean", "gspo", "cispo", "dpo"}) {
    const TrainResult ran = world.Train("--model model --steps 2 --algorithm " + name + " --out " + name);
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
  for (const auto& [part, options] : {std::pair("was made with --lora 4 --lora-alpha", "--lora 8"),
                                      {"was made with --seed 0", "--lora 4 --seed 1"},
                                      {"asked for without adapters", ""}}) {
    const TrainResult other = world.Train(kGrpo + options + " --out half --resume");
    INFO(other.errors);
    CHECK(other.code == 2);
    CHECK(other.errors.find(part) != std::string::npos);
    CHECK(other.errors.find("give the options that the run began with") != std::string::npos);
    CHECK(other.errors.find("remove that folder") == std::string::npos);
  }
  const TrainResult quantised = world.Train(kGrpo + "--lora 4 --quantization nf4 --out q");
  INFO(quantised.errors);
  CHECK(quantised.code == 0);
}

TEST_CASE("under adapters, the reference is the model without them") {
  const World world;
  // The same folder by another name is loaded as a second model.
  fs::create_directory_symlink(world / "model", world / "link");
  fs::copy(world / "model", world / "copy", fs::copy_options::recursive);
  const std::string kl = "--model model --steps 4 --lora 4 --learning-rate 3e-2 --kl k3 --kl-weight 0.1 ";
  const TrainResult own = world.Train(kl + "--out own"),
                    linked = world.Train(kl + "--reference link --out linked"),
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
  const TrainResult preferences =
      world.Train("--model model --steps 1 --lora 4 --algorithm dpo --out preferences");
  INFO(preferences.errors);
  CHECK(preferences.code == 0);
  for (const TrainResult* ran : {&own, &linked, &preferences}) {
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
    const TrainResult ran = world.Train("--model model --steps 1 --updates 1 " + options + " --out " + out);
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
  const TrainResult alone = world.Train("--model model --overlong-cache 0.1 --out alone");
  CHECK(alone.code == 2);
  CHECK(alone.errors.find("--weight-overlong 1") != std::string::npos);
}

TEST_CASE("a step waits while a pair is timed on its device, and so does loading") {
  const World world;
  const auto is_open = [&] { return fs::exists(world / "run/tensorboard"); };
  const auto has_line = [&] { return !ReadAll(world / "run/metrics.jsonl").empty(); };
  std::future<TrainResult> running;
  {
    const DeviceLock timing("cpu", LockMode::kExclusive, nullptr);
    running = std::async(std::launch::async, [&] { return world.Train(kGrpo + "--out run"); });
    // Without the lock the tiny model is loaded within a second.
    std::this_thread::sleep_for(std::chrono::seconds(5));
    CHECK_FALSE(is_open());
  }
  // The lock is fair: asked for behind the load, it is acquired before the first step.
  std::optional<DeviceLock> timing;
  for (int tries = 0; tries < 20 && !is_open(); ++tries) {
    timing.reset();
    timing.emplace("cpu", LockMode::kExclusive, nullptr);
    for (int i = 0; i < 20 && !is_open(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  REQUIRE(is_open());
  std::this_thread::sleep_for(std::chrono::seconds(3));
  CHECK_FALSE(has_line());
  timing.reset();
  CHECK(running.get().code == 0);
  CHECK(has_line());
}

TEST_CASE("a model in training is known to compute its answers on the device that it is sampled on") {
  TrainerProcess trainer;
  TrainerProcess::Opened opened;
  opened.url = "unix:/nowhere", opened.model = "model", opened.context = 4096;
  const OnlineSettings settings;
  for (const char* device : {"cpu", "cuda:0", "cuda:6"})
    CHECK(TrainedPolicy("online", trainer, opened, settings, device).ComputesOn() == device);
  // Where ranks sample together, on the devices of the others, too.
  const std::vector<std::string> locks = {"gpu-1", "gpu-2"};
  CHECK(TrainedPolicy("online", trainer, opened, settings, "cuda:0", locks).FurtherLocks() == locks);
}

TEST_CASE("records of another tokenizer are refused, with the next step") {
  const World world;
  std::ofstream(world / "model/tokenizer.json") << ByteTokenizer(json::array()).dump();
  std::ofstream(world / "model/chat_template.jinja") << "?";
  {
    Database database(world / "kevin.db", Database::Access::kReadWrite, 5000);
    database.Execute("UPDATE turns SET tokenizer_hash = '0123456789abcdef'");
  }
  const TrainResult ran = world.Train(kGrpo + "--out run");
  INFO(ran.errors);
  CHECK(ran.code == 2);
  CHECK(ran.errors.find("its tokenizer's hash is 0123456789ab, not") != std::string::npos);
  CHECK(ran.errors.find("train the model that made the records") != std::string::npos);
}

TEST_CASE("runs over records have one epoch; adapters learn with ten times the rate") {
  const World world;
  const auto rate = [](const TrainResult& ran) { return ran.events.at(0).at("learning_rate").get<double>(); };
  const TrainResult full = world.Train("--model model --batch 1 --out full");
  INFO(full.errors);
  REQUIRE(full.code == 0);
  CHECK(full.events.at(0).at("steps") == 2);  // two tasks
  const TrainResult lora = world.Train("--model model --batch 1 --lora 2 --out lora");
  CHECK(rate(lora) == Approx(10 * rate(full)));
  const TrainResult given = world.Train("--model model --batch 1 --lora 2 --learning-rate 1e-6 --out given");
  CHECK(rate(given) == Approx(1e-6));
}

TEST_CASE("records whose sampling is not known are refused, counted where others stay") {
  const World world;
  {
    Database database(world / "kevin.db", Database::Access::kReadWrite, 5000);
    database.Execute("UPDATE turns SET top_k = NULL WHERE turn = 1");
  }
  const TrainResult some = world.Train(kGrpo + "--out some");
  INFO(some.errors);
  REQUIRE(some.code == 0);
  CHECK(some.events.at(0).at("samples") == 16);
  CHECK(some.errors.find("8 turns were left out: of 8 it is not known from which distribution") !=
        std::string::npos);
  {
    Database database(world / "kevin.db", Database::Access::kReadWrite, 5000);
    database.Execute("UPDATE turns SET min_p = NULL");
  }
  const TrainResult none = world.Train(kGrpo + "--out none");
  CHECK(none.code == 2);
  CHECK(none.errors.find("24 turns were left out") != std::string::npos);
  CHECK(none.errors.find("--token-ids") != std::string::npos);
}

TEST_CASE("a dry run trains nothing and needs no folder; filters say what is learnt from") {
  const World world;
  std::ofstream(world / "problems.txt") << "# those to keep\nlevel1/20\n";
  const TrainResult dry = world.Train(
      "--model model --problem-list problems.txt --judged-on test --kind cpp --rules open --dry-run");
  INFO(dry.errors);
  REQUIRE(dry.code == 0);
  REQUIRE(dry.events.size() == 13);
  CHECK((dry.events[0].at("event") == "dry_run" && dry.events[0].at("turns") == 12));
  CHECK(dry.events[0].at("problems").size() == 1);
  CHECK(dry.events[0].at("remarks").at(0) == "4 episodes left out by the filters");
  CHECK((dry.events[1].at("event") == "sample" && dry.events[1].at("problem") == "level1/20"));
  const TrainResult run = world.Train(kGrpo + "--problem-list problems.txt --out run");
  INFO(run.errors);
  CHECK(run.code == 0);
  CHECK(run.events.at(0).at("samples") == 12);
}

TEST_CASE("what is wrong is named, with the next step") {
  const World world;
  const auto expect = [&](int code, const std::string& part, const std::string& arguments) {
    const TrainResult ran = world.Train(arguments);
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
  expect(2, "8 episodes left out by the filters", "--model model --dry-run --rules kevin");
  expect(2, "--rules: own not in", "--model model --dry-run --rules own");
  expect(2, "nothing/config.json", "--model nothing --out r --online --suite level1/19 --rules open");
  for (const char* option : {"--held-out level1/20", "--problems level1/", "--run latest", "--epochs 2"})
    expect(2, "is for records", "--model model --out r --online --suite level1/19 " + std::string(option));
  expect(2, "filters are for records", "--model model --out r --online --suite level1/19 --since 2026-11-01");
  for (const char* option : {"--kind modelnew --prompts kernelbench", "--diagnose off"}) {
    const std::string part = "--prompts and --diagnose are for turns that the model makes itself";
    expect(2, part, "--model model --out r " + std::string(option));
    const TrainResult evaluated =
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
  const TrainResult broken =
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
