#pragma once
// State cached across evaluations of candidates in Python of one problem on one GPU: the slots, reference and truth (a
// GpuSession without runners), and the reference worker, in which eager runs by the same Python caller as a candidate.
// Lives in the evaluator; one thread.
//
// Time. A batch makes K calls on K slots, K random: the same for all sides of a pair, or more for eager where a candidate is
// so slow that its batches have few. Its time is that of this process's clock, from before the copying of the
// inputs of these slots until this process has read words at secret places of each output itself. So nothing that a worker
// says, and nothing that it does before or after, takes part: inputs do not exist before the clock runs, and an output that
// is complete only later shows as changed words. The calls' part of it:
//
//     time of the batch - what a batch costs beside its calls - copying of its slots
//
// where the second term is eager's, in the reference worker: by how much a batch of one call is longer than one call more or
// less makes a longer batch. The device wakes up, and the first kernel finds nothing in its caches; a batch of calls that
// compute nothing would not show it. The copying is measured with such calls. A worker's context and this process's take
// turns on the device, so that work beside the copying lengthens it by as much. All timed workers run on one processor:
// what it costs to wake them up differs by as much as a short call takes.
//
// Memory. A worker's pool is sized when it gets its job, by what the problem needs and what is free: the reference worker's for
// as long as the session lives, with room for a candidate, its first calls before it, the kernel that it is compared with
// after it, and the truth; those of candidates by PlanPools. Other sessions may be resident.
//
// Sources: python_session.cc, the reference and batches; python_examine.cc, the first calls of a candidate;
// python_outputs.cc, what is read of a batch and when the device is idle.

#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "env/gpu/judge/gpu_session.h"
#include "env/gpu/judge/python_side.h"

namespace kevin {

inline constexpr int kOutputSamples = 1024;  // words of all outputs of a batch

class GpuPythonSession {
 public:
  // `options` are changed to those of a session for Python. `alone`: eager gets all the memory that its candidates leave; else
  // a part, so that other sessions have theirs. Throws Error, as GpuSession does, and DriverError.
  GpuPythonSession(GpuSessionOptions options, GpuWorkers& workers, bool alone = false);

  GpuSession& base() { return base_; }
  GpuWorkers& workers() { return workers_; }
  PythonSide& reference() { return *reference_; }
  int slots() const { return base_.slots(); }
  double reference_us() const {
    return reference_us_;
  }  // a call of eager in the reference worker, a first estimate
  bool is_alone() const { return is_alone_; }
  // In place of one that may be broken. Its pool is of the same size.
  void StartReference();
  // Sizes the pools of the next candidates by what is free, before any of their code runs: one that takes memory does not make
  // that of others smaller. False: they have less than eager has, and other sessions should go. The constructor does it too.
  bool PlanPools();

  // What the first calls of a candidate told (role "examine" of env/python/gpu_first_calls.py): words of its own process, bounded
  // and printable.
  struct Examined {
    std::string error;                                    // why they failed
    std::vector<std::pair<std::string, double>> kernels;  // names and microseconds a call
    std::optional<double> device_us, least_us;            // of a call, the mean and the least
    std::shared_ptr<Fd> caches;                           // what was compiled: a hostile file
    bool timed_out = false;
    bool has_compiled = false;  // `caches` has files
    bool is_due = false;        // ExamineIn() is to fill it; `caches` is where the worker will write
  };
  // The same for equal keys, which stand for equal bundles, unless it took too long or crashed: that is examined again.
  Examined Examine(const std::string& key, int bundle_fd, double timeout_s);
  // Of a candidate whose calls compile nothing: what is known of it, or that it is due.
  Examined ExamineLater(const std::string& key);
  // The same calls in a worker that Start() made with `examined`, which is due: one process less, and so one context. Nothing is
  // timed meanwhile. False: its process has ended, or told nothing; Examine() can say more.
  bool ExamineIn(PythonSide& side, const std::string& key, std::span<const uint16_t> slots, double timeout_s,
                 Examined* examined);

  // A fresh worker for a candidate. Its pool holds random words.
  std::unique_ptr<PythonSide> Start(const std::string& name, int bundle_fd, const Examined& examined);

  // `calls` distinct slots in random order.
  std::vector<uint16_t> DrawSlots(int calls);
  // New inputs and weights, which no worker has yet. `member` >= 0: of call i, (member + i).
  void Draw(std::span<const uint16_t> slots, int member = -1);
  // One element in 256 of their inputs and weights, at random places, becomes a copy of another one.
  void Rearrange(std::span<const uint16_t> slots);

  struct Batch {
    std::optional<ProcessEnd> end;  // why there is none
    std::string refused;            // why its outputs do not count
    double total_us = 0;            // by this process's clock
  };
  // One batch. Afterwards the process is stopped.
  Batch Run(PythonSide& side, std::span<const uint16_t> slots, double timeout_s,
            const BatchPauses& pauses = {});
  // Per call, what is left of a batch's time.
  double CallUs(double total_us, size_t calls) const;
  // A batch of one call, with what a batch costs beside it.
  double SingleUs(double total_us) const;
  // Measures what a batch costs beside its calls. Before each measurement: it depends on what else the machine does.
  void RenewBatchCost();

  // Copies the outputs of the first `calls` of the last batch to where GpuChecker looks for them. Empty, or why they do not
  // count.
  std::string Take(const PythonSide& side, std::span<const uint16_t> slots, size_t calls);
  // Of the last batch: empty, or what has changed in its outputs since its end, or in its inputs since its start.
  std::string Changed(const PythonSide& side, std::span<const uint16_t> slots);
  // Hands the slots' inputs to the worker, which must be stopped.
  void HandOut(const PythonSide& side, std::span<const uint16_t> slots);
  // Whether no other context computes now. Takes milliseconds.
  bool IsQuiet();
  // Looks until it is, or until the time is over: false.
  bool AwaitQuiet(double limit_s);

 private:
  struct Place {
    CuDevicePtr address = 0;
    std::optional<std::vector<int64_t>> strides;
    bool operator==(const Place&) const = default;
  };
  std::string JobOf(const std::string& role, const PythonSide& side, bool examined_later = false) const;
  void Keep(const std::string& key, const Examined& examined);
  const Examined* Known(const std::string& key);
  void MeasureNeeds();
  size_t FreeForPools(size_t workers) const;
  std::unique_ptr<PythonSide> MakeSide(const std::string& name, bool may_compile, size_t pool_bytes);
  std::vector<uint16_t> AllSlots() const;
  void Upload(const PythonSide& side, std::span<const uint16_t> slots);
  void FlushL2();
  std::string Locate(const PythonSide& side, size_t calls, bool may_overlap);
  void Sample(bool again);
  double ReferenceTotalUs(std::span<const uint16_t> slots);
  Batch RunCommand(PythonSide& side, std::span<const uint16_t> copied, size_t calls, double timeout_s,
                   bool empty, const BatchPauses& pauses);
  double EmptyUs(size_t copied);
  void CheckReference();

  GpuWorkers& workers_;
  bool is_alone_;
  GpuSession base_;
  WorkerNeeds needs_;
  size_t reference_pool_bytes_ = 0, candidate_pool_bytes_ = 0;
  std::unique_ptr<PythonSide> reference_;
  std::vector<std::vector<Place>> places_;  // of the last batch: of each call, of each output
  std::vector<uint32_t> samples_;           // their words at its end
  DeviceBuffer parts_, sample_places_, sampled_, flush_, number_;
  unsigned parts_count_ = 0;
  double empty_us_ = 0, copy_us_ = 0;  // a batch of one empty call; copying of one slot
  double batch_us_ = 0;                // a batch of the reference, beside its calls and the copying
  double reference_us_ = 0;
  std::list<std::pair<std::string, Examined>> examined_;  // the latest last
};

}  // namespace kevin
