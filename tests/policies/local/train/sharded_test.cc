// Layers of which each rank keeps a share: what they learn, what memory they take, how their state is laid out.

#include <c10/core/GradMode.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <limits>

#include "policies/local/train/sharded_weights.h"
#include "policies/local/train/state_layout.h"
#include "tests/policies/local/train/trainer_fixture.h"

namespace kevin::local {
namespace {

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
    const at::Tensor before = Flat(*model);
    ShardedWeights shards(*model, options.adam, ranks);
    const int64_t shared_out = LayerMemory(*model);
    shards.MakeWhole();
    const int64_t whole = LayerMemory(*model);
    shards.Release();
    const int64_t released = LayerMemory(*model);
    std::vector<at::Tensor> logits;
    const auto alone = TinyModel(1);
    const PackedTokens tokens{at::tensor({1, 2, 3}, at::kLong), at::arange(3), {0, 3}};
    const c10::NoGradGuard no_gradients;
    const bool same = at::equal(model->Hidden(tokens), alone->Hidden(tokens));
    const int64_t after = LayerMemory(*model);
    shards.MakeWhole();
    if (whole == 0 || shared_out != 0 || released != 0 || after > whole / 2)
      throw std::runtime_error("memory is not given up");
    if (!same || !at::equal(before, Flat(*model))) throw std::runtime_error("other weights");
  });
}

// One rank that looks at this process's memory whenever weights are gathered.
class WatchedRank : public Ranks {
 public:
  int Rank() const override { return 0; }
  int Size() const override { return 1; }
  void Sum(at::Tensor*) override {}
  void Largest(at::Tensor*) override {}
  void Gather(const at::Tensor& own, at::Tensor* all) override {
    all->copy_(own);
    resident = ResidentBytes();
  }
  void Wait() override {}
  static int64_t ResidentBytes() {
    std::ifstream statm("/proc/self/statm");
    int64_t pages = 0;
    statm >> pages >> pages;
    return pages * sysconf(_SC_PAGESIZE);
  }
  int64_t resident = 0;
};

// One rank whose sums come when they are waited for.
class LateRank : public WatchedRank {
 public:
  std::function<void()> StartGather(const at::Tensor& own, at::Tensor all) override {
    gathered_beside += on_the_way > 0;
    return WatchedRank::StartGather(own, std::move(all));
  }
  std::function<void()> StartSumShares(const at::Tensor& all, at::Tensor own) override {
    most = std::max(most, ++on_the_way);
    own.fill_(std::numeric_limits<float>::quiet_NaN());
    return [this, all, own]() mutable {
      own.copy_(all);
      --on_the_way;
    };
  }
  int on_the_way = 0, most = 0, gathered_beside = 0;
};

TEST_CASE("a layer's gradients are summed while the layer before it runs backward") {
  ModelConfig config = TinyConfig();
  config.layers = 3;
  TrainOptions options = Options();
  options.micro_tokens = 1000, options.updates_per_step = 1;  // one backward pass a step
  options.adam.max_grad_norm = 0.5;
  const auto alone = OneRank();
  const auto model = TinyModel(1, NumberType::kF32, config), plain = TinyModel(1, NumberType::kF32, config);
  LateRank late;
  Trainer whole(options, *plain, nullptr, *alone);
  options.shard = true;
  Trainer sharded(options, *model, nullptr, late);
  for (int64_t step = 1; step <= 3; ++step) {
    const double norm = sharded.Step(MakeBatch(step)).grad_norm;
    CHECK(norm == Approx(whole.Step(MakeBatch(step)).grad_norm).epsilon(1e-5));
    // The first layer's weights are gathered while the last one's gradients are on the way: matrices and vectors.
    CHECK(late.gathered_beside == 2 * step);
    CHECK(late.on_the_way == 0);
  }
  CHECK(late.most == 2);  // of one layer
  sharded.MakeWhole();
  CHECK(Gap(Flat(*model), Flat(*plain)) < 1e-6);
}

TEST_CASE("the summed gradients give their memory up before the weights are whole again") {
  TrainOptions options = Options();
  options.shard = true;
  const auto model = TinyModel(1, NumberType::kF32, TinyConfig(kVocabulary, 1024));
  WatchedRank rank;
  Trainer trainer(options, *model, nullptr, rank);
  trainer.Step(MakeBatch(1));
  trainer.MakeWhole();
  int64_t numbers = 0;
  for (const NamedParameter& p : model->LayerParameters(0)) numbers += 2 * p.value.numel();
  CHECK(numbers * 4 > (int64_t{64} << 20));
  CHECK(rank.resident - WatchedRank::ResidentBytes() < numbers * 4 / 2);
}

TEST_CASE("the model of a sharded checkpoint is whole, and no rank needs it whole for that") {
  const Folder folder;
  TrainOptions options = Options();
  options.output = folder.Path(), options.shard = true;
  WithRanks(3, [&](Ranks& ranks) {
    const auto model = TinyModel(1);
    Trainer trainer(options, *model, nullptr, ranks);
    const auto require_shares = [&](const std::string& when) {
      if (LayerMemory(*model) != 0) throw std::runtime_error("weights are whole " + when);
    };
    require_shares("before the first step");
    for (int64_t step = 1; step <= 2; ++step) trainer.Step(MakeBatch(step));
    require_shares("after a step");
    trainer.Save();
    trainer.SaveModel(folder.Path() + "/trained");
    require_shares("after saving");
    trainer.MakeWhole();
    if (LayerMemory(*model) == 0) throw std::runtime_error("weights are not whole where they are asked for");
  });
  const std::string checkpoint = NewestCheckpoint(options.output);
  ModelOptions floats;
  floats.dtype = NumberType::kF32, floats.trainable = true;
  const at::Tensor expected = Train(options, 2).weights;
  for (const std::string& saved : {checkpoint + "/model", folder.Path() + "/trained"})
    CHECK(Gap(Flat(*LoadLanguageModel(saved, floats)), expected) < 1e-6);
}

}  // namespace
}  // namespace kevin::local
