// Checkpoints of a tiny model: equal to the bit, by other ranks, whole when the disk is full or a share is damaged.

#include <sys/resource.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <new>
#include <nlohmann/json.hpp>
#include <sstream>

#include "env/error.h"
#include "tests/policies/local/train/trainer_fixture.h"

namespace kevin::local {
namespace {

namespace fs = std::filesystem;

// What every write meets on a full disk, made by a limit on the size of files.
class FullDisk {
 public:
  explicit FullDisk(rlim_t bytes) {
    signal(SIGXFSZ, SIG_IGN);
    getrlimit(RLIMIT_FSIZE, &before_);
    rlimit now = before_;
    now.rlim_cur = bytes;
    setrlimit(RLIMIT_FSIZE, &now);
  }
  ~FullDisk() { setrlimit(RLIMIT_FSIZE, &before_); }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_{};
};

TEST_CASE("a checkpoint that the disk has no room for leaves the one before, and nothing else") {
  const Folder folder;
  TrainOptions options = Options();
  options.output = folder.Path();
  const auto model = TinyModel(1);
  const auto alone = OneRank();
  Trainer trainer(options, *model, nullptr, *alone);
  trainer.Step(MakeBatch(1));
  const std::string good = trainer.Save();
  trainer.Step(MakeBatch(2));
  // Not even the optimiser's share fits, then the model's weights do not.
  for (const rlim_t bytes : {1000, 17000}) {
    const FullDisk full(bytes);
    try {
      trainer.Save();
      FAIL("it was written");
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::kBroken);
      CHECK(std::string(error.what()).find("could not be written") != std::string::npos);
      CHECK(error.next_step().find("--resume") != std::string::npos);
    }
    CHECK(NewestCheckpoint(folder.Path()) == good);
    CHECK(std::distance(fs::directory_iterator(folder.Path() + "/checkpoints"), fs::directory_iterator()) ==
          1);
  }
  const std::string better = trainer.Save();
  CHECK(better != good);
  CHECK(NewestCheckpoint(folder.Path()) == better);
}

TEST_CASE("going on from a checkpoint is equal to the bit, in float32 and in bfloat16") {
  for (const NumberType type : {NumberType::kF32, NumberType::kBF16}) {
    const Folder folder;
    TrainOptions options = Options();
    options.output = folder.Path();
    const Trained whole = Train(options, 6, type);
    const auto alone = OneRank();
    {
      const auto model = TinyModel(1, type);
      Trainer trainer(options, *model, nullptr, *alone);
      for (int64_t s = 1; s <= 3; ++s) trainer.Step(MakeBatch(s));
      trainer.Save();
    }
    const auto model = TinyModel(99, type);  // its weights come from the checkpoint
    Trainer trainer(options, *model, nullptr, *alone);
    trainer.Resume(NewestCheckpoint(folder.Path()));
    REQUIRE(trainer.StepsDone() == 3);
    for (int64_t s = 4; s <= 6; ++s)
      CHECK(trainer.Step(MakeBatch(s)).loss == whole.figures[static_cast<size_t>(s) - 1].loss);
    CHECK(at::equal(Flat(*model), whole.weights));
  }
}

// A rank that is told the numbers of others, and never waits for them.
class OneOfSeveral : public Ranks {
 public:
  OneOfSeveral(int rank, int size) : rank_(rank), size_(size) {}
  int Rank() const override { return rank_; }
  int Size() const override { return size_; }
  void Sum(at::Tensor*) override {}
  void Largest(at::Tensor*) override {}
  void Gather(const at::Tensor& own, at::Tensor* all) override {
    all->zero_();
    all->narrow(0, rank_ * own.numel(), own.numel()).copy_(own);
  }
  void Wait() override {}

 private:
  const int rank_, size_;
};

TEST_CASE("a rank that resumes reads its own share alone") {
  const Folder folder;
  TrainOptions options = Options();
  options.output = folder.Path();
  const std::string newest = CheckpointOfRanks(options, 3);
  for (int i : {0, 2})
    std::ofstream(newest + "/optimizer-" + std::to_string(i) + "-of-3.safetensors") << "damaged";
  const auto model = TinyModel(5);
  OneOfSeveral second(1, 3), first(0, 3);
  Trainer trainer(options, *model, nullptr, second);
  trainer.Resume(newest);
  CHECK(trainer.StepsDone() == 2);
  Trainer other(options, *model, nullptr, first);
  CHECK_THROWS_AS(other.Resume(newest), Error);
}

TEST_CASE("a checkpoint goes on with other ranks, sharded or whole, as a run that was not interrupted") {
  TrainOptions options = Options();
  options.adam.weight_decay = 0.1, options.adam.max_grad_norm = 0.5;
  const at::Tensor expected = Train(options, 4).weights;
  for (const bool was_sharded : {false, true}) {
    for (const int before : {1, 2, 3}) {
      const Folder folder;
      options.output = folder.Path(), options.shard = was_sharded;
      const std::string checkpoint = CheckpointOfRanks(options, before);
      for (const bool is_sharded : {false, true}) {
        options.shard = is_sharded;
        for (const int after : {1, 2, 3}) {
          const RunOfRanks run = TrainOnRanks(options, after, 3, 4, checkpoint);
          for (const at::Tensor& weights : run.weights) {
            INFO((was_sharded ? "sharded " : "whole ")
                 << before << ", then " << (is_sharded ? "sharded " : "whole ") << after << ": "
                 << Gap(weights, expected));
            CHECK(Gap(weights, expected) < 1e-6);
          }
        }
      }
    }
  }
}

TEST_CASE("a checkpoint that is written again stays where the disk has no room for the new one") {
  const Folder folder;
  TrainOptions options = Options();
  options.output = folder.Path();
  // The optimiser's share fits the full disk, the tokenizer does not.
  options.model = folder.Path() + "/base";
  fs::create_directories(options.model);
  std::ofstream(options.model + "/tokenizer.json") << std::string(1 << 20, ' ');
  const auto model = TinyModel(1);
  const auto alone = OneRank();
  Trainer trainer(options, *model, nullptr, *alone);
  trainer.Step(MakeBatch(1));
  const std::string good = trainer.Save();
  CHECK(trainer.Save() == good);
  {
    const FullDisk full(1 << 19);
    CHECK_THROWS_WITH(trainer.Save(), Catch::Contains("base failed"));
  }
  CHECK(NewestCheckpoint(folder.Path()) == good);
  const auto other = TinyModel(2);
  Trainer second(options, *other, nullptr, *alone);
  second.Resume(good);
  CHECK(second.StepsDone() == 1);
  second.Step(MakeBatch(2));
  CHECK(second.Save() > good);
}

TEST_CASE("where one rank cannot write its share, all say so, and the checkpoint before stays") {
  const Folder folder;
  TrainOptions options = Options();
  options.output = folder.Path();
  options.shard = GENERATE(false, true);
  const std::string good = CheckpointOfRanks(options, 3);
  // A folder is in the way of one share.
  fs::create_directories(folder.Path() + "/checkpoints/.shares-3/optimizer-1-of-3.safetensors/x");
  std::vector<std::unique_ptr<LanguageModel>> models;
  for (int i = 0; i < 3; ++i) models.push_back(TinyModel(5));
  const auto errors = ErrorsOfRanks(3, [&](Ranks& ranks) {
    Trainer trainer(options, *models[static_cast<size_t>(ranks.Rank())], nullptr, ranks);
    trainer.Resume(good);
    trainer.Step(MakeBatch(3));
    trainer.Save();
  });
  CheckAllSay(errors, 1, "could not be written");
  CHECK(NewestCheckpoint(folder.Path()) == good);
  CHECK(std::distance(fs::directory_iterator(folder.Path() + "/checkpoints"), fs::directory_iterator()) == 1);
  CHECK(TrainOnRanks(options, 3, 3, 3, good).figures.size() == 1);
}

TEST_CASE("a share that an ended run of other ranks left is no part of a checkpoint") {
  const Folder folder;
  TrainOptions options = Options();
  options.output = folder.Path();
  fs::create_directories(folder.Path() + "/checkpoints/.shares-2");
  std::ofstream(folder.Path() + "/checkpoints/.shares-2/optimizer-2-of-3.safetensors") << "old";
  const std::string made = CheckpointOfRanks(options, 2);
  CHECK(std::distance(fs::directory_iterator(made), fs::directory_iterator()) ==
        4);  // the model, two shares, trainer.json
  CHECK(std::distance(fs::directory_iterator(folder.Path() + "/checkpoints"), fs::directory_iterator()) == 1);
}

TEST_CASE("a damaged, cut or missing share is an error on all ranks") {
  const Folder folder;
  TrainOptions options = Options();
  options.output = folder.Path();
  options.shard = GENERATE(false, true);
  const std::string checkpoint = CheckpointOfRanks(options, 2);
  const fs::path share = fs::path(checkpoint) / "optimizer-1-of-2.safetensors";
  const auto resume = [&] {
    std::vector<std::unique_ptr<LanguageModel>> models;
    for (int i = 0; i < 2; ++i) models.push_back(TinyModel(5));
    return ErrorsOfRanks(2, [&](Ranks& ranks) {
      Trainer trainer(options, *models[static_cast<size_t>(ranks.Rank())], nullptr, ranks);
      trainer.Resume(checkpoint);
    });
  };
  CHECK(resume() == std::vector<std::string>(2));
  fs::resize_file(share, fs::file_size(share) / 2);
  CheckAllSay(resume(), 1, "optimizer-1-of-2");
  fs::remove(share);
  CheckAllSay(resume(), 1, "optimizer-1-of-2");
  std::ofstream(checkpoint + "/trainer.json") << "{";
  for (const std::string& error : resume()) CHECK(error.find("trainer.json is damaged") != std::string::npos);
}

// The last tensor of a safetensors file without its last 8 bytes.
void ShortenLastTensor(const fs::path& path, const std::string& name) {
  std::ostringstream whole;
  whole << std::ifstream(path, std::ios::binary).rdbuf();
  std::string text = whole.str();
  uint64_t length = 0;
  std::memcpy(&length, text.data(), sizeof(length));
  auto header = nlohmann::json::parse(text.substr(8, length));
  auto& entry = header.at(name);
  REQUIRE(entry.at("data_offsets").at(1).get<uint64_t>() == text.size() - 8 - length);
  entry["shape"][0] = entry["shape"][0].get<int64_t>() - 8;
  entry["data_offsets"][1] = entry["data_offsets"][1].get<int64_t>() - 8;
  std::string shorter = header.dump();
  REQUIRE(shorter.size() <= length);
  shorter.resize(length, ' ');
  text.replace(8, length, shorter).resize(text.size() - 8);
  std::ofstream(path, std::ios::binary) << text;
}

TEST_CASE("a random state that torch does not take, or no memory, on one rank is an error on all, soon") {
  const auto start = std::chrono::steady_clock::now();
  CheckAllSay(ErrorsOfRanks(2,
                            [](Ranks& ranks) {
                              OnAllRanks(ranks, [&] {
                                if (ranks.Rank() == 1) at::ones({2}).view({3});
                              });
                            }),
              1, "shape '[3]' is invalid");
  CheckAllSay(ErrorsOfRanks(2,
                            [](Ranks& ranks) {
                              OnAllRanks(ranks, [&] {
                                if (ranks.Rank() == 0) throw std::bad_alloc();
                              });
                            }),
              0, "bad_alloc");
  const Folder folder;
  TrainOptions options = Options();
  options.output = folder.Path();
  const std::string checkpoint = CheckpointOfRanks(options, 2);
  ShortenLastTensor(fs::path(checkpoint) / "optimizer-1-of-2.safetensors", "random");
  std::vector<std::unique_ptr<LanguageModel>> models;
  for (int i = 0; i < 2; ++i) models.push_back(TinyModel(5));
  CheckAllSay(ErrorsOfRanks(2,
                            [&](Ranks& ranks) {
                              Trainer trainer(options, *models[static_cast<size_t>(ranks.Rank())], nullptr,
                                              ranks);
                              trainer.Resume(checkpoint);
                            }),
              1, "its random state of");
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(30));
}

TEST_CASE("a run goes on with the model that it began with, wherever that is, or says what differs") {
  const Folder folder;
  TrainOptions options = Options();
  options.output = folder.Path(), options.quantization = "nf4", options.trained = {"0a", "0b", "F32"};
  const auto model = TinyModel(1);
  const auto alone = OneRank();
  Trainer trainer(options, *model, nullptr, *alone);
  trainer.Step(MakeBatch(1));
  const std::string checkpoint = trainer.Save();
  const auto resume = [&](const std::function<void(TrainOptions*)>& change) -> std::string {
    TrainOptions asked = options;
    change(&asked);
    try {
      RequireSameOptions(checkpoint, asked);
      return "goes on";
    } catch (const Error& error) {
      CHECK(error.code() == ExitCode::kBadRequest);
      CHECK(error.next_step().starts_with("give the "));
      return error.what();
    }
  };
  CHECK(resume([](TrainOptions* o) { o->model = "elsewhere"; }) == "goes on");
  CHECK(resume([](TrainOptions* o) { o->trained = {}; }) == "goes on");  // unknown
  CHECK_THAT(resume([](TrainOptions* o) { o->trained.fingerprint = "1a", o->model = "b"; }),
             Catch::Contains("(fingerprint 0a), and this run is asked for with --model b (fingerprint 1a)"));
  CHECK_THAT(
      resume([](TrainOptions* o) { o->trained.reference = "1b", o->reference = "c"; }),
      Catch::Contains("(fingerprint 0b), and this run is asked for with --reference c (fingerprint 1b)"));
  CHECK_THAT(
      resume([](TrainOptions* o) { o->trained.dtype = "BF16"; }),
      Catch::Contains("made with weights in F32 (--dtype), and this run is asked for with weights in BF16"));
  CHECK_THAT(
      resume([](TrainOptions* o) { o->quantization = "none"; }),
      Catch::Contains("made with --quantization nf4, and this run is asked for with --quantization none"));
}

TEST_CASE("checkpoints: only the newest are kept, damage is named, the folder is whole") {
  const Folder folder;
  TrainOptions options = Options();
  options.output = folder.Path(), options.keep = 2;
  const auto model = TinyModel(1);
  const auto alone = OneRank();
  Trainer trainer(options, *model, nullptr, *alone);
  CHECK(NewestCheckpoint(folder.Path()).empty());
  for (int64_t s = 1; s <= 4; ++s) trainer.Step(MakeBatch(s)), trainer.Save();
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder.Path() + "/checkpoints"))
    names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  CHECK(names == std::vector<std::string>{"step-00000003", "step-00000004"});
  const std::string newest = NewestCheckpoint(folder.Path());
  CHECK(fs::exists(newest + "/model/model.safetensors"));
  const auto wider = TinyModel(1, NumberType::kF32, Wider());
  Trainer other(options, *wider, nullptr, *alone);
  CHECK_THROWS_WITH(other.Resume(newest), Catch::Contains("other parameters"));
  TrainOptions reseeded = options;
  reseeded.seed = 1;
  const auto again = TinyModel(1);
  Trainer late(reseeded, *again, nullptr, *alone);
  CHECK_THROWS_WITH(late.Resume(newest), Catch::Contains("--seed"));
  std::ofstream(newest + "/trainer.json") << "{";
  CHECK_THROWS_WITH(late.Resume(newest), Catch::Contains("damaged"));
}

}  // namespace
}  // namespace kevin::local
