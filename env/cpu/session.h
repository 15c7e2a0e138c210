#pragma once
// State cached across evaluations of one problem at one size: the slots (fresh inputs for every timed call),
// the reference process with its arena, the reference that computes the truth, and how fast memory and
// arithmetic are here. Lives in the evaluator; one thread.

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "env/cpu/spare_workers.h"
#include "env/cpu/timed_process.h"
#include "env/environment.h"
#include "env/process/generator.h"
#include "env/process/poison.h"
#include "env/process/random.h"
#include "env/process/runner_protocol.h"
#include "env/reference/reference.h"

namespace kevin {

inline constexpr double kMinBatch_us = 5000;  // a batch must carry at least this much work
// The least and the most calls of a candidate's batch, for microseconds a call of each side. One call where that is long
// enough for one side: nobody can work ahead then. Else a batch must be long enough for the faster side, unless
// the candidate is so slow that its length decides (kSlowerThanEager).
std::pair<int, int> CallsOfBatch(double candidate_us, double reference_us, int slots);

struct SessionOptions {
  Problem problem;
  std::string size = "small";
  InputMode inputs = InputMode::kDefault;
  int threads = 1;
  bool namespaces = true;
  std::string evaluator_path, runner_path;
  Limits limits;
  // Candidates and reference are Python workers, from these; not owned. Null: compiled kernels.
  SpareWorkers* workers = nullptr;
};

// The outputs of one candidate process, readable by no other candidate. Of a compiled kernel: poisoned before each call,
// fenced by guard bands; an input-output holds the slot's own values in place of poison. Of a Python worker: all memory of its torch (its arena), new for each process; an output lies
// where the worker says after a batch, and is poisoned there before the next one.
struct OutputMemory {
  Fd fd;
  Mapping mapping;
  std::vector<std::vector<Poison>> poison;  // of each output, of each slot: its last filling
  // Of a Python worker, of each output, of each slot: where it is now, and a copy if it is not contiguous.
  // Session::LocateOutputs sets both; null: unknown.
  mutable std::vector<std::vector<const std::byte*>> places;
  mutable std::vector<std::vector<std::vector<std::byte>>> gathered;
};

// What a batch of a Python worker costs beside the work of its calls: measured with a module that computes nothing.
struct EmptyCost {
  double batch_us = 0, call_us = 0;
};

// Of this machine's main memory.
int64_t AvailableMemoryBytes();

class Session {
 public:
  // Compiles the reference, times it, sizes the slots, starts and warms the reference process. Throws Error.
  explicit Session(SessionOptions options);

  const SessionOptions& options() const { return options_; }
  bool is_python() const { return options_.workers != nullptr; }
  const SizedProblem& sized() const { return sized_; }
  int slots() const { return slots_; }
  const SlotLayout& layout() const { return layout_; }
  double reference_us() const { return reference_us_; }  // per call, warm, first estimate
  BatchProcess& reference_process() { return *reference_process_; }
  SecretRandom& random() { return random_; }  // order, counts, places and times; not inputs

  // Of Python workers: so many will be needed soon, and are forked meanwhile; and none is being forked any more.
  void AskForProcesses(int count);
  void AwaitProcesses();
  // Starts a candidate in a fresh process. The caller waits for it (BatchProcess::WaitReady). `threads`: that it may
  // use, for a diagnosis; 0: those of the session.
  std::unique_ptr<BatchProcess> StartCandidate(int library_fd, OutputMemory& outputs, int threads = 0);
  // Made at the first use and kept: one for the candidate, one for the kernel it is compared with.
  OutputMemory& CandidateOutputs() { return Outputs(&candidate_outputs_); }
  OutputMemory& StartOutputs() { return Outputs(&start_outputs_); }

  // A batch: `calls` distinct slots in random order.
  std::vector<uint16_t> DrawSlots(int calls);
  // The drawings from now on come from a new root (returned as Evaluation::seeds keeps it).
  std::vector<uint64_t> RenewKeys() { return keys_.Renew(); }
  // New inputs and weights for these slots: the next drawing. Of input-outputs the values before the call; they reach the
  // candidate by PoisonOutputs or RestoreInOuts, the reference by RestoreReference, which poisons its outputs too. Call i draws the mixture's member (member + i); a
  // negative `member` is a random one. Returns the member of call 0.
  int FillInputs(std::span<const uint16_t> slots, int member = -1);
  // Changes one element in 256 of every input and weight of a slot (Rearrange).
  void RearrangeInputs(size_t slot);
  // Poison of new keys, guard bands included; RestoreInOuts. One slot in eight gets ordinary values; with `ordinary_call` >= 0 that
  // call does, and no other.
  void PoisonOutputs(OutputMemory& outputs, std::span<const uint16_t> slots, int ordinary_call = -1);
  // Input-outputs of a candidate, or of the reference process, get the values that they have before a call. To be called
  // before every batch of these slots. The process must be stopped.
  void RestoreInOuts(const OutputMemory& outputs, std::span<const uint16_t> slots) const;
  void RestoreReference(std::span<const uint16_t> slots);
  // Whether one word of an output, `word` words from its start, is as it was poisoned. An input-output never is.
  bool IsUnwritten(const OutputMemory& outputs, size_t slot, size_t output, uint64_t word) const;
  // Of a Python worker: finds the outputs of the calls that have returned, which the process names. Empty, or why they do
  // not count: they lie in other memory than the arena, or share memory. The process must be stopped.
  // `keep`: copies them, so that they stay after the next batch.
  std::string LocateOutputs(const OutputMemory& outputs, const BatchProcess& process,
                            std::span<const uint16_t> slots, bool keep = false) const;
  // The part of a batch's time that its calls worked. Of compiled kernels all of it.
  double WorkUs(double total_us, size_t calls) const;
  const EmptyCost& empty_cost() const { return empty_cost_; }

  // Empty, or which guard band was overwritten.
  std::string BrokenGuard(const OutputMemory& outputs, std::span<const uint16_t> slots) const;

  // Of input-outputs the values before the call.
  std::vector<TensorView> Inputs(size_t slot) const;
  const std::byte* Output(const OutputMemory& outputs, size_t slot, size_t index) const;
  // Of the last batch of the reference process, after BatchProcess::Publish. Checked to lie inside the arena.
  const std::byte* ReferenceOutput(size_t call, size_t index) const;
  // One pointer an output.
  std::vector<const std::byte*> OutputsOf(const OutputMemory& outputs, size_t slot) const;
  std::vector<const std::byte*> ReferenceOutputsOf(size_t call) const;
  Reference& truth() { return *truth_; }

  // No correct call can be faster. Another measurement can only lower it: the best bandwidth ever seen
  // counts.
  double FloorMicroseconds() const { return floor_us_; }
  void MeasureFloor();

 private:
  OutputMemory& Outputs(OutputMemory* outputs) const;
  void PoisonLocated(OutputMemory& outputs);
  void ChooseSlots();
  void LayOut();
  void StartReferenceProcess();
  void CopyInOuts(std::byte* to, std::span<const uint16_t> slots) const;
  void CheckWrites(const std::vector<TensorView>& views,
                   const std::vector<std::vector<std::byte>>& before) const;
  void StartReferenceWorker(const RunnerLoad& load);
  void WarmReference();
  void MeasureEmptyCost();
  void CheckReferenceWorker();
  WaitingProcess StartWaiting();
  std::unique_ptr<BatchProcess> StartWorker(WaitingProcess waiting, int bundle_fd, OutputMemory& outputs);
  std::string JobOf(bool is_reference, int64_t arena_bytes) const;
  void PoisonReference(std::span<const uint16_t> slots);
  std::byte* InArena(uint64_t offset, size_t index) const;  // where an output of the reference lies

  SessionOptions options_;
  SizedProblem sized_;
  int slots_ = 0;
  double reference_us_ = 0, floor_us_ = 0, best_bytes_per_s_ = 0, best_flops_per_s_ = 0;
  SlotLayout layout_;
  int64_t arena_bytes_ = 0;
  Fd inputs_fd_, inouts_fd_, arena_fd_, problem_fd_;
  Mapping inputs_, arena_;
  Mapping inouts_;            // before the call; no other process has it
  Mapping reference_inouts_;  // the first part of the arena
  std::unique_ptr<Reference> truth_;
  std::unique_ptr<BatchProcess> reference_process_;
  WaitingProcess spare_;  // of a compiled kernel
  EmptyCost empty_cost_;
  OutputMemory candidate_outputs_, start_outputs_;
  SecretRandom random_;
  DrawingKeys keys_;
};

// Measures eager on this CPU as the reference of a pair is measured: in its own process, on newly drawn
// slots, caches flushed, no other work of Kevin running. {"eager_us": median per call, "low_us", "high_us":
// quartiles, "batches", "calls": of a batch, "torch"}. Holds the lock of the CPU for about 3 s. Throws
// Error(kBroken) when the reference process ends.
nlohmann::json MeasureEager(Session& session);

// The reference process: `kevin-evaluator reference SIZE THREADS PRECISION`, with its load on descriptor
// kRunnerSocket.
int RunReferenceProcess(const std::string& size, int threads, const std::string& precision);

}  // namespace kevin
