#pragma once
// Notices within a minute that another rank is lost, whatever this one is doing: a rank that waits for others within NCCL, or
// for a machine that is gone, would learn of it at the end of the longest step that is allowed.
//
// Each rank counts up a number of its own in the store where the ranks met, once a second, from a thread of its own. A rank
// whose number stands still for lost_seconds is lost. A rank in a long step, or one that waits for a device, goes on counting:
// it is slow, and nothing happens. A rank that ends says why; the others, which may be about to end for the same reason, end
// kLeaveSeconds later. The counts are compared with this rank's own readings, not with a clock, so that a machine that was
// asleep takes nobody for lost.

#include <memory>
#include <string>
#include <thread>

#include "policies/local/train/ranks.h"

namespace kevin::local {

class RankWatch {
 public:
  static constexpr double kBeatSeconds = 1, kLeaveSeconds = 10;

  // All ranks of the group are there (meet_in_store.h), and the store lives as long as the rank that holds it.
  // Rendezvous::on_lost is called by a thread of this object. Throws c10::Error where the store cannot be reached.
  explicit RankWatch(const Rendezvous& rendezvous);
  ~RankWatch();  // says that this rank has ended, unless Leave has said why
  RankWatch(const RankWatch&) = delete;
  RankWatch& operator=(const RankWatch&) = delete;

  // Tells the others why this rank is about to end.
  void Leave(const std::string& why);

  // After an operation with all ranks has failed: who is missing, as "rank 2: it gives no sign" or "rank 1: it has ended:
  // no memory"; empty: all are there. Takes some seconds.
  std::string WhoIsMissing();

 private:
  struct State;
  static void Beat(const std::shared_ptr<State>& state);
  void Watch();

  const std::shared_ptr<State> state_;
  std::thread thread_;  // last: it uses the rest
};

}  // namespace kevin::local
