// Which rank uses which GPU.

#include "agent/train/placement.h"

#include <cstdlib>

#include "env/error.h"
#include "tests/catch.h"

namespace kevin {
namespace {

using Names = std::vector<std::string>;

PlaceRequest On(int gpus, const std::string& place = "") {
  PlaceRequest request;
  request.gpus = gpus, request.place = place;
  return request;
}

LocalRank Of(int local, int local_ranks) { return {local, local_ranks, local, local_ranks}; }

std::string WhyNot(const PlaceRequest& request, const LocalRank& rank) {
  try {
    PlaceRank(request, rank);
  } catch (const Error& error) {
    CHECK(error.code() == ExitCode::kBadRequest);
    return error.what();
  }
  return "";
}

}  // namespace

TEST_CASE("each rank trains, samples and judges on a GPU of its own") {
  for (int local = 0; local < 4; ++local) {
    const Placement placement = PlaceRank(On(4), Of(local, 4));
    CHECK(placement.trainer == "cuda:" + std::to_string(local));
    CHECK(placement.sampler.empty());
    CHECK(placement.judges == Names{placement.trainer});
  }
  // One rank: as before.
  CHECK(PlaceRank(On(4), {}).trainer == "cuda:0");
  CHECK(PlaceRank(On(4), {}).judges.empty());
  CHECK(PlaceRank(On(0), Of(1, 2)).trainer == "cpu");
  CHECK(PlaceRank(On(0), Of(1, 2)).judges.empty());
  // Slurm often shows each task its own GPU only.
  CHECK(PlaceRank(On(1), Of(3, 4)).trainer == "cuda:0");
}

TEST_CASE("roles are laid over GPUs as asked") {
  const std::string place = "trainer=0-3,sampler=4-6,judge=7";
  const Names samplers = {"cuda:4", "cuda:5", "cuda:6", "cuda:4"};
  for (int local = 0; local < 4; ++local) {
    const Placement placement = PlaceRank(On(8, place), Of(local, 4));
    CHECK(placement.trainer == "cuda:" + std::to_string(local));
    CHECK(placement.sampler == samplers[static_cast<size_t>(local)]);
    CHECK(placement.samplers == (local % 3 == 0 ? 2 : 1));  // cuda:4 has those of ranks 0 and 3
    CHECK(placement.judges == Names{"cuda:7"});
  }
  CHECK(PlaceRank(On(8, "trainer=0-3,sampler=4,4"), Of(1, 4)).samplers == 4);
  CHECK(PlaceRank(On(8, "trainer=0,2,judge=4-7"), Of(1, 2)).judges == Names{"cuda:5", "cuda:7"});
  CHECK(PlaceRank(On(8, "trainer=0,2,judge=4-7"), Of(1, 2)).trainer == "cuda:2");
  const Placement one = PlaceRank(On(2, "judge=1"), {});
  CHECK((one.trainer == "cuda:0" && one.sampler.empty() && one.judges == Names{"cuda:1"}));
  CHECK(PlacementText(PlaceRank(On(8, place), Of(1, 4)), true) ==
        "trains on cuda:1, samples from a second copy on cuda:5, judges on cuda:7");
  PlaceRequest all = On(4);
  all.judges = {"all"};
  CHECK(PlaceRank(all, Of(1, 2)).judges == Names{"cuda:1", "cuda:3"});
}

TEST_CASE("second copies are counted on the GPUs that have them") {
  // Rank 0 samples where it trains, from the weights in training; rank 1 has a copy there.
  const Placement first = PlaceRank(On(2, "sampler=0"), Of(0, 2)),
                  second = PlaceRank(On(2, "sampler=0"), Of(1, 2));
  CHECK((first.sampler.empty() && first.samplers_here == 1 && !first.trains_there));
  CHECK((second.sampler == "cuda:0" && second.samplers == 1 && second.samplers_here == 0 &&
         second.trains_there));
  const Placement apart = PlaceRank(On(8, "trainer=0-3,sampler=4-6"), Of(3, 4));
  CHECK((apart.samplers == 2 && apart.samplers_here == 0 && !apart.trains_there));
  // Trainer and copy of one rank on one device.
  PlaceRequest same = On(1);
  same.sampler_device = "cuda:0";
  const Placement both = PlaceRank(same, {});
  CHECK((both.sampler == "cuda:0" && both.samplers == 1 && both.samplers_here == 1 && both.trains_there));
  same.sampler_device = "cpu", same.device = "cpu";
  CHECK(PlaceRank(same, Of(1, 3)).samplers_here == 3);
  same.device = "cuda";
  CHECK((PlaceRank(same, Of(0, 3)).samplers == 3 && PlaceRank(same, Of(0, 3)).samplers_here == 0));
}

TEST_CASE("a placement that cannot be is named") {
  CHECK(WhyNot(On(4, "trainer=0-3"), Of(0, 2)).find("4 GPUs are to train, and 2 ranks") != std::string::npos);
  CHECK(WhyNot(On(4, "trainer=0-1,judge=4"), Of(0, 2)).find("there is no GPU 4") != std::string::npos);
  CHECK(WhyNot(On(4, "teacher=0"), {}).find("`teacher`") != std::string::npos);
  CHECK(WhyNot(On(4, "0-3"), {}).find("without a role") != std::string::npos);
  CHECK(WhyNot(On(4, "trainer=3-1"), {}).find("`3-1`") != std::string::npos);
  CHECK(WhyNot(On(2), Of(2, 4)).find("4 ranks run on this machine, which has 2 GPUs") != std::string::npos);
  PlaceRequest request = On(4);
  request.device = "cuda:0";
  CHECK(WhyNot(request, Of(1, 2)).find("2 ranks on one GPU") != std::string::npos);
  request = On(4);
  request.sampler_device = "cuda:1";
  CHECK(WhyNot(request, Of(1, 2)).find("samplers of 2 ranks on one GPU") != std::string::npos);
  CHECK(PlaceRank(request, {}).sampler == "cuda:1");
  request.place = "judge=1";
  CHECK(WhyNot(request, {}).find("takes the place of") != std::string::npos);
}

TEST_CASE("the local rank is read from torchrun's variables or Slurm's") {
  const auto clear = [] {
    for (const char* name : {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "SLURM_PROCID",
                             "SLURM_NTASKS", "SLURM_LOCALID", "SLURM_NTASKS_PER_NODE", "SLURM_TASKS_PER_NODE",
                             "SLURM_STEP_TASKS_PER_NODE", "SLURM_NODEID"})
      unsetenv(name);
  };
  clear();
  CHECK(LocalRankFromEnvironment().local_ranks == 1);
  setenv("WORLD_SIZE", "8", 1), setenv("RANK", "5", 1), setenv("LOCAL_RANK", "1", 1),
      setenv("LOCAL_WORLD_SIZE", "4", 1);
  LocalRank rank = LocalRankFromEnvironment();
  CHECK((rank.rank == 5 && rank.ranks == 8 && rank.local == 1 && rank.local_ranks == 4));
  clear();
  setenv("SLURM_NTASKS", "8", 1), setenv("SLURM_PROCID", "6", 1), setenv("SLURM_LOCALID", "2", 1);
  setenv("SLURM_NTASKS_PER_NODE", "4", 1);
  rank = LocalRankFromEnvironment();
  CHECK((rank.rank == 6 && rank.ranks == 8 && rank.local == 2 && rank.local_ranks == 4));
  unsetenv("SLURM_NTASKS_PER_NODE");
  for (const auto& [list, node, tasks] : {std::tuple("4(x2)", "1", 4),
                                          {"3(x2),5", "2", 5},
                                          {"5,3", "1", 3},
                                          {"nonsense", "0", 8},
                                          {"4", "7", 8}}) {
    INFO(list);
    setenv("SLURM_STEP_TASKS_PER_NODE", list, 1), setenv("SLURM_NODEID", node, 1);
    CHECK(LocalRankFromEnvironment().local_ranks == tasks);
  }
  unsetenv("SLURM_PROCID");
  CHECK(LocalRankFromEnvironment().ranks == 1);
  clear();
}

}  // namespace kevin
