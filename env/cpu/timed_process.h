#pragma once
// A process that takes part in timed pairs: what it does outside its own calls counts against it.

#include <memory>
#include <span>
#include <string>

#include "env/cpu/batch_process.h"
#include "env/verdict/judgement.h"

namespace kevin {

struct OutputMemory;  // session.h
class Session;

// One process of a candidate, or of the kernel it is compared with, and the CPU time it used outside its own
// calls.
class TimedProcess {
 public:
  // `name` is "candidate" or "start". Starts the process and waits until the library is loaded. Like the
  // other methods it throws Ended for what the candidate did, and Error(kBadRequest) for what `start` did:
  // that kernel was judged before, so the request cannot be met.
  // `threads`: that it may use; 0: those of the session. With kBegun it does not wait, so that two processes can load
  // side by side: AwaitLoaded() comes before anything else then.
  enum class Loading { kAwaited, kBegun };
  TimedProcess(Session& session, std::string name, int library_fd, OutputMemory& outputs, int threads = 0,
               Loading loading = Loading::kAwaited);
  void AwaitLoaded();

  const std::string& name() const { return name_; }
  const OutputMemory& outputs() const { return outputs_; }
  BatchProcess& process() { return *process_; }
  const BatchProcess& process() const { return *process_; }
  std::string Log() const { return process_->Log(); }

  // One batch; its time in microseconds (BatchProcess::RunBatch). Afterwards the process is stopped and its
  // outputs are final. In "measure" it ends with `refused` where an output is unwritten. `phase` is for
  // messages: "verify", "measure".
  double Run(std::span<const uint16_t> slots, const std::string& phase, const BatchPauses& pauses = {});

  // Of the latest batch, by all its threads.
  double CpuOfBatch_s() const { return cpu_of_batch_s_; }

  // From here on CPU time outside its own windows counts. A stopped process uses none; it may be at most a
  // hundredth of its own windows or of those of the others, whichever are less.
  void StartCounting();
  void AddOtherWindow(double total_us) { other_windows_s_ += total_us * 1e-6; }
  // Empty, or why what was timed with this process does not count. A single process proves nothing about the
  // candidate (the machine may have been disturbed): its rounds are made again with a fresh one (judge_rounds.cc).
  std::string UsedOutside();

  [[noreturn]] void End(const Outcome& outcome) const;

 private:
  [[noreturn]] void Fail(const ProcessEnd& end, const std::string& phase) const;

  Session& session_;
  std::string name_;
  const OutputMemory& outputs_;
  std::unique_ptr<BatchProcess> process_;
  bool counting_ = false;
  double cpu_of_batch_s_ = 0;
  double cpu_after_ = 0, outside_s_ = 0, own_windows_s_ = 0, other_windows_s_ = 0;
  int batches_ = 0;
};

}  // namespace kevin
