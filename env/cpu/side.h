#pragma once
// The trusted side's handle of one process that takes part in timed pairs: a candidate's runner, or its twin
// with the reference. The clock is here and nowhere else.

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "env/process/runner_protocol.h"
#include "env/process/shared_control_page.h"
#include "env/process/shared_memory.h"
#include "env/sandbox/sandbox.h"

namespace kevin {

// Why a process can no longer be used. A value, not an Error: for a candidate it is its outcome.
struct SideEnd {
  enum class Kind { kCrashed, kTimedOut, kLoadFailed } kind = Kind::kCrashed;
  std::string message;
};

// A process waiting for its candidate: started, locked in later. Cheap to keep as a spare.
struct WaitingProcess {
  ChildProcess process;
  Fd socket;
  Mapping handover;
  Fd handover_fd, log;
};

class Side {
 public:
  // `argv` is the program that speaks runner_protocol.h; `environment` is all it gets. Both sides of a pair
  // run on the same `processors`, however many threads a candidate makes.
  static WaitingProcess Start(const std::vector<std::string>& argv,
                              const std::vector<std::string>& environment, bool namespaces, int processors);

  // Hands the process its memory and its library (a candidate's .so, or the twin's problem text).
  Side(WaitingProcess waiting, const RunnerLoad& load, int inputs_fd, int outputs_fd, int library_fd);

  // Waits until the library is loaded. An end otherwise. Throws Error(kBroken) when the process broke before
  // any of the candidate's code could run.
  std::optional<SideEnd> WaitReady(double timeout_s);

  // Makes one call for each slot, in that order; *total_us is from "go" to "done". `watch` (may be empty)
  // runs on the calling thread while the batch is under way: audits look there.
  std::optional<SideEnd> RunBatch(std::span<const uint16_t> slots, double timeout_s, double* total_us,
                                  const std::function<void()>& watch = {});
  // The twin only: afterwards PublishedOffset says where in its arena the last batch's outputs lie.
  std::optional<SideEnd> Publish(double timeout_s);
  uint64_t PublishedOffset(size_t call, size_t output) const {
    return page()->published_offset[call][output];
  }

  uint32_t Returned() const { return page()->returned.load(std::memory_order_acquire); }
  double CpuSeconds() const;  // of all its threads, since it started
  std::string Log() const;    // what it wrote to stdout and stderr, at most kLogBytes
  uint64_t FaultAddress() const { return page()->fault_address.load(); }

 private:
  Handover* page() const { return reinterpret_cast<Handover*>(waiting_.handover.data()); }
  std::optional<SideEnd> Go(HandoverCommand command, double timeout_s, const std::function<void()>& watch,
                            double* total_us);
  SideEnd Ended(double timeout_s, const std::string& when);

  bool CandidateMayHaveRun();

  WaitingProcess waiting_;
  bool loading_ = false;
  uint32_t generation_ = 0;
};

}  // namespace kevin
