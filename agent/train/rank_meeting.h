#pragma once
// What the ranks of a run tell each other beside training: who is where, that their batches are equal, that one was
// interrupted, what the first one decides. All ranks call all functions in the same order; each waits for all ranks, and
// throws the trainer's Error when one is lost. A single rank agrees with itself.

#include <optional>
#include <string>

#include "agent/train/batches.h"
#include "agent/train/trainer_process.h"

namespace kevin {

class RankMeeting {
 public:
  // `trainer` must outlive this.
  RankMeeting(TrainerProcess& trainer, const TrainerProcess::Opened& opened)
      : trainer_(trainer), rank_(opened.rank), ranks_(opened.ranks) {}

  // What ranks must have in common, and who is where.
  struct Terms {
    int64_t done = 0, steps = 0;
    std::string device;  // that it trains on
    std::string place;   // all of its devices, for people (PlacementText)
  };
  struct Met {
    // Of ranks that train on one device of one host, one holds its lock for all of them: they wait for each other within a
    // step, and a measurement that waits for the first would keep the second from beginning.
    bool holds_lock = true;
    std::vector<std::string> lines;  // "rank 0 of 2 on HOST: ..."; none for a single rank
    std::vector<std::string>
        locks;  // of the devices that the ranks train on (LockNameOf); none for a single rank
  };
  // Throws Error(kBadRequest) where steps differ.
  Met Meet(const Terms& terms);
  // Its parts: what a rank says, with the name of the host and of the lock of its device (LockNameOf), and what rank
  // `own_rank` makes of the lines of all ranks.
  static std::string LineOf(const Terms& terms, const std::string& host, const std::string& lock);
  static Met Compare(const std::vector<std::string>& all, int own_rank);

  // A short text of each rank, in their order; none for a single rank.
  std::vector<std::string> Gather(const std::string& mine);
  // Before each step. False: a rank was asked to end (nullopt), so that all do. Throws Error(kBroken) where the ranks'
  // batches differ.
  bool Agree(int64_t step, const std::optional<LearnBatch>& batch);
  // Whether no rank was interrupted; `mine`: this one was not.
  bool AllGoOn(bool mine);
  // What rank 0 decides.
  bool DecidedByFirst(bool mine);

 private:
  TrainerProcess& trainer_;
  const int rank_, ranks_;
};

}  // namespace kevin
