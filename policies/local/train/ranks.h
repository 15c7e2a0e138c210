#pragma once
// The processes that train one model together. Each sees every batch and takes its share of the work. One
// process alone is a group of one, for which all this does nothing.

#include <ATen/core/Tensor.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>

#include "env/error.h"

namespace kevin::local {

class Ranks {
 public:
  virtual ~Ranks() = default;
  virtual int Rank() const = 0;
  virtual int Size() const = 0;
  // In place, over all ranks; contiguous, on any device. These wait for all ranks, and throw Error(kBroken)
  // when one is lost.
  virtual void Sum(at::Tensor* values) = 0;
  virtual void Largest(at::Tensor* values) = 0;
  // Each rank's `own`, one after another, into `all` (Size() times as long).
  virtual void Gather(const at::Tensor& own, at::Tensor* all) = 0;
  virtual void Wait() = 0;  // for all to get here
};

std::unique_ptr<Ranks> OneRank();

struct Meeting {
  int rank = 0, size = 1;
  std::string host = "127.0.0.1";
  int port = 0;
  bool holds_store = false;  // one of them does; usually rank 0
  std::string name;          // several meetings may use one store
};
// Gloo, over TCP. Throws Error(kBroken) when the others cannot be reached within `seconds`, or are lost
// later.
std::unique_ptr<Ranks> MeetOverGloo(const Meeting& meeting, double seconds);
// NCCL, by the plug-in beside this program, for ranks that each have a GPU of their own, which has been
// opened (model/cuda.h). Errors as above, and Error(kMachine) where there is no plug-in.
std::unique_ptr<Ranks> MeetOverNccl(const Meeting& meeting, double seconds, at::Device device);

// As torchrun sets them: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; Slurm's SLURM_PROCID and SLURM_NTASKS do
// for the first two. One rank where there are none. On GPUs they meet over NCCL; over Gloo, through main
// memory, where KEVIN_RANKS=gloo says so or there is no plug-in, of which `say` hears. Throws
// Error(kBadRequest) for variables that make no sense.
std::unique_ptr<Ranks> RanksFromEnvironment(double seconds, at::Device device,
                                            const std::function<void(const std::string&)>& say);

// What a rank says when another is gone, whatever they met over. No torch: the NCCL plug-in includes it too.

inline Error LostRank(int rank, const std::exception& error) {
  const std::string why = error.what();
  return Error(ExitCode::kBroken,
               "rank " + std::to_string(rank) + " lost another rank: " + why.substr(0, why.find('\n')),
               "start all ranks again with --resume");
}

}  // namespace kevin::local

// The entry point of the plug-in kevin-nccl.so, which is of the same build as the program that opens it. Opened once
// libtorch_cuda.so is (model/device.h).
extern "C" kevin::local::Ranks* KevinNcclRanks(const kevin::local::Meeting* meeting, double seconds,
                                               int device);
