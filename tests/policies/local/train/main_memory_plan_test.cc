// What a memory plan counts in main memory, beside a GPU or for ranks that train on CPUs.

#include "policies/local/train/train_plan.h"
#include "tests/catch.h"
#include "tests/policies/local/train/published_shapes.h"

namespace kevin::local {

TEST_CASE("an optimiser in main memory is counted there, for all ranks of the machine") {
  TrainOptions options;
  options.adam.on_cpu = true;
  TrainPlanRequest request = Ranks(1);
  const TrainPlan plan = PlanTraining(kSeven, options, request);
  CHECK(plan.optimizer == 12 * plan.parameters);
  CHECK(plan.gradients == 2 * plan.parameters);
  CHECK(plan.main_memory == 16 * plan.parameters);  // the summed gradients, too
  CHECK(plan.learning == plan.weights + plan.transient);
  CHECK(plan.fits);  // main memory is unknown
  CHECK(plan.text.find(", optimiser in main memory, ") != std::string::npos);
  CHECK(plan.text.ends_with("; in main memory: optimiser 91.4, summed gradients 30.5: 121.8 GB"));
  request.main_bytes = 140'000'000'000;
  CHECK(PlanTraining(kSeven, options, request).fits);
  request.main_bytes = 100'000'000'000;
  const TrainPlan refused = PlanTraining(kSeven, options, request);
  CHECK_FALSE((refused.fits || refused.fits_here || refused.may_be_tried));
  CHECK(refused.text.ends_with(": 121.8 GB; 100.0 GB are available: it does not fit"));
  CHECK(refused.misfit == "121.8 GB in main memory, and of 100.0 GB available 91.9 may be used");
  CHECK(refused.next == "try --lora 32, or more machines, or one with more memory");
  SECTION("each rank has its part of the optimiser, and all summed gradients") {
    request.ranks = request.ranks_here = 4, request.main_bytes = 220'000'000'000;
    const TrainPlan four = PlanTraining(kSeven, options, request);
    const int64_t bucket = 4ll * 3584 * 152064;  // of new weights, on their way to all ranks
    CHECK(four.main_memory == 3 * four.parameters + 4 * four.parameters + bucket);
    CHECK(four.main_needed == 4 * four.main_memory);
    CHECK((!four.fits && four.next.starts_with("try --shard, or --lora 32")));
    request.ranks_here = 2;  // on two machines
    CHECK(PlanTraining(kSeven, options, request).fits);
    options.shard = true, request.ranks_here = 4;
    const TrainPlan sharded = PlanTraining(kSeven, options, request);
    const int64_t ends = 2ll * 152064 * 3584 + 3584, layers = sharded.parameters - ends;
    CHECK(sharded.main_memory == 3 * sharded.parameters + 4 * ends + layers + 2 * ends);
    CHECK(sharded.fits);
  }
  SECTION("a sampler in main memory takes its part") {
    request.main_bytes = 140'000'000'000, request.copies.device = "cpu", request.copies.there = 1;
    request.copies.context_tokens = 32768, request.copies.there_bytes = request.main_bytes;
    const TrainPlan sampled = PlanTraining(kSeven, options, request);
    CHECK(sampled.main_needed == sampled.main_memory + sampled.there);
    CHECK_FALSE(sampled.fits);
    CHECK(sampled.next.find("no second copy in main memory") != std::string::npos);
  }
  SECTION("it is not advised where main memory is too small, and advised against where the GPU has room") {
    request.main_bytes = 20'000'000'000;
    CHECK(PlanTraining(kSmall, options, request).next.starts_with("try the optimiser on the GPU"));
    options.adam.on_cpu = false, request.main_bytes = 140'000'000'000;
    CHECK(PlanTraining(kSeven, options, request).next.find("--optimizer-on-cpu") != std::string::npos);
    request.main_bytes = 100'000'000'000;
    CHECK(PlanTraining(kSeven, options, request).next.find("--optimizer-on-cpu") == std::string::npos);
  }
}

constexpr int64_t kReserved = int64_t{2} << 30;  // for others; once on a machine

TEST_CASE("where the CPU trains, its memory has all, and the ranks of a machine share it") {
  TrainOptions options;
  TrainPlanRequest request = Ranks(2);
  request.ranks_here = 2, request.copies.here = 2, request.copies.context_tokens = 1024;
  ShareMainMemory(&request);
  CHECK((request.device_bytes == (kGpu - kReserved) / 2 + kReserved && request.copies.here == 1));
  const TrainPlan plan = PlanTraining(kSmall, options, request);
  options.adam.on_cpu = true;
  const TrainPlan moved = PlanTraining(kSmall, options, request);
  CHECK((moved.learning == plan.learning && moved.sampling == plan.sampling));
  CHECK((moved.main_memory == 0 && moved.text == plan.text));
  options.adam.on_cpu = false;
  CHECK(PlanTraining(kSeven, options, request).next.find("--optimizer-on-cpu") == std::string::npos);
}

TEST_CASE("with --from-base the base is in main memory, for all ranks of the machine") {
  TrainOptions options;
  options.from_base = true;
  TrainPlanRequest request = Ranks(2);
  request.ranks_here = 2, request.main_bytes = 120'000'000'000;
  const TrainPlan plan = PlanTraining(kSeven, options, request);
  CHECK((plan.base == 6 * plan.parameters && plan.main_memory == plan.base));
  CHECK(plan.main_needed == 2 * plan.base);
  CHECK(plan.learning == PlanTraining(kSeven, {}, Ranks(2)).learning);
  CHECK(plan.text.ends_with(
      "; in main memory: the base with its optimiser 45.7: 45.7 GB, 91.4 of the 2 ranks here; "
      "120.0 GB are available: it fits"));
  request.main_bytes = 90'000'000'000;
  const TrainPlan refused = PlanTraining(kSeven, options, request);
  CHECK_FALSE((refused.fits || refused.fits_here || refused.may_be_tried));
  CHECK(refused.next.find("without --from-base") != std::string::npos);
  CHECK(refused.next.find("--optimizer-on-cpu") == std::string::npos);
  SECTION("where the CPU trains, with the rest") {
    request.device_bytes = 2 * kGpu;
    ShareMainMemory(&request);
    const TrainPlan here = PlanTraining(kSmall, options, request);
    CHECK(here.main_needed == 0);
    CHECK(here.learning == PlanTraining(kSmall, {}, request).learning + 6 * here.parameters);
  }
}

TEST_CASE("one rank has sharded weights whole in main memory while it saves them") {
  TrainOptions options;
  options.shard = true;
  TrainPlanRequest request = Ranks(8);
  request.ranks_here = 8, request.main_bytes = 100'000'000'000;
  const TrainPlan plan = PlanTraining(kThirtyTwo, options, request);
  CHECK((plan.fits && plan.main_memory == 0 && plan.main_needed == 2 * plan.parameters));
  CHECK(plan.text.ends_with(
      "; 65.5 GB of main memory while the model is saved; 100.0 GB are available: it fits"));
  request.main_bytes = 60'000'000'000;
  CHECK_FALSE(PlanTraining(kThirtyTwo, options, request).fits);
  request.main_bytes = 100'000'000'000, request.context_tokens = 4096;
  CHECK(PlanTraining(kThirtyTwo, options, request).main_needed == 0);  // they are whole on the GPUs
  options.split_sampler = true;
  CHECK(PlanTraining(kThirtyTwo, options, request).main_needed == 2 * plan.parameters);
}

}  // namespace kevin::local
