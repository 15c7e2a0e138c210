// Schedules, packing and options: what training needs before it needs a model.

#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "env/error.h"
#include "policies/local/train/batch.h"
#include "policies/local/train/options.h"
#include "tests/catch.h"

namespace kevin::local {
namespace {

TEST_CASE("schedules: warm-up to the rate, then constant, cosine or linear") {
  ScheduleOptions options{2e-6, Decay::kConstant, 0.03, 0};
  CHECK(LearningRate(options, 0, 80) == Approx(2e-6 / 3));  // ceil(0.03 * 80) = 3 updates warm up
  CHECK(LearningRate(options, 2, 80) == Approx(2e-6));
  CHECK(LearningRate(options, 79, 80) == Approx(2e-6));
  options = {1.0, Decay::kCosine, 0.1, 0.2};
  CHECK(LearningRate(options, 9, 100) == Approx(1));
  CHECK(LearningRate(options, 10, 100) == Approx(1));
  CHECK(LearningRate(options, 55, 100) == Approx(0.6));  // half way
  CHECK(LearningRate(options, 32, 100) == Approx(0.2 + 0.4 * (1 + std::cos(M_PI * 22 / 90))));
  CHECK(LearningRate(options, 100, 100) == Approx(0.2));
  options.decay = Decay::kLinear;
  CHECK(LearningRate(options, 55, 100) == Approx(0.6));
  CHECK(LearningRate(options, 32, 100) == Approx(0.2 + 0.8 * (1 - 22 / 90.0)));
  options = {1.0, Decay::kCosine, 0, 0};
  CHECK(LearningRate(options, 0, 1) == Approx(1));
}

TEST_CASE("packing: the longest first into the first group with room") {
  const std::vector<int64_t> lengths = {3, 9, 4, 12, 5, 1, 3};
  CHECK(Pack(lengths, 10) ==
        std::vector<std::vector<size_t>>{{3}, {1, 5}, {4, 2}, {0, 6}});  // 12 is over the budget and alone
  CHECK(Pack(lengths, 100) == std::vector<std::vector<size_t>>{{3, 1, 4, 2, 0, 6, 5}});
  CHECK(Pack({}, 10).empty());
}

TEST_CASE("packing: each sample once, no group over the budget, few groups") {
  std::vector<int64_t> lengths;
  for (int64_t i = 0; i < 500; ++i) lengths.push_back(1 + (i * i * 7919) % 997);
  const auto groups = Pack(lengths, 1000);
  std::vector<int> seen(lengths.size());
  for (const auto& group : groups) {
    int64_t sum = 0;
    for (const size_t i : group) sum += lengths[i], seen[i]++;
    CHECK(sum <= 1000);
  }
  CHECK(seen == std::vector<int>(lengths.size(), 1));
  const int64_t all = std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  CHECK(static_cast<double>(groups.size()) < 1.08 * static_cast<double>(all) / 1000 + 1);
}

TEST_CASE("a shuffle is a permutation that its seed and draw fix") {
  std::vector<size_t> order = Shuffled(100, 7, 3);
  CHECK(order == Shuffled(100, 7, 3));
  CHECK(order != Shuffled(100, 7, 4));
  CHECK(order != Shuffled(100, 8, 3));
  CHECK(!std::is_sorted(order.begin(), order.end()));
  std::sort(order.begin(), order.end());
  for (size_t i = 0; i < 100; ++i) CHECK(order[i] == i);
}

TEST_CASE("shares cover everything once") {
  CHECK((ShareOf(10, 3, 0).last == 3 && ShareOf(10, 3, 1).first == 3 && ShareOf(10, 3, 2).last == 10));
  CHECK((ShareOf(1, 2, 0).last == 0 && ShareOf(1, 2, 1).last == 1));
}

TEST_CASE("options go to JSON and back, and a wrong word is named") {
  TrainOptions options;
  options.model = "m", options.loss.surrogate = Surrogate::kCispo, options.loss.kl = KlEstimator::kK3;
  options.schedule.decay = Decay::kCosine, options.adam.max_grad_norm = 0.5, options.lora.rank = 8;
  options.seed = 0xF000'0000'0000'0001u;
  nlohmann::json json = ToJson(options);
  CHECK(ToJson(TrainOptionsFromJson(json)) == json);
  CHECK(json.at("surrogate") == "cispo");
  CHECK(json.at("seed") == 0xF000'0000'0000'0001u);
  json["kl"] = "k9";
  CHECK_THROWS_WITH(TrainOptionsFromJson(json), Catch::Contains("kl") && Catch::Contains("k9"));
  CHECK_THROWS_WITH(TrainOptionsFromJson({{"speed", 1}}), Catch::Contains("speed"));
  CHECK_THROWS_AS(TrainOptionsFromJson({{"steps", "many"}}), Error);
}

}  // namespace
}  // namespace kevin::local
