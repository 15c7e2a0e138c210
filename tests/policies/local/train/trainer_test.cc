// Steps of training on a tiny model: what must not change them (packing, ranks, stopping and going on) and
// what must.

#include "policies/local/train/trainer.h"

#include <ATen/ATen.h>
#include <arpa/inet.h>
#include <c10/core/GradMode.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <new>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <thread>

#include "env/error.h"
#include "policies/local/train/sharded_weights.h"
#include "policies/local/train/state_layout.h"
#include "policies/local/train/token_logprobs.h"
#include "tests/catch.h"
#include "tests/policies/local/train/tiny_model.h"

namespace kevin::local {
namespace {

namespace fs = std::filesystem;

constexpr int kVocabulary = 13;  // of the tiny model

ModelConfig Wider() { return TinyConfig(kVocabulary, 12); }

TrainOptions Options() {
  TrainOptions options;
  options.loss.normaliser = Normaliser::kTokenMean;
  options.loss.correction = Correction::kNone;
  options.schedule = {1e-2, Decay::kCosine, 0.1, 0.1};
  options.adam.max_grad_norm = 0;
  options.steps = 8;
  options.micro_tokens = 40, options.logits_tokens = 7;
  return options;
}

// Twelve samples of different lengths.
Batch MakeBatch(int64_t step) {
  Batch batch;
  batch.step = step;
  for (int i = 0; i < 12; ++i) {
    Sample sample;
    for (int k = 0; k <= i % 4; ++k)
      sample.prompt.push_back((i * 5 + k * 3 + static_cast<int>(step)) % kVocabulary);
    for (int k = 0; k < 2 + i % 5; ++k) sample.completion.push_back((i + k * k) % kVocabulary);
    sample.sampler_logprobs.assign(sample.completion.size(), -2.5f);
    sample.advantage = static_cast<float>(i % 3 - 1) * 0.7f + 0.1f;
    sample.temperature = i % 2 == 0 ? 0.9f : 1.0f;
    batch.samples.push_back(sample);
  }
  return batch;
}

at::Tensor Flat(LanguageModel& model) {
  std::vector<at::Tensor> all;
  for (const NamedParameter& p : model.Parameters())
    all.push_back(p.value.detach().reshape(-1).to(at::kFloat));
  return at::cat(all).clone();
}

struct Trained {
  at::Tensor weights;
  std::vector<StepFigures> figures;
};

Trained Train(const TrainOptions& options, int64_t steps, NumberType type = NumberType::kF32) {
  const auto model = TinyModel(1, type);
  const auto alone = OneRank();
  Trainer trainer(options, *model, nullptr, *alone);
  Trained trained;
  for (int64_t s = 1; s <= steps; ++s) trained.figures.push_back(trainer.Step(MakeBatch(s)));
  trained.weights = Flat(*model);
  return trained;
}

double Gap(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

TEST_CASE("a step does not depend on how samples are packed and logits are cut") {
  TrainOptions options = Options();
  const Trained pieces = Train(options, 3);
  options.micro_tokens = 100000, options.logits_tokens = 100000;
  const Trained whole = Train(options, 3);
  options.micro_tokens = 1;
  const Trained single = Train(options, 3);
  CHECK(Gap(pieces.weights, whole.weights) < 2e-6);
  CHECK(Gap(single.weights, whole.weights) < 2e-6);
  CHECK(pieces.figures[2].loss == Approx(whole.figures[2].loss).epsilon(1e-4));
  CHECK(pieces.figures[2].tokens == whole.figures[2].tokens);
  const auto fresh = TinyModel(1);
  CHECK(Gap(whole.weights, Flat(*fresh)) > 1e-2);  // and it learns something
}

TEST_CASE("a step with nothing to learn from counts, where it may, and changes nothing") {
  const auto model = TinyModel(1);
  const auto alone = OneRank();
  Trainer trainer(Options(), *model, nullptr, *alone);
  trainer.Step(MakeBatch(1));
  const at::Tensor before = Flat(*model);
  Batch idle = MakeBatch(2);
  for (Sample& sample : idle.samples) sample.masked = true;
  CHECK_THROWS_AS(trainer.Step(idle), Error);
  idle.may_be_idle = true;
  const StepFigures figures = trainer.Step(idle);
  CHECK((figures.updates == 0 && std::isnan(figures.loss) && std::isnan(figures.grad_norm)));
  CHECK(Gap(Flat(*model), before) == 0);
  CHECK(trainer.StepsDone() == 2);
  CHECK(trainer.Step(MakeBatch(3)).updates == 2);
}

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

TEST_CASE("from the base each step is as if it were the first") {
  TrainOptions options = Options();
  options.from_base = true;
  const auto model = TinyModel(1);
  const auto alone = OneRank();
  Trainer trainer(options, *model, nullptr, *alone);
  Batch batch = MakeBatch(1);
  trainer.Step(batch);
  const at::Tensor once = Flat(*model);
  trainer.Step(MakeBatch(2));
  CHECK(Gap(Flat(*model), once) > 1e-3);
  // The order of updates follows from the step's number; with one update there is none.
  options.updates_per_step = 1;
  const auto one = TinyModel(1), other = TinyModel(1);
  Trainer first(options, *one, nullptr, *alone), second(options, *other, nullptr, *alone);
  first.Step(batch);
  second.Step(MakeBatch(1));
  batch.step = 2;
  second.Step(batch);
  CHECK(Gap(Flat(*one), Flat(*other)) < 1e-6);
}

// One update written out with plain autograd over single sequences.
TEST_CASE("an update equals gradients of the formula and AdamW's closed form") {
  TrainOptions options = Options();
  options.updates_per_step = 1, options.adam.weight_decay = 0.1, options.adam.max_grad_norm = 0.05;
  options.schedule = {1e-2, Decay::kConstant, 0, 0};
  const auto model = TinyModel(1), other = TinyModel(1);
  const auto alone = OneRank();
  Trainer trainer(options, *model, nullptr, *alone);
  const Batch batch = MakeBatch(1);
  const StepFigures figures = trainer.Step(batch);

  double tokens = 0;
  for (const Sample& s : batch.samples) tokens += static_cast<double>(s.completion.size());
  at::Tensor loss = at::zeros({});
  for (const Sample& s : batch.samples) {
    std::vector<int64_t> ids(s.prompt.begin(), s.prompt.end());
    ids.insert(ids.end(), s.completion.begin(), s.completion.end());
    const auto n = static_cast<int64_t>(ids.size());
    const at::Tensor all = at::tensor(ids, at::kLong);
    const at::Tensor hidden = other->Hidden({all, at::arange(n), {0, n}});
    const at::Tensor logprobs = at::log_softmax(other->Logits(hidden) / s.temperature, 1);
    for (int64_t t = static_cast<int64_t>(s.prompt.size()); t < n; ++t)
      loss = loss - s.advantage * logprobs[t - 1][ids[static_cast<size_t>(t)]] / tokens;
  }
  loss.backward();
  double squares = 0;
  for (const NamedParameter& p : other->Parameters()) squares += p.value.grad().square().sum().item<double>();
  CHECK(figures.grad_norm == Approx(std::sqrt(squares)).epsilon(1e-5));
  // After one step both moments are (1 - beta) g, so the update is lr g / (|g| + eps); matrices decay first.
  std::vector<at::Tensor> expected;
  for (const NamedParameter& p : other->Parameters()) {
    const at::Tensor g = p.value.grad() * (0.05 / (std::sqrt(squares) + 1e-6));
    const double decay = p.value.dim() > 1 ? 1 - 1e-2 * 0.1 : 1;
    expected.push_back((p.value.detach() * decay - 1e-2 * g / (g.abs() + 1e-8)).reshape(-1));
  }
  CHECK(Gap(Flat(*model), at::cat(expected)) < 1e-5);
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

int FreePort() {
  const int file = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET, address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  REQUIRE(bind(file, reinterpret_cast<sockaddr*>(&address), length) == 0);
  getsockname(file, reinterpret_cast<sockaddr*>(&address), &length);
  close(file);
  return ntohs(address.sin_port);
}

// torch keeps a record of collectives for the whole process, to which several groups add without a lock: switched off
// before the first group is made.
[[maybe_unused]] const int kWithoutRecord = setenv("TORCH_FR_BUFFER_SIZE", "0", 1);

// Runs `body` once per rank, each in a thread with its own group. The errors of each.
std::vector<std::string> ErrorsOfRanks(int size, const std::function<void(Ranks&)>& body) {
  const int port = FreePort();
  std::vector<std::thread> threads;
  std::vector<std::string> errors(static_cast<size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto ranks = JoinOverGloo({rank, size, "127.0.0.1", port, rank == 0, "test"}, 60);
        body(*ranks);
        ranks->Wait();
      } catch (const std::exception& error) {
        errors[static_cast<size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

void WithRanks(int size, const std::function<void(Ranks&)>& body) {
  CHECK(ErrorsOfRanks(size, body) == std::vector<std::string>(static_cast<size_t>(size)));
}

struct RunOfRanks {
  std::vector<at::Tensor> weights;  // of each rank
  std::vector<StepFigures> figures;
};

// Steps `first` to `last` on `size` ranks; from the checkpoint `resume` unless empty.
RunOfRanks TrainOnRanks(const TrainOptions& options, int size, int64_t first, int64_t last,
                        const std::string& resume = "", bool save = false) {
  RunOfRanks run;
  run.weights.resize(static_cast<size_t>(size));
  std::vector<std::unique_ptr<LanguageModel>> models;
  for (int i = 0; i < size; ++i) models.push_back(TinyModel(resume.empty() ? 1 : 5));
  WithRanks(size, [&](Ranks& ranks) {
    LanguageModel& model = *models[static_cast<size_t>(ranks.Rank())];
    Trainer trainer(options, model, nullptr, ranks);
    if (!resume.empty()) trainer.Resume(resume);
    for (int64_t s = first; s <= last; ++s) {
      const StepFigures figures = trainer.Step(MakeBatch(s));
      if (ranks.Rank() == 0) run.figures.push_back(figures);
    }
    if (save) trainer.Save();
    run.weights[static_cast<size_t>(ranks.Rank())] = Flat(model);
  });
  return run;
}

// Of two steps on `size` ranks; its folder.
std::string CheckpointOfRanks(const TrainOptions& options, int size) {
  TrainOnRanks(options, size, 1, 2, "", true);
  return NewestCheckpoint(options.output);
}

TEST_CASE("two and three ranks over Gloo learn what one learns") {
  const Trained alone = Train(Options(), 4);
  for (const int size : {2, 3}) {
    std::vector<Trained> of(static_cast<size_t>(size));
    std::vector<std::unique_ptr<LanguageModel>> models;
    for (int i = 0; i < size; ++i) models.push_back(TinyModel(1));
    WithRanks(size, [&](Ranks& ranks) {
      const auto me = static_cast<size_t>(ranks.Rank());
      Trainer trainer(Options(), *models[me], nullptr, ranks);
      for (int64_t s = 1; s <= 4; ++s) of[me].figures.push_back(trainer.Step(MakeBatch(s)));
      of[me].weights = Flat(*models[me]);
    });
    for (const Trained& one : of) {
      CHECK(at::equal(one.weights, of[0].weights));
      CHECK(Gap(one.weights, alone.weights) < 5e-6);
      CHECK(one.figures[3].loss == Approx(alone.figures[3].loss).epsilon(1e-4));
      CHECK(one.figures[3].grad_norm == Approx(alone.figures[3].grad_norm).epsilon(1e-4));
      CHECK(one.figures[3].tokens == alone.figures[3].tokens);
      CHECK(one.figures[3].delta_logprob_max == Approx(alone.figures[3].delta_logprob_max));
    }
  }
}

// The most memory that this process has had since it was last reset, in bytes.
int64_t PeakMemory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::stoll(line.substr(6)) * 1024;
  }
  FAIL("no VmHWM");
  return 0;
}

TEST_CASE("the norm of a bucket's gradients is summed in float64 without a copy of it") {
  at::Tensor values = at::full({int64_t{1} << 25}, 0.1f);  // 128 MiB
  values[7] = 1e4f;
  std::ofstream("/proc/self/clear_refs") << "5";  // resets the peak
  const int64_t before = PeakMemory();
  const double squares = SquaresOf(values);
  CHECK(PeakMemory() - before < (int64_t{64} << 20));
  const double small = static_cast<double>(0.1f), all = static_cast<double>(values.numel() - 1);
  CHECK(squares == Approx(1e8 + all * small * small).epsilon(1e-9));
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

TEST_CASE("the layout of the state: buckets of matrices and of vectors, or pieces of layers") {
  const auto model = TinyModel(1);
  const std::vector<NamedParameter> parameters = model->Parameters();
  const auto numbers = [&](const std::string& name) {
    for (const NamedParameter& p : parameters)
      if (p.name == name) return p.value.numel();
    FAIL("no parameter " + name);
    return int64_t{0};
  };
  const int64_t embedding = numbers("model.embed_tokens.weight"),
                norm = numbers("model.layers.0.input_layernorm.weight");
  const StateLayout whole = LayoutOf(parameters, false), sharded = LayoutOf(parameters, true);
  CHECK(whole.sizes.size() == 2);
  CHECK((whole.places.at("model.embed_tokens.weight").piece == "bucket0." &&
         whole.places.at("model.embed_tokens.weight").begin == 0));
  CHECK((whole.places.at("model.layers.0.self_attn.q_proj.weight").piece == "bucket0." &&
         whole.places.at("model.layers.0.self_attn.q_proj.weight").begin == embedding));
  CHECK((whole.places.at("model.layers.0.input_layernorm.weight").piece == "bucket1." &&
         whole.places.at("model.layers.0.input_layernorm.weight").begin == 0));
  CHECK((sharded.places.at("model.layers.1.self_attn.q_proj.weight").piece == "layer1.matrices." &&
         sharded.places.at("model.layers.1.self_attn.q_proj.weight").begin == 0));
  CHECK((sharded.places.at("model.layers.1.post_attention_layernorm.weight").piece == "layer1.vectors." &&
         sharded.places.at("model.layers.1.post_attention_layernorm.weight").begin >= norm));
  CHECK((sharded.places.at("model.norm.weight").piece == "bucket1." &&
         sharded.places.at("model.norm.weight").begin == 0));
  for (const StateLayout* layout : {&whole, &sharded}) {
    int64_t all = 0;
    for (const auto& [piece, size] : layout->sizes) all += size;
    CHECK(all == Flat(*model).numel());
  }
}

// All of `errors` say `part`, and those of other ranks than `rank` name it.
void CheckAllSay(const std::vector<std::string>& errors, int rank, const std::string& part) {
  for (size_t i = 0; i < errors.size(); ++i) {
    INFO("rank " << i << ": " << errors[i]);
    CHECK(errors[i].find(part) != std::string::npos);
    CHECK((static_cast<int>(i) == rank || errors[i].starts_with("rank " + std::to_string(rank) + ": ")));
  }
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

TEST_CASE("sharded weights learn what whole ones do, on one, two and three ranks") {
  TrainOptions options = Options();
  options.adam.weight_decay = 0.1, options.adam.max_grad_norm = 0.5;
  const Trained alone = Train(options, 4);
  options.shard = true;
  for (const int size : {1, 2, 3}) {
    const RunOfRanks sharded = TrainOnRanks(options, size, 1, 4);
    for (const at::Tensor& weights : sharded.weights) {
      INFO(size << " ranks: " << Gap(weights, alone.weights));
      CHECK(at::equal(weights, sharded.weights[0]));
      CHECK(Gap(weights, alone.weights) < 1e-6);
    }
    for (size_t s = 0; s < 4; ++s) {
      CHECK(sharded.figures[s].grad_norm == Approx(alone.figures[s].grad_norm).epsilon(1e-5));
      CHECK(sharded.figures[s].loss == Approx(alone.figures[s].loss).epsilon(1e-5));
      CHECK(sharded.figures[s].tokens == alone.figures[s].tokens);
      CHECK(sharded.figures[s].trained_tokens == alone.figures[s].trained_tokens);
    }
  }
}

TEST_CASE("a rank has only its share while others learn, and whole weights when it answers") {
  TrainOptions options = Options();
  options.shard = true;
  WithRanks(2, [&](Ranks& ranks) {
    const auto model = TinyModel(1);
    ShardedWeights shards(*model, options.adam, ranks);
    const auto bytes = [&] {
      int64_t all = 0;
      for (int layer = 0; layer < model->Config().layers; ++layer) {
        std::set<const void*> seen;
        for (const NamedParameter& p : model->LayerParameters(layer)) {
          const c10::StorageImpl* storage = p.value.storage().unsafeGetStorageImpl();
          if (seen.insert(storage).second) all += static_cast<int64_t>(storage->nbytes());
        }
      }
      return all;
    };
    const at::Tensor before = Flat(*model);
    const int64_t whole = bytes();
    shards.Release();
    const int64_t released = bytes();
    std::vector<at::Tensor> logits;
    const auto alone = TinyModel(1);
    const PackedTokens tokens{at::tensor({1, 2, 3}, at::kLong), at::arange(3), {0, 3}};
    const c10::NoGradGuard no_gradients;
    const bool same = at::equal(model->Hidden(tokens), alone->Hidden(tokens));
    const int64_t after = bytes();
    shards.MakeWhole();
    if (whole == 0 || released != 0 || after > whole / 2) throw std::runtime_error("memory is not given up");
    if (!same || !at::equal(before, Flat(*model))) throw std::runtime_error("other weights");
  });
}

TEST_CASE("the model of a sharded checkpoint is whole") {
  const Folder folder;
  TrainOptions options = Options();
  options.output = folder.Path(), options.shard = true;
  const std::string checkpoint = CheckpointOfRanks(options, 3);
  ModelOptions floats;
  floats.dtype = NumberType::kF32, floats.trainable = true;
  const auto saved = LoadLanguageModel(checkpoint + "/model", floats);
  CHECK(Gap(Flat(*saved), Train(options, 2).weights) < 1e-6);
}

TEST_CASE("ranks exchange texts") {
  for (const int size : {2, 3}) {
    WithRanks(size, [&](Ranks& ranks) {
      const auto all = ExchangeTexts(ranks, std::string(static_cast<size_t>(ranks.Rank()), 'x'));
      std::vector<std::string> expected;
      for (int i = 0; i < size; ++i) expected.emplace_back(static_cast<size_t>(i), 'x');
      if (all != expected) throw std::runtime_error("other texts");
    });
  }
  const auto alone = OneRank();
  CHECK(ExchangeTexts(*alone, "a") == std::vector<std::string>{"a"});
}

TEST_CASE("a lost rank ends the others with an error, not with a wait") {
  std::string what;
  const int port = FreePort();
  std::thread lost([&] { JoinOverGloo({1, 2, "127.0.0.1", port, false, "test"}, 20); });
  try {
    const auto ranks = JoinOverGloo({0, 2, "127.0.0.1", port, true, "test"}, 20);
    lost.join();
    at::Tensor values = at::ones({3});
    ranks->Sum(&values);
  } catch (const Error& error) {
    what = error.what();
    CHECK(error.code() == ExitCode::kBroken);
  }
  CHECK(what.find("lost another rank") != std::string::npos);
}

TEST_CASE("ranks that do not come are named by those that did, within the limit") {
  const int port = FreePort();
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::string> errors(3);
  std::vector<std::thread> threads;
  for (const int rank : {0, 1, 3}) {
    threads.emplace_back([&, rank] {
      try {
        JoinOverGloo({rank, 4, "127.0.0.1", port, rank == 0, "test", 2}, 1800);
      } catch (const Error& error) {
        errors[static_cast<size_t>(rank == 3 ? 2 : rank)] = error.what();
        CHECK(error.code() == ExitCode::kBroken);
        CHECK_FALSE(error.next_step().empty());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(std::chrono::steady_clock::now() - start < std::chrono::seconds(20));
  CHECK(errors[0].find("all of 4 ranks; there is no rank 2") != std::string::npos);
  // The others see the same, or that rank 0, which holds the store, has given up.
  for (const std::string& error : errors)
    CHECK((error.find("there is no rank 2") != std::string::npos ||
           error.find("lost another rank") != std::string::npos));
}

TEST_CASE("the second update is off-policy: ratios move and clip") {
  TrainOptions options = Options();
  options.schedule = {0.3, Decay::kConstant, 0, 0};
  const StepFigures two = Train(options, 1).figures[0];
  CHECK(two.updates == 2);
  CHECK(two.policy_shift > 1e-3);
  CHECK(two.clip_low + two.clip_high > 0);
  options.updates_per_step = 1;
  const StepFigures one = Train(options, 1).figures[0];
  CHECK(one.policy_shift == 0);
  CHECK(one.clip_low + one.clip_high == 0);
}

TEST_CASE("the gap to the sampler is measured before the step") {
  const auto model = TinyModel(1);
  Batch batch = MakeBatch(1);
  for (Sample& s : batch.samples) {
    const Sample* one[] = {&s};
    const c10::NoGradGuard no_gradients;
    const at::Tensor own = CompletionLogprobs(*model, PackSamples(one, at::kCPU), 100, false).logprobs;
    for (size_t t = 0; t < s.completion.size(); ++t)
      s.sampler_logprobs[t] = own[static_cast<int64_t>(t)].item<float>() - 0.125f;
  }
  batch.samples[3].sampler_logprobs[1] -= 0.5f;
  TrainOptions options = Options();
  options.schedule = {0.3, Decay::kConstant, 0, 0};  // a great change within the step
  options.loss.correction = Correction::kTruncate;
  const auto alone = OneRank();
  Trainer trainer(options, *model, nullptr, *alone);
  const StepFigures figures = trainer.Step(batch);
  const double n = static_cast<double>(figures.trained_tokens);
  CHECK(figures.delta_logprob == Approx(0.125 + 0.5 / n).epsilon(1e-4));
  CHECK(figures.delta_logprob_max == Approx(0.625).epsilon(1e-4));
  CHECK(figures.correction_mean == Approx(((n - 1) * std::exp(0.125) + std::exp(0.625)) / n).epsilon(1e-4));
}

TEST_CASE("a step whose turns come from another policy is an error before it teaches anything") {
  const auto model = TinyModel(1);
  const auto alone = OneRank();
  TrainOptions options = Options();
  options.loss.correction = Correction::kTruncate, options.gap_limit = 5;
  Trainer trainer(options, *model, nullptr, *alone);
  const double gap = trainer.Step(MakeBatch(1)).delta_logprob;
  CHECK(gap > 0.01);
  options.gap_limit = gap / 2;
  Trainer strict(options, *model, nullptr, *alone);
  const at::Tensor before = Flat(*model);
  CHECK_THROWS_WITH(strict.Step(MakeBatch(1)), Catch::Contains("not one policy"));
  CHECK(at::equal(Flat(*model), before));
}

TEST_CASE("masked samples teach nothing; those without an advantage only dilute") {
  Batch batch = MakeBatch(1);
  const auto weights_after = [](const Batch& b) {
    TrainOptions options = Options();
    options.updates_per_step = 1, options.schedule = {1e-2, Decay::kConstant, 0, 0};
    options.adam.epsilon = 1;  // then the size of a gradient matters
    const auto model = TinyModel(1);
    const auto alone = OneRank();
    Trainer trainer(options, *model, nullptr, *alone);
    trainer.Step(b);
    return Flat(*model);
  };
  Batch without = batch;
  without.samples.erase(without.samples.begin() + 4);
  const at::Tensor plain = weights_after(without);
  Batch masked = batch;
  masked.samples[4].masked = true;
  CHECK(Gap(weights_after(masked), plain) < 1e-6);
  Batch neutral = batch;
  neutral.samples[4].advantage = 0;
  CHECK(Gap(weights_after(neutral), plain) > 1e-6);
  CHECK(Gap(weights_after(batch), plain) > 1e-6);
}

TEST_CASE("what is not finite stops the run, names the step and leaves the weights alone") {
  const auto model = TinyModel(1);
  const auto alone = OneRank();
  TrainOptions options = Options();
  options.updates_per_step = 1;
  Trainer trainer(options, *model, nullptr, *alone);
  trainer.Step(MakeBatch(1));
  const at::Tensor before = Flat(*model);
  Batch poisoned = MakeBatch(2);
  poisoned.samples[5].advantage = std::numeric_limits<float>::infinity();
  std::string what;
  try {
    trainer.Step(poisoned);
  } catch (const Error& error) {
    what = error.what();
    CHECK(error.code() == ExitCode::kBroken);
    CHECK(std::string(error.next_step()).find("--resume") != std::string::npos);
  }
  CHECK(what.find("step 2, update 1 of 1") != std::string::npos);
  CHECK(at::equal(Flat(*model), before));
}

TEST_CASE("what is not finite on one rank stops all, and the checkpoint before stays") {
  const Folder folder;
  TrainOptions options = Options();
  options.output = folder.Path(), options.micro_tokens = 12;
  options.shard = GENERATE(false, true);
  const std::string good = CheckpointOfRanks(options, 3);
  std::vector<std::unique_ptr<LanguageModel>> models;
  for (int i = 0; i < 3; ++i) models.push_back(TinyModel(5));
  const auto errors = ErrorsOfRanks(3, [&](Ranks& ranks) {
    Trainer trainer(options, *models[static_cast<size_t>(ranks.Rank())], nullptr, ranks);
    trainer.Resume(good);
    Batch poisoned = MakeBatch(3);
    poisoned.samples[5].advantage = std::numeric_limits<float>::quiet_NaN();
    trainer.Step(poisoned);
  });
  for (const std::string& error : errors) {
    INFO(error);
    CHECK(error.find("step 3") != std::string::npos);
    CHECK(error.find("not finite") != std::string::npos);
  }
  CHECK(NewestCheckpoint(folder.Path()) == good);
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

TEST_CASE("a batch that does not fit is refused") {
  const auto model = TinyModel(1);
  const auto alone = OneRank();
  TrainOptions options = Options();
  options.loss.correction = Correction::kTruncate;
  Trainer trainer(options, *model, nullptr, *alone);
  Batch batch = MakeBatch(1);
  batch.samples[2].sampler_logprobs.clear();
  CHECK_THROWS_WITH(trainer.Step(batch), Catch::Contains("without the log-probabilities"));
  batch = MakeBatch(1);
  for (Sample& s : batch.samples) s.masked = true;
  CHECK_THROWS_WITH(trainer.Step(batch), Catch::Contains("nothing to train on"));
  CHECK_THROWS_WITH(trainer.Step(MakeBatch(2)), Catch::Contains("does not follow"));
}

TEST_CASE("preferences: chosen answers become likelier than rejected ones, and pairs stay together") {
  TrainOptions options = Options();
  options.loss.surrogate = Surrogate::kPreference, options.updates_per_step = 1;
  options.schedule = {1e-2, Decay::kConstant, 0, 0};
  options.steps = 30, options.micro_tokens = 12;
  const auto model = TinyModel(1), reference = TinyModel(1);
  const auto alone = OneRank();
  Trainer trainer(options, *model, reference.get(), *alone);
  Batch batch = MakeBatch(1);
  batch.unit = 2;
  StepFigures first, last;
  for (int64_t s = 1; s <= 30; ++s) {
    batch.step = s;
    last = trainer.Step(batch);
    if (s == 1) first = last;
  }
  CHECK(first.loss == Approx(std::log(2.0)).epsilon(1e-5));
  CHECK(first.preference_margin == Approx(0).margin(1e-6));
  CHECK(last.loss < 0.6);
  CHECK(last.preference_accuracy == 1);
}

TEST_CASE("imitation brings the loss down to what can be known") {
  TrainOptions options = Options();
  options.loss.surrogate = Surrogate::kCrossEntropy, options.updates_per_step = 1;
  options.schedule = {3e-2, Decay::kConstant, 0, 0};
  options.steps = 150;
  const auto model = TinyModel(1);
  const auto alone = OneRank();
  Trainer trainer(options, *model, nullptr, *alone);
  Batch batch = MakeBatch(1);
  batch.samples.resize(3);
  double first = 0, last = 0;
  for (int64_t s = 1; s <= 150; ++s) {
    batch.step = s;
    last = trainer.Step(batch).loss;
    if (s == 1) first = last;
  }
  CHECK(first > 2);
  CHECK(last < 0.5);
}

}  // namespace
}  // namespace kevin::local
