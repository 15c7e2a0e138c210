#pragma once
// The workers of candidates in Python on a GPU, from the evaluator's side: their processes and their memory. A worker is
// warm before its candidate comes: forked, in its sandbox, with a context (env/python/gpu_worker.py). One candidate each. To
// make a context takes time and disturbs what is timed: an evaluation takes spares.
// Their successors are started together, when few are left, so that many evaluations share one time of waiting.
//
// A spare holds no memory of the device beyond its context. The pool comes with the job: an allocation of this process, in
// which all tensors of the worker's torch lie, and where this process reads them.
// A worker's inputs are an allocation of its own, filled from the session's at the start of each batch. Its mapping is
// read-only; host code of a candidate can change that, and reaches nothing but its own copy.

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "env/cpu/batch_process.h"
#include "env/gpu/runner/device_memory.h"
#include "env/python/python_workers.h"

namespace kevin {

struct GpuWorkersOptions {
  int device = 0;
  bool on_host = false;  // a host's memory stands for a device's: for tests over a stand-in driver
  size_t spares = 2;     // of each kind: SparesFor()
  size_t kept_bytes = size_t{1} << 30;  // of the device, for what nobody counts
};

// How many spares of each kind a machine keeps, 2 to 6: they warm up at the same time, and their contexts take at most an
// eighth of the free memory.
size_t SparesFor(int processors, size_t free_bytes);

// What the workers of one problem take of the device, and this process beside them. All in bytes.
struct WorkerNeeds {
  size_t inputs = 0;      // of each worker, outside its pool
  size_t least_pool = 0;  // of each worker: with less no call can be made
  size_t truth = 0;       // of this process, while it computes the truth
};

// The pool of a worker where `workers` are still to be made that exist at the same time, in `free_bytes`: an equal share
// of what their inputs leave, between the least pool and `most_room` bytes more. The last worker is the kernel that a
// candidate is compared with; it comes when the truth is no longer needed.
size_t PoolBytes(const WorkerNeeds& needs, size_t free_bytes, int workers, size_t most_room);

// Counts a process among PythonSide::ProcessIds() for as long as it lives.
class WorkerId {
 public:
  WorkerId() = default;
  explicit WorkerId(int pid);
  WorkerId(WorkerId&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
  WorkerId& operator=(WorkerId&& other) noexcept;
  ~WorkerId();

 private:
  int pid_ = 0;
};

struct WarmWorker {
  WaitingProcess waiting;
  WorkerId id;
  bool is_warm = false;  // it has said so
};

// The memory and the process of one worker that makes batches.
class PythonSide {
 public:
  // Makes the memory. Throws DriverError.
  PythonSide(std::string name, WarmWorker worker, int device, size_t pool_bytes, size_t inputs_bytes);
  PythonSide(const PythonSide&) = delete;
  PythonSide& operator=(const PythonSide&) = delete;

  // Once. `files`: a descriptor of the caches of the candidate's first calls, or the file for the result of "examine".
  void Send(const std::string& job, int bundle_fd, int files_fd);

  // Ends the process, and with it its context: work on the device, and memory outside the pool. Its log stays.
  void Kill();

  const std::string& name() const { return name_; }  // "candidate", "start", "reference"
  BatchProcess& process() { return *process_; }
  const BatchProcess& process() const { return *process_; }
  const SharedDeviceMemory& pool() const { return pool_; }
  const SharedDeviceMemory& inputs() const { return inputs_; }
  // Ids of the processes of all workers that live, spares included.
  static std::vector<int> ProcessIds();

 private:
  std::string name_;
  SharedDeviceMemory pool_, inputs_;
  WorkerId id_;
  WaitingProcess waiting_;
  std::unique_ptr<BatchProcess> process_;
};

inline constexpr size_t kLeastSpares = 2;  // of each kind: a candidate with the kernel it is compared with

// One thread. `workers` must outlive it.
class GpuWorkers {
 public:
  GpuWorkers(PythonWorkers& workers, const GpuWorkersOptions& options);
  ~GpuWorkers();

  // A spare; waits until it is warm. Where its kind has none left, one is started and Refill() called. `may_compile`: it may
  // start compilers, and takes no part in timing. Throws Error(kMachine) with the reason where a worker cannot use the GPU.
  WarmWorker Take(bool may_compile);
  // Starts the spares that are missing, all at the same time, as far as memory allows, and does not wait for them: of those that
  // may compile only after one was taken.
  void Refill();
  // The same where fewer than so many thirds of the spares that may compile are left. Of the others alone, which are warm
  // sooner, where fewer of these are left.
  void RefillIfFew(size_t thirds);
  // Waits until all spares are warm: the making of a context disturbs what is timed. Drops those that find no memory. False:
  // all were warm.
  bool Settle();
  void DropSpares();  // their contexts are memory of the device
  // How many of each kind are kept from now on; what is more is dropped.
  void KeepSpares(size_t count);
  // What contexts will take: of all spares, and of so many workers beside them that are still to be taken.
  size_t ContextBytesToCome(size_t workers) const;
  const GpuWorkersOptions& options() const { return options_; }
  size_t spares(bool may_compile) const { return (may_compile ? compiling_spares_ : spares_).size(); }
  int64_t started() const { return started_; }  // workers, until now

 private:
  std::deque<WarmWorker>& SparesOf(bool may_compile) { return may_compile ? compiling_spares_ : spares_; }
  bool HasFew(bool may_compile, size_t thirds) const {
    return (has_compiling_ || !may_compile) && 3 * spares(may_compile) < thirds * kept_spares_;
  }
  size_t ColdSpares() const;
  bool HasRoomForContext() const;
  void RefillOf(bool may_compile);
  WarmWorker Start(bool may_compile);
  void MakeWarm(WarmWorker* worker, bool may_compile);

  PythonWorkers& workers_;
  GpuWorkersOptions options_;
  std::optional<int> processor_;  // of timed workers
  size_t kept_spares_;
  bool has_compiling_ = false;  // one that may compile was taken
  std::deque<WarmWorker> spares_, compiling_spares_;
  int64_t started_ = 0;
};

}  // namespace kevin
