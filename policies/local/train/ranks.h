#pragma once
// The processes that train one model together (data-parallel). Each sees every batch and computes its share.
// A single process is a group of one, for which all operations are trivial.

#include <ATen/core/Tensor.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "env/error.h"

namespace kevin::local {

class Ranks {
 public:
  virtual ~Ranks() = default;
  virtual int Rank() const = 0;
  virtual int Size() const = 0;
  // Reductions over all ranks, in place; contiguous tensors on any device. All operations wait for all ranks,
  // and throw Error(kBroken) when one is lost, with its number where it can be told (rank_watch.h).
  virtual void Sum(at::Tensor* values) = 0;
  virtual void Largest(at::Tensor* values) = 0;
  // Concatenates each rank's `own` into `all` (Size() times as long).
  virtual void Gather(const at::Tensor& own, at::Tensor* all) = 0;
  virtual void Wait() = 0;  // a barrier
  // Tells the others why this rank is about to end, so that they do not wait for it.
  virtual void Leave(const std::string& why) { (void)why; }

  // Gather, begun; the result waits for its end. `own` and `all` live until then.
  virtual std::function<void()> StartGather(const at::Tensor& own, at::Tensor all) {
    Gather(own, &all);
    return [] {};
  }
  // The sum of all ranks' `all`, of which `own` gets this rank's part (Size() parts), begun; the result waits for its end.
  // `all` and `own` live until then and are not touched meanwhile. May change `all`.
  virtual std::function<void()> StartSumShares(const at::Tensor& all, at::Tensor own) {
    at::Tensor sum = all;
    Sum(&sum);
    own.copy_(sum.narrow(0, Rank() * own.numel(), own.numel()));
    return [] {};
  }
};

// A short text of each rank (at most 4000 bytes), in the order of ranks; the same on all.
std::vector<std::string> ExchangeTexts(Ranks& ranks, const std::string& own);

// Runs `work`, which waits for no rank, on all of them. Where it throws on one, all throw an Error: that rank its own, the
// others one that names the rank. Another std::exception than Error becomes Error(kBroken).
void OnAllRanks(Ranks& ranks, const std::function<void()>& work);

std::unique_ptr<Ranks> OneRank();

// The place where the ranks of a group find each other.
struct Rendezvous {
  int rank = 0, size = 1;
  std::string host = "127.0.0.1";
  int port = 0;
  bool holds_store = false;        // true for exactly one rank, usually rank 0
  std::string name;                // of the group; several groups may use one store
  double join_seconds = 50;        // that ranks wait for each other at the start
  double lost_seconds = 40;        // without a sign of life, until a rank is lost; at least 3
  bool agent_holds_store = false;  // torchrun does, and no rank
  bool returns_early = false;      // NCCL: operations return when they are begun
  // A rank is lost, while this one may wait for it in an operation that does not end. Called once at most, by another
  // thread. Empty: operations alone tell.
  std::function<void(const Error&)> on_lost = {};
};
// Gloo, over TCP. Throws Error(kBroken) when others do not come, with their numbers; when one is lost later, or is not
// there for an operation within `seconds`.
std::unique_ptr<Ranks> JoinOverGloo(const Rendezvous& rendezvous, double seconds);
// NCCL, by the plug-in beside this program, for ranks that each have a GPU of their own, opened
// before (model/device.h). Errors as above, and Error(kMachine) where there is no plug-in.
std::unique_ptr<Ranks> JoinOverNccl(const Rendezvous& rendezvous, double seconds, at::Device device);

// From the variables of torchrun: RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT; SLURM_PROCID and SLURM_NTASKS
// replace the first two. One rank without them. On GPUs ranks communicate over NCCL; over Gloo, through main
// memory, with KEVIN_RANKS=gloo or without the plug-in (reported by `say`). KEVIN_JOIN_SECONDS replaces
// join_seconds, KEVIN_LOST_SECONDS lost_seconds. Throws Error(kBadRequest) for invalid variables.
std::unique_ptr<Ranks> RanksFromEnvironment(double seconds, at::Device device,
                                            const std::function<void(const std::string&)>& say,
                                            const std::function<void(const Error&)>& on_lost);
// A further group of the same ranks, for another thread: threads that share a group would wait for each other. All ranks
// call it, and the first group outlives it. A device that is a CPU: over Gloo. On a GPU operations return when they are
// begun: they are part of the stream, and a rank that is lost meanwhile is noticed by the first group alone.
std::unique_ptr<Ranks> FurtherRanksFromEnvironment(const std::string& group, double seconds,
                                                   at::Device device);

// An exception of torch has a stack trace below its first line.
inline std::string FirstLineOf(const std::string& text) { return text.substr(0, text.find('\n')); }

// The error of a rank that lost `whom`: "rank 2: it gives no sign".
inline Error LostRank(int rank, const std::string& whom) {
  return Error(ExitCode::kBroken, "rank " + std::to_string(rank) + " lost " + whom,
               "start all ranks again with --resume");
}

}  // namespace kevin::local

// The entry point of the plug-in kevin-nccl.so, of the same build as the program that opens it. Opened after
// libtorch_cuda.so (model/device.h). Its operations throw c10::Error where one is lost.
extern "C" kevin::local::Ranks* KevinNcclRanks(const kevin::local::Rendezvous* rendezvous, double seconds,
                                               int device);
