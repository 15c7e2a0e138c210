#pragma once
// State cached across evaluations of one problem at one size on one GPU: the slots (inputs read-only to the
// runner, outputs and input-outputs with guard bands), the reference and the truth by the CUDA part of libtorch, the trusted
// kernels, the floor that no time may beat, and an idle runner. An evaluator keeps several sessions; they share
// runners and the stream of the reference, on which all work is. Lives in the evaluator; one thread.

#include <deque>
#include <functional>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "env/gpu/judge/runner_client.h"
#include "env/gpu/other_processes.h"
#include "env/gpu/runner/device_memory.h"
#include "env/gpu/runner/stopwatch.h"
#include "env/problem/problem.h"
#include "env/process/generator.h"
#include "env/process/random.h"
#include "env/process/runner_protocol.h"
#include "env/reference/reference.h"

namespace kevin {

class GpuSession;

// A runner that has mapped a session's memory, and the calibrated offset of its times against this process.
struct CalibratedRunner {
  std::unique_ptr<RunnerClient> client;
  std::vector<double> differences_us;      // of the same work, timed there and here
  double offset_us = 0, offset_se_us = 0;  // added to a time by its context; the standard error
};

// The runners of an evaluator; all of its sessions take theirs from here. A context takes a quarter of a second to make and half
// a GiB, so that a runner whose session has ended goes on to the next one.
struct SpareRunners {
  struct Idle {
    CalibratedRunner runner;
    const GpuSession* session = nullptr;  // whose memory it has mapped; null: nobody's
  };

  // The oldest first. Nothing is timed until all have made their contexts.
  std::deque<std::unique_ptr<RunnerClient>> clients;
  std::vector<Idle> idle;  // intact, have judged before; the oldest first
};

struct GpuSessionOptions {
  Problem problem;
  std::string size = "full";
  InputMode inputs = InputMode::kDefault;
  int device = 0;
  bool tf32 = false;
  bool namespaces = true;
  std::string runner_path, trusted_cubin;
  std::shared_ptr<SpareRunners> spares = std::make_shared<SpareRunners>();
  const OtherProcesses* others = nullptr;  // may be null: nobody looks
  int64_t reference_bytes = 0;             // runner_protocol.h
  // Of candidates in Python (python_session.h): more slots, no runners.
  bool for_python = false;
  // A host's memory stands for the device's, and libtorch computes on the CPU: for tests over a stand-in driver.
  bool on_host = false;
};

class GpuSession {
 public:
  // Throws Error: kBadRequest when the size does not fit into the memory of the GPU (and names one that
  // fits), kMachine.
  explicit GpuSession(GpuSessionOptions options);
  ~GpuSession();

  const GpuSessionOptions& options() const { return options_; }
  const SizedProblem& sized() const { return sized_; }
  const SlotLayout& layout() const { return layout_; }
  const SharedDeviceMemory& inputs_memory() const { return inputs_; }
  int slots() const { return memory_.slots; }
  SecretRandom& random() { return random_; }

  // The drawings from now on come from a new root (returned as Evaluation::seeds keeps it).
  std::vector<uint64_t> RenewKeys() { return keys_.Renew(); }
  // New inputs and weights for a slot: the next drawing (returned). `member` >= 0 chooses the member of the
  // mixture.
  ValueStream Draw(int slot, int member = -1);
  // The values of one tensor of a drawing, as Draw makes them: the content of a slot can be restored.
  void DrawTensor(int slot, size_t index, const ValueStream& drawing);
  // Outputs and guard bands of the slot, anew (runner/device_memory.h). Input-outputs get the values that Draw made.
  void PoisonOutputs(int slot);
  // Whether the element, of `bytes` bytes at `at` in the output, still holds the latest poison. An input-output never does.
  bool IsPoisoned(int slot, size_t index, uint64_t at, size_t bytes);
  void Synchronize();

  // Runs eager on the inputs of the slot, timed like a candidate. Its outputs stay until eager runs again, on whatever slot.
  double TimeReferenceUs(int slot);
  // The same without a time. To be called after a truth and before eager is timed: the truth can take the memory that torch keeps
  // for eager's intermediates, and the next call of eager gets it anew from the driver.
  void WarmReference(int slot);
  // Before the first measurement. Throws DeviceFailed (resident_sessions.h).
  void WarmAndTimeReference();
  // The reference's own input-outputs get the values that Draw made, and its outputs of all slots go. To be called before each of
  // its runs; TimeReferenceUs and WarmReference do.
  void RestoreReference(int slot);
  std::vector<TensorView> ReferenceOutputs(int slot);
  // Of input-outputs the values before the call, which neither the candidate nor the reference writes.
  std::vector<TensorView> Inputs(int slot) const;
  CuDevicePtr Output(int slot, size_t index) const;
  Reference& reference() { return *reference_; }
  // Empty, or which guard band was overwritten.
  std::string BrokenGuard(int slot);
  // The same of all slots: what a kernel writes there it could find again in a later call.
  std::string AnyBrokenGuard();

  using Calibrated = CalibratedRunner;
  // An intact one that has judged before in this session; else that of a session that has ended; else another session's,
  // which must map its memory again when it goes on. A new one where there is none, and for `fresh`.
  Calibrated TakeRunner(bool fresh);
  // Unloads the candidate and runs the canary: a runner that fails it is not used again. Throws
  // Error(kMachine) when a new one fails too: the GPU itself is defective.
  void GiveBack(Calibrated runner);
  // Runners for the next evaluations make their contexts beside what is not timed: as many as fit `untimed_s`, at least one where
  // few are left, six in all, and no more than an eighth of the device's free memory holds. Nothing is timed before
  // AwaitSpares, and nothing that another process may time before they are ready: the lock of the device is held until
  // then.
  void StartSpares(double untimed_s);
  // Those that cannot be made (the memory is a candidate's) are dropped; `must_have`: throws Error(kMachine) where that leaves none.
  void AwaitSpares(bool must_have = false);
  std::string LockName() const { return lock_name_; }
  double reference_us() const { return reference_us_; }  // a first estimate
  // Of the runs of eager since the call before: memory that it wanted and that other sessions may have.
  TorchShortages TakeShortages() { return std::exchange(shortages_, {}); }
  // Before pairs: whether eager waited for memory in verification, beside truths, does not matter.
  void ForgetWaits() { shortages_.waits = 0; }

  // Clock of the multiprocessors now, in MHz.
  double ClockMhz();
  // A measurement was disturbed up to its last try: the next one has a single try.
  bool was_disturbed = false;
  double verify_s = 0;               // that the latest verification took; 0: none yet
  double reference_error_seen = -1;  // largest CheckResult::reference_error of all evaluations; -1: none yet
  double FloorMicroseconds() const { return floor_us_; }
  // Overwrites the slots. The least of all measurements counts: another process, or a spare that makes its context, can
  // disturb one. The constructor measures briefly; before a time is refused, it is measured with care.
  void MeasureFloorAgain() { MeasureFloor(4); }

  CuHandle Function(const char* name) const;  // a trusted kernel
  void Launch(const char* name, unsigned blocks, unsigned threads, void** arguments);
  // A grid of `rows` rows, in which some `blocks` blocks are, of 256 threads.
  void LaunchWide(const char* name, unsigned blocks, unsigned rows, void** arguments);
  CuHandle stream() const { return stream_; }

 private:
  void CountShortages(const std::function<void()>& run);
  void Keep(Calibrated runner);
  Calibrated StartRunner();
  void Calibrate(Calibrated* runner);
  double Probe(RunnerClient* runner, long long vectors);
  bool CanaryLives(RunnerClient* runner);
  void LayOut();
  CuDevicePtr Drawn(int slot, size_t input) const;
  // For each input-output: its output's number, and its place in inouts_ and reference_inouts_.
  void ForEachInOut(int slot, const std::function<void(size_t output, uint64_t at)>& visit) const;
  void MeasureFloor(int repeats);

  GpuSessionOptions options_;
  SizedProblem sized_;
  std::unique_ptr<Reference> reference_;
  CuHandle stream_ = nullptr, module_ = nullptr, poison_kernel_ = nullptr;
  FillKernels fill_;
  SharedDeviceMemory inputs_, outputs_;
  DeviceBuffer inouts_, reference_inouts_;  // before the call; written by the reference
  SlotLayout layout_;
  SlotMemory memory_;  // as the candidate sees it
  std::unique_ptr<Stopwatch> stopwatch_;
  std::vector<std::vector<Poison>> poison_;  // the latest, by slot and output
  std::string lock_name_;
  std::vector<DeviceBuffer> stored_;  // one an input; empty where values are drawn
  DeviceBuffer counter_;
  SecretRandom random_;
  DrawingKeys keys_;
  double reference_us_ = 0, floor_us_ = std::numeric_limits<double>::infinity();
  TorchShortages shortages_;
};

}  // namespace kevin
