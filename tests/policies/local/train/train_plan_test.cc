// The memory plan of training against sums by hand, for published shapes on GPUs of 141 GB.

#include "policies/local/train/train_plan.h"

#include "policies/local/train/sampling_options.h"
#include "tests/catch.h"
#include "tests/policies/local/train/published_shapes.h"

namespace kevin::local {
TEST_CASE("full weights of 7B fit two GPUs and not one, by the plan") {
  const TrainOptions options;
  const TrainPlan one = PlanTraining(kSeven, options, Ranks(1)),
                  two = PlanTraining(kSeven, options, Ranks(2));
  CHECK((one.parameters == 7615616512 && one.trained == one.parameters));
  CHECK((one.weights == 2 * one.parameters && one.gradients == 6 * one.parameters));
  CHECK((one.optimizer == 12 * one.parameters && two.optimizer == 6 * one.parameters));
  CHECK_FALSE(one.fits);
  CHECK(one.text.find("it does not fit") != std::string::npos);
  CHECK(one.next.find("--optimizer-on-cpu") != std::string::npos);
  CHECK(one.next.find("--lora 32") != std::string::npos);
  CHECK((two.fits && two.recompute));  // 16k tokens of all layers would take 60 GB more
  CHECK(two.text.find("recomputed") != std::string::npos);
}

TEST_CASE("a small model recomputes nothing, longer passes do") {
  TrainOptions options;
  const TrainPlan usual = PlanTraining(kSmall, options, Ranks(1));
  CHECK((!usual.recompute && usual.fits));
  options.micro_tokens = 65536;
  const TrainPlan chosen = PlanTraining(kSmall, options, Ranks(1));
  CHECK((chosen.recompute && chosen.fits));
  CHECK(chosen.activations == chosen.recomputed);
  options.choose_recompute = false;
  const TrainPlan refused = PlanTraining(kSmall, options, Ranks(1));
  CHECK_FALSE((refused.recompute || refused.fits));
  CHECK(refused.next.find("--recompute") != std::string::npos);
  CHECK(refused.next.find("--micro-tokens") != std::string::npos);
}

TEST_CASE("a sample or pair that is longer than a forward pass decides the activations") {
  TrainOptions options;
  const TrainPlan plain = PlanTraining(kSmall, options, Ranks(1));
  CHECK(plain.text.find("(16384 tokens by --micro-tokens)") != std::string::npos);
  options.data.longest_tokens = 16000;
  CHECK(PlanTraining(kSmall, options, Ranks(1)).learning == plain.learning);
  options.data.longest_tokens = 65536;
  const TrainPlan longer = PlanTraining(kSmall, options, Ranks(1));
  CHECK((longer.recompute && longer.fits));
  CHECK(longer.text.find("(65536 tokens by the longest sample, recomputed)") != std::string::npos);
  CHECK(longer.recomputed == 4 * plain.recomputed);
  CHECK(longer.activations == longer.recomputed);
  options.choose_recompute = false;
  const std::string next = PlanTraining(kSmall, options, Ranks(1)).next;
  CHECK(next.starts_with("try --max-sample-tokens "));  // fewer --micro-tokens would change nothing
  CHECK(next.find("--micro-tokens") == std::string::npos);
  options.loss.surrogate = Surrogate::kPreference;
  CHECK(PlanTraining(kSmall, options, Ranks(1)).text.find("(65536 tokens by the longest pair)") !=
        std::string::npos);
  options.micro_tokens = 65536;
  CHECK(PlanTraining(kSmall, options, Ranks(1)).next.find(" with --max-sample-tokens ") != std::string::npos);
}

TEST_CASE("logits count where they take more than a layer's backward pass, which comes after them") {
  TrainOptions options;
  options.shard = true;
  const auto plan = [&](int64_t logits_tokens) {
    options.logits_tokens = logits_tokens;
    return PlanTraining(kSmall, options, Ranks(2));
  };
  const TrainPlan few = plan(64), usual = plan(1024), many = plan(8192);
  CHECK(usual.logits == 16 * few.logits);
  CHECK(usual.learning == few.learning);
  CHECK(many.learning > usual.learning);
  CHECK(many.learning - usual.learning < many.logits);
  CHECK(many.activations == usual.activations);
  // Measured on two H200 (7B and 1.5B, 16384 packed tokens each): 73.8 and 17.1 GB taken from the device.
  options.logits_tokens = TrainOptions().logits_tokens;
  const auto gb = [&](const ModelConfig& model) {
    return static_cast<double>(PlanTraining(model, options, Ranks(2)).learning) / 1e9;
  };
  CHECK_THAT(gb(kSmall), Catch::Matchers::WithinRel(17.1, 0.1));
  CHECK_THAT(gb(kSeven), Catch::Matchers::WithinRel(73.8, 0.1));
}

TEST_CASE("a judge on the same GPU has its memory while the model is sampled, not while it learns") {
  TrainPlanRequest request = Ranks(1, 32768);
  const TrainPlan alone = PlanTraining(kSmall, {}, request);
  request.judge_bytes = 89'000'000'000;
  const TrainPlan judged = PlanTraining(kSmall, {}, request);
  CHECK(judged.sampling == alone.sampling + request.judge_bytes);
  CHECK((judged.learning == alone.learning && judged.fits));
  CHECK(judged.text.find("and the judge (89.0)") != std::string::npos);
  request.judge_bytes = 120'000'000'000;
  const TrainPlan too_large = PlanTraining(kSmall, {}, request);
  CHECK(!too_large.fits);
  CHECK(too_large.next.find("--size small") != std::string::npos);
}

TEST_CASE("a judge on the GPU that trains is counted where the model is sampled elsewhere") {
  TrainPlanRequest request = Ranks(1);
  const TrainPlan alone = PlanTraining(kSmall, {}, request);
  CHECK((alone.sampling == 0 && alone.fits));
  request.judge_bytes = 89'000'000'000;
  const TrainPlan judged = PlanTraining(kSmall, {}, request);
  CHECK(judged.sampling == alone.weights + alone.gradients + alone.optimizer + request.judge_bytes);
  CHECK((judged.learning == alone.learning && judged.fits));
  CHECK(judged.text.find(" and the judge (89.0) while judging") != std::string::npos);
  request.judge_bytes = 120'000'000'000;
  const TrainPlan too_large = PlanTraining(kSmall, {}, request);
  CHECK_FALSE((too_large.fits || too_large.may_be_tried));
  CHECK(too_large.misfit.find(" GB while judging, and of 141.0 GB available") != std::string::npos);
  CHECK((too_large.next.find("a GPU of its own for judging (--place)") != std::string::npos &&
         too_large.next.find("--context") == std::string::npos));
  TrainOptions options;
  options.shard = true, request.ranks = 2, request.judge_bytes = 89'000'000'000;
  const TrainPlan sharded = PlanTraining(kSmall, options, request);
  const int64_t ends = 151936ll * 1536 + 1536;
  CHECK(sharded.sampling == 6 * ends + sharded.optimizer + request.judge_bytes);
  request.copies.there = 1;  // for which the layers are gathered
  CHECK(PlanTraining(kSmall, options, request).sampling == sharded.sampling + 2 * (alone.parameters - ends));
}

TEST_CASE("where turns are made ahead, the judge has its memory while the model learns, too") {
  TrainPlanRequest request = Ranks(1, 32768);
  request.judge_bytes = 70'000'000'000;
  const TrainPlan between = PlanTraining(kSmall, {}, request);
  request.judges_meanwhile = true;
  const TrainPlan ahead = PlanTraining(kSmall, {}, request);
  CHECK_FALSE(between.recompute);
  CHECK((ahead.recompute && ahead.fits));  // both would not fit with activations kept
  CHECK(ahead.sampling == between.sampling);
  CHECK(ahead.learning - ahead.transient == between.learning - between.transient + request.judge_bytes);
  CHECK(ahead.text.find(" and the judge (70.0) while learning") != std::string::npos);
  request.judge_bytes = 105'000'000'000;
  const TrainPlan too_large = PlanTraining(kSmall, {}, request);
  CHECK_FALSE(too_large.fits);
  CHECK(too_large.next.find("--staleness 0") != std::string::npos);
}

TEST_CASE("a second copy of the weights is counted on the device that has it") {
  const int64_t token = 2ll * 28 * 4 * 128 * 2;  // keys and values of 7B
  TrainPlanRequest request = Ranks(4);
  const TrainPlan none = PlanTraining(kSeven, {}, request);
  request.copies.context_tokens = 32768;
  SECTION("where the model trains, also while it learns") {
    request.copies.here = 1, request.judge_bytes = 3'000'000'000;
    const TrainPlan plan = PlanTraining(kSeven, {}, request);
    CHECK(plan.copy_cache == 32768 * token);
    const int64_t copy = 2 * plan.parameters + 32768 * token;
    CHECK(plan.learning == none.learning + copy);
    CHECK(plan.sampling == none.weights + none.gradients + none.optimizer + copy + request.judge_bytes);
    CHECK(plan.tokens_that_fit < none.tokens_that_fit);
    CHECK(plan.text.find("a second copy of the weights 15.2 with keys and values of 32768 tokens (1.9)") !=
          std::string::npos);
    CHECK((plan.fits && plan.recompute));
    // What learning takes besides what is there already: activations, and autograd's gradients.
    CHECK(plan.transient == plan.activations + 2 * plan.parameters);
    request.copies.here = 3;
    const TrainPlan three = PlanTraining(kSeven, {}, request);
    CHECK(three.learning == none.learning + 3 * copy);
    CHECK_FALSE((three.fits || three.fits_here));
    CHECK(three.next.find("no second copy on the device that trains") != std::string::npos);
  }
  SECTION("on another device") {
    request.copies.device = "cuda:4", request.copies.there = 2, request.copies.there_bytes = kGpu;
    request.copies.cache_tokens = 100000, request.copies.judge_bytes = 3'000'000'000;
    const TrainPlan plan = PlanTraining(kSeven, {}, request);
    CHECK(plan.learning == none.learning);
    CHECK(plan.there == 2 * (2 * plan.parameters + 100000 * token) + 3'000'000'000);
    CHECK(plan.fits);
    CHECK(plan.text.find(
              "it fits; on cuda:4: 2 second copies of the weights, each 15.2 with keys and values of 100000 "
              "tokens (5.7) and the judge (3.0): 44.9 GB; 141.0 GB are available: it fits") !=
          std::string::npos);
    request.copies.there_bytes = 40'000'000'000;
    const TrainPlan too_large = PlanTraining(kSeven, {}, request);
    CHECK((too_large.fits_here && !too_large.fits));
    CHECK(too_large.text.ends_with("40.0 GB are available: it does not fit"));
    CHECK(too_large.next.find("fewer --sampler-tokens") != std::string::npos);
    CHECK(too_large.next.find("more GPUs for samplers") != std::string::npos);
  }
  SECTION("with adapters, on frozen weights of 4 bits") {
    TrainOptions options;
    options.lora.rank = 32, options.quantization = "nf4";
    request.copies.here = 1;
    const TrainPlan plan = PlanTraining(kSeven, options, request);
    request.copies.here = 0;
    CHECK(plan.learning - PlanTraining(kSeven, options, request).learning == plan.weights + 32768 * token);
    CHECK(plan.weights < 7'000'000'000);
    CHECK(plan.text.find("a second copy of the weights and adapters") != std::string::npos);
  }
}

TEST_CASE("adapters of 32B in bfloat16 train and sample on one GPU: their weights are there once") {
  TrainOptions options;
  options.lora.rank = 32;
  const TrainPlan plan = PlanTraining(kThirtyTwo, options, Ranks(1, 32768));
  CHECK(plan.parameters == 32763876352);
  // 64 layers of 32 * (in + out) over q, k, v, o, gate, up and down.
  CHECK(plan.trained == 64ll * 32 * (10240 + 6144 + 6144 + 10240 + 3 * 32768));
  CHECK((plan.weights == 2 * plan.parameters + 4 * plan.trained && plan.optimizer == 12 * plan.trained));
  CHECK(plan.cache == 32768ll * 2 * 64 * 8 * 128 * 2);
  CHECK(plan.fits);
  options.quantization = "nf4";
  CHECK(PlanTraining(kThirtyTwo, options, Ranks(1)).weights < 22000000000);
  options.quantization = "none", options.lora.targets = "q_proj,v_proj";
  CHECK(PlanTraining(kThirtyTwo, options, Ranks(1)).trained == 64ll * 32 * (10240 + 6144));
}

TEST_CASE("adapters of a mixture: one pair for each expert") {
  ModelConfig config = Published(2048, 48, 32, 4, 6144, 151936, false);
  config.family = ModelFamily::kQwen3Moe, config.qkv_bias = false;
  config.experts = 128, config.experts_per_token = 8, config.expert_ffn = 768;
  config.is_sparse.assign(48, true);
  TrainOptions options;
  options.lora.rank = 8;
  const int64_t attention = (2048 + 4096) + 2 * (2048 + 512) + (4096 + 2048),
                experts = 128 * 3 * (2048 + 768);
  CHECK(PlanTraining(config, options, Ranks(1)).trained == 48ll * 8 * (attention + experts));
  options.lora.targets = "q_proj,k_proj,v_proj,o_proj";
  CHECK(PlanTraining(config, options, Ranks(1)).trained == 48ll * 8 * attention);
}

TEST_CASE("sharded, 14B fits four GPUs and 32B eight") {
  TrainOptions options;
  options.shard = true;
  const ModelConfig fourteen = Published(5120, 48, 40, 8, 13824, 152064, false);
  CHECK(PlanTraining(fourteen, options, Ranks(4)).fits);
  CHECK_FALSE(PlanTraining(fourteen, options, Ranks(1)).fits);
  const TrainPlan eight = PlanTraining(kThirtyTwo, options, Ranks(8)),
                  four = PlanTraining(kThirtyTwo, options, Ranks(4));
  WARN(eight.text);
  CHECK((eight.fits && eight.recompute));
  CHECK_FALSE(four.fits);
  // Embedding and head whole, two layers, and 12 bytes a number of the layers over eight ranks.
  const int64_t ends = 2ll * 152064 * 5120 + 5120, layers = eight.parameters - ends, layer = layers / 64;
  CHECK(eight.weights == 2 * (ends + 2 * layer));
  CHECK(eight.optimizer == 12 * eight.parameters / 8);
  // One layer's gradients, and one's on the way: whole in float32, with an eighth that comes back.
  CHECK(eight.gradients == 6 * ends + 6 * layer + 4 * layer / 8 + 4 * layers / 8);
  CHECK(eight.whole_weights == 2 * eight.parameters);
  // Not sampled, it is whole while it is loaded and shared out alone.
  CHECK((eight.sampling == 0 && eight.loading == eight.whole_weights + 2 * layer));
  const TrainPlan sampled = PlanTraining(kThirtyTwo, options, Ranks(8, 1024));
  CHECK(sampled.sampling == eight.whole_weights + eight.optimizer + 4 * ends + sampled.cache);
  options.shard = false;
  CHECK_FALSE(PlanTraining(kThirtyTwo, options, Ranks(8)).fits);
  CHECK(PlanTraining(kThirtyTwo, options, Ranks(8)).next.find("--shard") != std::string::npos);
}

TEST_CASE("where whole weights and cache do not fit one GPU, the sampler is split over the ranks") {
  TrainOptions options;
  options.shard = true;
  TrainPlanRequest eight = Ranks(8, 32768);
  CHECK_FALSE(PlanTraining(kThirtyTwo, options, eight).split);  // beside a judge elsewhere
  eight.judge_bytes = 20'000'000'000;
  const TrainPlan plan = PlanTraining(kThirtyTwo, options, eight);
  WARN(plan.text);
  CHECK(plan.sampling > kGpu);
  CHECK((plan.split && plan.fits));
  const int64_t ends = 2ll * 152064 * 5120 + 5120, layers = plan.parameters - ends, norms = 64ll * 2 * 5120;
  CHECK(plan.slice == 2 * ((layers - norms) / 8 + norms));
  CHECK(plan.split_sampling ==
        2 * ends + plan.slice + plan.optimizer + 4 * ends + plan.cache / 8 + eight.judge_bytes);
  CHECK(plan.loading == 2 * plan.parameters + 2 * (layers / 64));
  CHECK(plan.text.find("with the sampler split over the ranks (a slice of ") != std::string::npos);
  CHECK(plan.text.find("as it is sampled here") != std::string::npos);
  TrainPlanRequest larger = eight;
  larger.judge_bytes = 80'000'000'000;
  CHECK_FALSE(PlanTraining(kThirtyTwo, options, larger).fits);
  CHECK_FALSE(PlanTraining(kThirtyTwo, options, larger).split);
  // Not where it fits anyway, is not asked for, is not sampled, or cannot be.
  const TrainPlan seven = PlanTraining(kSeven, options, Ranks(2, 32768));
  CHECK((!seven.split && seven.fits && seven.split_sampling > 0));
  CHECK(seven.text.find("split over the ranks") != std::string::npos);
  CHECK(seven.text.find("as it is sampled here") == std::string::npos);
  options.choose_split_sampler = false;
  CHECK_FALSE(PlanTraining(kThirtyTwo, options, eight).split);
  CHECK_FALSE(PlanTraining(kThirtyTwo, options, eight).fits);
  options.split_sampler = true;
  CHECK(PlanTraining(kSeven, options, Ranks(2, 32768)).split);
  options.split_sampler = false, options.choose_split_sampler = true;
  CHECK_FALSE(PlanTraining(kThirtyTwo, options, Ranks(8)).split);
  eight.ranks = 5;
  const TrainPlan five = PlanTraining(kThirtyTwo, options, eight);
  CHECK((!five.split && five.split_sampling == 0 && five.slice == 0));
  options.shard = false, eight.ranks = 8;
  CHECK(PlanTraining(kThirtyTwo, options, eight).split_sampling == 0);
}

TEST_CASE("why a sampler cannot be split") {
  CHECK(WhyNotSplit(kThirtyTwo, "none", 8).reason.empty());
  CHECK(WhyNotSplit(kThirtyTwo, "none", 1).reason.find("there is one") != std::string::npos);
  CHECK(WhyNotSplit(kThirtyTwo, "nf4", 4).reason.find("quantised") != std::string::npos);
  const CannotSplit why = WhyNotSplit(kSeven, "none", 3);
  CHECK(why.reason.find("heads of keys and values are 4, which 3 does not divide") != std::string::npos);
  CHECK(why.next == "start 2 or 4 ranks, or leave out --split-sampler");
}

TEST_CASE("memory that is not known is not judged") {
  TrainPlanRequest unknown = Ranks(1);
  unknown.device_bytes = 0;
  CHECK(PlanTraining(kThirtyTwo, {}, unknown).fits);
}

}  // namespace kevin::local
