#pragma once
// The locks of devices (env/process/machine.h) while the ranks of a run learn or save together: no pair is timed on their
// devices meanwhile.
//
// Each rank holds the lock of its own device. Not where the ranks sample together: an answer then holds the locks of all
// ranks' devices, and so do two ranks that wait for each other. A measurement that waits for rank 1 holds up an answer that
// has rank 0's lock already, behind the answer waits a measurement on rank 0's device, behind this rank 0, and for rank 0
// waits rank 1. There rank 0 takes the locks for all, in the order in which answers take them, while the others hold none.

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "agent/machine.h"

namespace kevin {

class RankLocks {
 public:
  struct Terms {
    bool is_first = true;          // rank 0
    bool is_shared = false;        // the ranks sample together
    std::string own;               // lock of this rank's device; empty: another rank holds it
    std::vector<std::string> all;  // of all ranks' devices
  };
  // `meet`: waits for all ranks, and throws when one is lost.
  RankLocks(Terms terms, std::function<void()> meet);

  // All ranks call it when they have met, so that none of them waits for a lock or for its turns any more. Returns when no
  // pair is timed on any rank's device.
  void Hold();
  void Release();  // all ranks call it

 private:
  const Terms terms_;
  const std::function<void()> meet_;
  std::optional<SharedDevices> held_;
};

}  // namespace kevin
