#pragma once
// One process of a candidate (or of the kernel it is compared with) and what is counted about it.

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "env/cpu/session.h"
#include "env/verdict/judge_result.h"

namespace kevin {

// Each half of a pair begins after the same pause, long enough for CPU clocks to have caught up.
void PauseBeforeTurn();

class Contender {
 public:
  // `side` is "candidate" or "start". Starts the process and waits until the library is loaded. Like all that
  // follows it throws Ended for what the candidate did, and Error(kBadRequest) where `start` did it: that
  // kernel was judged before, so then it is the request that cannot be met.
  Contender(Session& session, std::string side, int library_fd, const OutputMemory& outputs);

  const std::string& side() const { return side_name_; }
  const OutputMemory& outputs() const { return outputs_; }
  Side& process() { return *process_; }
  std::string Log() const { return process_->Log(); }

  // One batch; microseconds from "go" to "done". `phase` is for messages: "verify", "measure".
  double Run(std::span<const uint16_t> slots, const std::string& phase,
             const std::function<void()>& watch = {});

  // From here on CPU time outside its own windows counts, and may be at most a hundredth of the others'
  // windows.
  void StartCounting();
  void AddOtherWindow(double total_us) { other_windows_s_ += total_us * 1e-6; }
  void CheckOutside();

  [[noreturn]] void End(const Outcome& outcome) const;

 private:
  [[noreturn]] void Fail(const SideEnd& end, const std::string& phase) const;

  Session& session_;
  std::string side_name_;
  const OutputMemory& outputs_;
  std::unique_ptr<Side> process_;
  bool counting_ = false;
  double cpu_after_ = 0, outside_s_ = 0, other_windows_s_ = 0;
  int handovers_ = 0;
};

}  // namespace kevin
