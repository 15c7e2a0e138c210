#pragma once
// Which devices a rank of a training run uses: for the weights in training, for a second copy of them that is
// sampled, and for judging kernels. A plain function of the request, the rank and the number of GPUs.
//
// Without --place, each rank of a machine has the GPU of its local number (cuda:LOCAL_RANK): it trains there,
// samples from the same weights and judges there, one after the other. --place lays roles over GPUs:
//
//   trainer=0-3,sampler=4-6,judge=7     local rank r trains on the r-th GPU of `trainer`; samples from a second copy
//                                       on the GPU of `sampler` whose turn it is (r modulo their number); and judges
//                                       on its share of `judge`, or, where there are fewer judges than ranks, on the
//                                       one whose turn it is
//
// A role that --place does not name has its default.

#include <string>
#include <vector>

namespace kevin {

struct LocalRank {
  int rank = 0, ranks = 1;         // of the whole run
  int local = 0, local_ranks = 1;  // on this machine
};

// From the variables of torchrun or Slurm: RANK, WORLD_SIZE, LOCAL_RANK, LOCAL_WORLD_SIZE; SLURM_PROCID, SLURM_NTASKS,
// SLURM_LOCALID, SLURM_NTASKS_PER_NODE, or SLURM_STEP_TASKS_PER_NODE, SLURM_TASKS_PER_NODE and SLURM_NODEID. Values that
// are no numbers count as absent. Without a rank or their number there is one rank.
LocalRank LocalRankFromEnvironment();

struct PlaceRequest {
  std::string place;                // --place; empty: not given
  std::string device = "auto";      // of the trainer: auto, cpu, cuda, cuda:N
  std::string sampler_device;       // of a second copy: cpu, cuda:N; empty: none
  std::vector<std::string> judges;  // auto, cpu, cuda:N, all; empty: auto
  int gpus = 0;                     // that this process sees
};

struct Placement {
  std::string trainer;              // "cpu", "cuda:0"
  std::string sampler;              // empty: the weights in training are sampled
  int samplers = 1;                 // second copies on that device: this rank's and those of others
  bool trains_there = false;        // a rank trains on the device of this one's second copy
  int samplers_here = 0;            // second copies on the device that trains
  std::vector<std::string> judges;  // as in the request where the default is the environment's choice
};

// Throws Error(kBadRequest) for a request that cannot be carried out: an invalid --place, a GPU that is not there,
// several ranks on one GPU.
Placement PlaceRank(const PlaceRequest& request, const LocalRank& rank);

// "trains on cuda:0, samples from a second copy on cuda:4, judges on cuda:7"; a GPU with several second copies is named as such.
// Without `samples` the first part alone. `server`: what makes the turns in place of the trainer; empty: nothing does.
std::string PlacementText(const Placement& placement, bool samples, const std::string& server = "");

}  // namespace kevin
