#pragma once
// A process that makes batches of calls on request, and nothing between them: the trusted side's handle.

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "env/process/runner_protocol.h"
#include "env/process/shared_control_page.h"
#include "env/process/shared_memory.h"
#include "env/python/python_workers.h"
#include "env/sandbox/sandbox.h"

namespace kevin {

// Why a process can no longer be used. A value, not an Error: of a candidate it becomes the outcome.
struct ProcessEnd {
  // The last three are what a Python worker says (PageState).
  enum class Kind { kCrashed, kTimedOut, kLoadFailed, kRaised, kWrongOutput, kRefused } kind = Kind::kCrashed;
  std::string message;
};

// A process that waits for its candidate: started already, sandboxed later. Cheap to keep as a spare.
struct WaitingProcess {
  ChildProcess process;
  Fd socket;
  Mapping page;
  Fd page_fd, log;
  bool is_python = false;
};

// Moments at which a batch is paused, in microseconds of its own time, ascending. At each one that comes before
// "done" the process is stopped, `on_pause` is called with the time that the batch has run, and the process
// is continued.
struct BatchPauses {
  std::vector<double> moments_us;
  std::function<void(double ran_us)> on_pause;
  double* ran_us = nullptr;  // if not null: the time of the batch without what stopping took
  // At "done", before the process is stopped; may be empty. Where it is not, "done" is awaited without sleeping.
  std::function<void()> on_done = {};
};

// A process that makes batches of calls on request: the runner of a candidate, or the reference process. The
// clock is in the process that holds this handle and nowhere else.
//
// From WaitReady on the process is stopped (SIGSTOP, all threads; a candidate cannot start other processes)
// except during its own batches: it neither computes nor reads before "go" nor after "done". The reference
// process is stopped and continued in the same way, so that the cost is equal.
class BatchProcess {
 public:
  // `argv` is a program that speaks runner_protocol.h; `environment` is all it gets. Both sides of a pair run
  // on the same `processors`, however many threads a candidate makes.
  static WaitingProcess Start(const std::vector<std::string>& argv,
                              const std::vector<std::string>& environment, bool namespaces, int processors);

  // The same of a Python worker. Ask returns at once: its process comes with Await, in the order of asking.
  static WaitingProcess Start(PythonWorkers& workers);
  static WaitingProcess Ask(PythonWorkers& workers);
  static void Await(PythonWorkers& workers, WaitingProcess* waiting);
  // Of a worker whose job was sent (SendJob).
  explicit BatchProcess(WaitingProcess waiting) : waiting_(std::move(waiting)) {}

  // Hands the process its memory and its library (the .so of a candidate, or the problem text for the
  // reference process).
  BatchProcess(WaitingProcess waiting, const RunnerLoad& load, int inputs_fd, int outputs_fd, int library_fd);

  // Waits until the library is loaded, and stops the process. An end otherwise. Throws Error(kBroken) when the
  // process failed before any code of the candidate could run.
  std::optional<ProcessEnd> WaitReady(double timeout_s);

  // Makes one call for each slot, in that order, and stops the process. *total_us is the time for which any of
  // its threads could run. `pauses` (may be empty) stop the process while the batch is under way.
  std::optional<ProcessEnd> RunBatch(std::span<const uint16_t> slots, double timeout_s, double* total_us,
                                     const BatchPauses& pauses = {});
  // The reference process only: afterwards PublishedOffset gives the places in its arena of the last batch's
  // outputs.
  std::optional<ProcessEnd> Publish(double timeout_s);
  // A reference worker only: a batch of as many calls that compute nothing.
  std::optional<ProcessEnd> RunEmpty(std::span<const uint16_t> slots, double timeout_s, double* total_us,
                                     const BatchPauses& pauses = {});
  // A candidate's worker on a GPU only: it records the kernels of these calls, and writes them to the file of its job.
  std::optional<ProcessEnd> RunExamined(std::span<const uint16_t> slots, double timeout_s);
  uint64_t PublishedOffset(size_t call, size_t output) const {
    return page()->published_offset[call][output];
  }
  // Of the reference process: the offsets of the outputs that it still has, by slot, as far as they were published. A
  // worker keeps those of its last batch.
  using Places = std::array<uint64_t, kMaxOutputs>;
  const std::map<uint16_t, Places>& places() const { return places_; }

  // Of a Python worker: the strides of an output, if it is not contiguous.
  std::optional<std::vector<int64_t>> PublishedStrides(size_t call, size_t output, size_t dims) const;

  uint32_t Returned() const { return page()->returned.load(std::memory_order_acquire); }
  // What the process has touched of its inputs since ForgetTouched, by the marks that the processor leaves in its page
  // table: for each mapped part of the inputs and outputs its offset in their file, its bytes and how many of them were
  // touched. Pages that are no longer mapped count as touched. nullopt: it is not shown (/proc/PID/smaps), or there
  // are too many mappings to read them in time, which a kernel makes to announce its audits. The process must be stopped.
  struct TouchedPart {
    int64_t offset = 0, bytes = 0, touched = 0;
    int64_t marked = 0;      // of `touched`: by marks alone
    bool is_output = false;  // of the memory of the outputs, which has the input-outputs
  };
  std::optional<std::vector<TouchedPart>> TouchedInputs() const;
  // All memory of the process that has marks, in bytes.
  int64_t MarkedBytes() const;
  // Whether this machine has such marks: tried once, on memory of this process.
  static bool HasMarks();
  // Whether this process may read the runner's marks. Without namespaces root needs CAP_SYS_PTRACE for it, which a container
  // lacks, because the runner is not dumpable. A candidate cannot change that.
  bool ShowsMarks() const;
  // Removes the marks. False: this machine cannot.
  bool ForgetTouched() const { return ForgetTouchedBy(pid()); }
  // A page that another process, or this one, has touched counts as touched by each process that maps it, once the kernel's
  // memory management has aged it (DAMON, reclaim). So marks are removed from the others first.
  static bool ForgetTouchedBy(pid_t pid);
  // CPU time of all its threads since it started. The process must be stopped. The last thread reports that it has
  // stopped a few microseconds before it leaves its processor, and its time is added only then: this waits for it.
  double CpuSeconds() const;
  // How long its threads have been ready to run and waited for a processor, summed. 0: unknown.
  double WaitedSeconds() const;
  pid_t pid() const { return waiting_.process.pid(); }
  std::string Log() const;  // what it wrote to stdout and stderr, at most kLogBytes
  uint64_t FaultAddress() const { return page()->fault_address.load(); }

 private:
  SharedControlPage* page() const { return reinterpret_cast<SharedControlPage*>(waiting_.page.data()); }
  std::optional<ProcessEnd> Go(PageCommand command, double timeout_s, const BatchPauses& pauses,
                               double* total_us);
  // Continues the process until "done" or for `at_most_us`; adds the time to *used_us, and without the time
  // that stopping took to *ran_us. *done: whether it was
  // "done". An end: the process ended, or *used_us reached timeout_s.
  std::optional<ProcessEnd> RunFor(double at_most_us, uint32_t before, double timeout_s,
                                   const BatchPauses& pauses, double* used_us, double* ran_us, bool* done);
  // Returns when all threads have stopped. An end: the process has ended, or does not stop.
  std::optional<ProcessEnd> Stop();
  ProcessEnd Ended(double timeout_s, const std::string& when);

  bool CandidateMayHaveRun();
  static WaitingProcess Prepare(Fd* theirs);
  std::optional<ProcessEnd> RunCalls(PageCommand command, std::span<const uint16_t> slots, double timeout_s,
                                     double* total_us, const BatchPauses& pauses);
  // What a Python worker says of its last batch.
  std::optional<ProcessEnd> Reported() const;

  WaitingProcess waiting_;
  std::map<uint16_t, Places> places_;
  // That TouchedInputs reads, beside those of the slots; Python with torch has some hundred.
  size_t most_mappings_ = 8000;
  bool loading_ = false;
  uint32_t generation_ = 0;
};

}  // namespace kevin
