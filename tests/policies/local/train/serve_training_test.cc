// The program kevin-trainer without the program: what it decides before a model is loaded, and what the sampled model
// gives up while it learns.

#include "policies/local/train/serve_training.h"

#include <sys/socket.h>
#include <unistd.h>

#include <fstream>
#include <thread>

#include "policies/local/model/device.h"
#include "policies/local/train/batch.h"
#include "tests/agent/train/byte_tokenizer.h"
#include "tests/catch.h"
#include "tests/policies/local/formula_model.h"
#include "tests/policies/local/train/rank_processes.h"
#include "tests/policies/local/train/split_rank.h"
#include "tests/policies/local/train/tiny_model.h"

namespace kevin::local {
namespace {

// Bytes of main memory that this process has now.
int64_t ResidentBytes() {
  std::ifstream statm("/proc/self/statm");
  int64_t pages = 0;
  statm >> pages >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

// Whether activations are recomputed, as decided when a trainer opens. With `sampled` no model is loaded.
bool Recomputes(const TrainOptions& asked, const nlohmann::json& sampled = nullptr) {
  bool recompute = false;
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  std::thread service([&] {
    ServeTraining(ends[1], ends[1], [&](const TrainOptions& decided, const std::string& checkpoint) {
      recompute = decided.recompute;
      if (!sampled.is_null()) throw Error(ExitCode::kBroken, "not loaded");
      return LoadForTraining(decided, checkpoint);
    });
  });
  nlohmann::json request = {{"open", ToJson(asked)}};
  if (!sampled.is_null()) request["sample"] = sampled;
  CHECK(WriteFrame(ends[0], request));
  const auto answer = ReadFrame(ends[0]);
  close(ends[0]);
  service.join();
  close(ends[1]);
  REQUIRE(answer);
  INFO(answer->dump());
  CHECK(answer->contains(sampled.is_null() ? "opened" : "error"));
  return recompute;
}

nlohmann::json SampledJson(const std::string& socket, const std::string& device, int64_t cache_tokens) {
  SamplingOptions options;
  options.socket = socket, options.device = device, options.cache_tokens = cache_tokens;
  options.samplers_here = device.empty() ? 0 : 1;
  return ToJson(options);
}

TEST_CASE("activations are recomputed where the memory plan says so, or where it is asked for") {
  const Folder folder;
  TrainOptions options;
  options.model = folder.Path() + "/model", options.output = folder.Path(), options.device = "cpu";
  WriteFormulaModel(options.model, TinyConfig(), 0.6f);
  CHECK_FALSE(Recomputes(options));
  SECTION("a second copy on the same device takes part of it, with its cache") {
    const ModelConfig config = TinyConfig();
    const int64_t token = int64_t{2} * config.layers * config.kv_heads * config.head_dim * 4,
                  too_many = FreeBytesOf(at::kCPU) * 5 / 4 / token;
    CHECK(Recomputes(options, SampledJson(folder.Path() + "/socket", "cpu", too_many)));
    CHECK_FALSE(Recomputes(options, SampledJson(folder.Path() + "/socket", "cpu", 100)));
    // Without one the cache is given up while the model learns.
    CHECK_FALSE(Recomputes(options, SampledJson(folder.Path() + "/socket", "", too_many)));
  }
  SECTION("a judge takes part of it where turns are made ahead") {
    options.judge_bytes = FreeBytesOf(at::kCPU) * 5 / 4;
    CHECK_FALSE(Recomputes(options));
    options.judges_meanwhile = true;
    CHECK(Recomputes(options));
    options.judge_bytes = 0;
  }
  options.micro_tokens = int64_t{1} << 40;  // no memory holds the activations of so many
  CHECK(Recomputes(options));
  options.choose_recompute = false;
  CHECK_FALSE(Recomputes(options));
  options.recompute = true;
  CHECK(Recomputes(options));
}

// One of two ranks: what it decides about the sampler, in FOLDER/sums-N ("split" or "whole"). Rank 0 is to have a cache
// that fits in its half of the memory only if it is split; rank 1 would have no need.
TEST_CASE("one of two ranks that open a trainer as a process of its own", "[.process]") {
  const std::string rank = Given("TEST_RANK"), folder = Given("TEST_FOLDER");
  setenv("RANK", rank.c_str(), 1), setenv("WORLD_SIZE", "2", 1);
  setenv("MASTER_ADDR", "127.0.0.1", 1), setenv("MASTER_PORT", Given("TEST_PORT").c_str(), 1);
  TrainOptions options;
  options.model = folder + "/model-" + rank, options.output = folder, options.device = "cpu";
  options.shard = true;
  const ModelConfig config = SplittableConfig();
  WriteFormulaModel(options.model, config, 0.6f);
  const int64_t token = int64_t{2} * config.layers * config.kv_heads * config.head_dim * 4;
  const int64_t usable = FreeBytesOf(at::kCPU) / 2 * 94 / 100 - (int64_t{2} << 30);
  const int64_t tokens = rank == "0" ? usable * 3 / 2 / token : 100;
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  std::thread service([&] {
    ServeTraining(ends[1], ends[1], [&](const TrainOptions& decided, const std::string&) {
      std::ofstream(folder + "/sums-" + rank) << (decided.split_sampler ? "split" : "whole");
      std::this_thread::sleep_for(std::chrono::seconds(60));  // is killed
      return std::unique_ptr<LanguageModel>();
    });
  });
  WriteFrame(ends[0], {{"open", ToJson(options)}, {"sample", SampledJson(folder + "/socket", "", tokens)}});
  service.join();
}

TEST_CASE("where one rank has too little memory for whole weights and cache, all are split") {
  const Folder folder;
  for (const pid_t rank :
       StartRanks("one of two ranks that open a trainer as a process of its own", 2, folder.Path()))
    kill(rank, SIGKILL), waitpid(rank, nullptr, 0);
  for (const char* rank : {"0", "1"}) CHECK(TextOf(folder.Path() + "/sums-" + rank) == "split");
}

TEST_CASE("the cache of keys and values is given up while the model learns") {
  const Folder folder;
  const ModelConfig config = TinyConfig(256);
  TrainOptions training;
  training.model = folder.Path() + "/model", training.device = "cpu";
  WriteFormulaModel(training.model, config, 0.6f);
  std::ofstream(training.model + "/tokenizer.json") << ByteTokenizer(nlohmann::json::array()).dump();
  const auto model = LoadForTraining(training, "");
  SamplingOptions options;
  options.socket = folder.Path() + "/socket";
  constexpr int64_t kCacheBytes = int64_t{256} << 20;
  options.cache_tokens = kCacheBytes / (2 * config.layers * config.kv_heads * config.head_dim * 4);
  SampledModel sampled(*model, nullptr, training, options, 0);
  const int64_t before = ResidentBytes();
  int64_t meanwhile = before;
  sampled.Update(1, [&] { meanwhile = ResidentBytes(); });
  CHECK(before - meanwhile > kCacheBytes / 2);
  CHECK(ResidentBytes() - meanwhile > kCacheBytes / 2);  // and is there again
}

// Bytes of the layers' weights of a model whose weights are sharded, by a rank of its own, when it is open and after a step.
std::vector<int64_t> MemoryOfSharded(TrainOptions options, const nlohmann::json& sampled) {
  options.shard = true;
  LanguageModel* model = nullptr;
  int ends[2];
  REQUIRE(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0);
  std::thread service([&] {
    ServeTraining(ends[1], ends[1], [&](const TrainOptions& decided, const std::string& checkpoint) {
      auto loaded = LoadForTraining(decided, checkpoint);
      model = loaded.get();
      return loaded;
    });
  });
  nlohmann::json open = {{"open", ToJson(options)}};
  if (!sampled.is_null()) open["sample"] = sampled;
  std::vector<int64_t> memory;
  for (const nlohmann::json& request : {open, nlohmann::json{{"step", ToJson(MakeBatch(1))}}}) {
    CHECK(WriteFrame(ends[0], request));
    const auto answer = ReadFrame(ends[0]);
    REQUIRE(answer);
    INFO(answer->dump());
    CHECK_FALSE(answer->contains("error"));
    if (model != nullptr && !answer->contains("error")) memory.push_back(LayerMemory(*model));
  }
  close(ends[0]);
  service.join();
  close(ends[1]);
  return memory;
}

TEST_CASE("sharded weights are whole between steps where they are sampled, and only there") {
  const Folder folder;
  TrainOptions options;
  options.model = folder.Path() + "/model", options.output = folder.Path(), options.device = "cpu";
  options.loss.correction = Correction::kNone;
  WriteFormulaModel(options.model, TinyConfig(256), 0.6f);
  std::ofstream(options.model + "/tokenizer.json") << ByteTokenizer(nlohmann::json::array()).dump();
  CHECK(MemoryOfSharded(options, nullptr) == std::vector<int64_t>{0, 0});
  const std::vector<int64_t> sampled =
      MemoryOfSharded(options, SampledJson(folder.Path() + "/socket", "", 100));
  REQUIRE(sampled.size() == 2);
  CHECK((sampled[0] > 0 && sampled[1] == sampled[0]));
}

TEST_CASE("a second copy of the weights is changed when it is brought up to date, not within the step") {
  const Folder folder;
  TrainOptions training;
  training.model = folder.Path() + "/model", training.device = "cpu";
  WriteFormulaModel(training.model, TinyConfig(256), 0.6f);
  std::ofstream(training.model + "/tokenizer.json") << ByteTokenizer(nlohmann::json::array()).dump();
  const auto model = LoadForTraining(training, "");
  std::unique_ptr<LanguageModel> second = LoadForTraining(training, "");
  LanguageModel& copy = *second;
  SamplingOptions options;
  options.socket = folder.Path() + "/socket", options.device = "cpu";
  SampledModel sampled(*model, std::move(second), training, options, 0);
  const auto number = [](LanguageModel& of) { return of.Parameters()[0].value.reshape(-1)[0].item<float>(); };
  const float before = number(copy);
  CHECK(sampled.Update(1, [&] {
    const c10::NoGradGuard no_gradients;
    for (NamedParameter& p : model->Parameters()) p.value.add_(1);
  }) == 0);
  CHECK(number(copy) == before);
  CHECK(sampled.BringUp() > 0);
  CHECK(number(copy) == number(*model));
  CHECK(number(copy) != before);
}

}  // namespace
}  // namespace kevin::local
