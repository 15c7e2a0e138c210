#pragma once
// The workers of candidates in Python on a GPU, from the evaluator's side: their processes and their memory. A worker is
// warm before its candidate comes: forked, in its sandbox, with a context and a pool (env/python/gpu_worker.py). One
// candidate each. To make a context takes a second, to warm up a profiler several, and both disturb what is timed: an
// evaluation takes spares and starts no worker. Their successors warm up between evaluations.
//
// The pool is an allocation of this process: all tensors of the worker's torch lie in it, and this process reads them there.
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
  size_t pool_bytes = 0;
};

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
  SharedDeviceMemory pool;
  WorkerId id;
  bool is_warm = false;  // it has said so
};

// The memory and the process of one worker that makes batches.
class PythonSide {
 public:
  PythonSide(std::string name, WarmWorker worker, int device, size_t inputs_bytes);
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

// Of each kind: a candidate with the kernel it is compared with, or two evaluations in a row.
inline constexpr size_t kWarmSpares = 2;

// One thread. `workers` must outlive it.
class GpuWorkers {
 public:
  GpuWorkers(PythonWorkers& workers, const GpuWorkersOptions& options);
  ~GpuWorkers();

  // A spare; waits until it is warm. Where its kind has none left, one is started and Refill() called. `may_compile`: it may start
  // compilers, and takes no part in timing. Throws Error(kMachine) with the reason where a worker cannot use the GPU.
  WarmWorker Take(bool may_compile);
  // Starts the spares of both kinds that are missing, all at the same time, as far as memory allows, and does not wait for
  // them.
  void Refill();
  // Waits until all spares are warm: the making of a context disturbs what is timed. False: they were.
  bool Settle();
  void DropSpares();  // their pools are memory of the device
  const GpuWorkersOptions& options() const { return options_; }
  int64_t started() const { return started_; }  // workers, until now

 private:
  WarmWorker Start(bool may_compile);
  void MakeWarm(WarmWorker* worker, bool may_compile);

  PythonWorkers& workers_;
  GpuWorkersOptions options_;
  std::optional<int> processor_;  // of timed workers
  std::deque<WarmWorker> spares_, compiling_spares_;
  int64_t started_ = 0;
};

// The bytes of a pool: a share of the free memory of the device, because several exist at a time.
size_t PoolBytes(size_t free_bytes);

}  // namespace kevin
