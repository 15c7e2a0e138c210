#pragma once
// The evaluator's handle of one GPU runner: starts it, gives it the shared memory, and returns the result of
// each request as a value. A runner that faults, hangs or ends is killed; the object is then `dead`.

#include <chrono>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "env/gpu/runner/candidate_module.h"
#include "env/process/random.h"
#include "env/sandbox/sandbox.h"

namespace kevin {

struct RunnerFault {
  // A driver error, the device has too little memory, no answer in time, the process has ended.
  enum class Kind { kFault, kOutOfMemory, kHung, kDied };
  Kind kind = Kind::kFault;
  std::string message;
};

struct RunnerOptions {
  std::string program;  // kevin-gpu-runner
  int device = 0;
  bool namespaces = true;
};

// Of one call, by the events of the runner and by the clock of this process: from the start that this process
// gives, when the device is ready, to the news that it is done. The second contains the first, and the way
// there and back.
struct CallTimes {
  double event_us = 0, wall_us = 0;
};

class RunnerClient {
 public:
  // Starts the process, which makes its context in the background: a spare is ready when it is needed.
  explicit RunnerClient(const RunnerOptions& options);
  ~RunnerClient();
  RunnerClient(const RunnerClient&) = delete;
  RunnerClient& operator=(const RunnerClient&) = delete;
  // Waits for the context. Throws Error(kMachine) when the runner cannot start.
  void AwaitGreeting();
  // Waits for the context and passes the memory, in place of that of an earlier call. Throws Error(kMachine) when the runner
  // cannot start.
  void Open(const SharedDeviceMemory& inputs, const SharedDeviceMemory& outputs, const SlotMemory& memory,
            const std::string& trusted_cubin);

  std::optional<RunnerFault> Load(const LaunchPlan& plan, double timeout_s);
  // One call on the slot, or, not `called`, an empty one: with all that surrounds a call, and without the
  // candidate's code. `seed` is that of the poison in workspaces and shared memory: secret and new. `keeps_globals`:
  // __device__ variables are not restored.
  std::optional<RunnerFault> Time(int slot, bool called, uint64_t seed, double timeout_s, CallTimes* times,
                                  bool keeps_globals = false);
  // One call with an event after each operation of the plan; *times_us has one time an operation. Not for a verdict.
  std::optional<RunnerFault> TimeOperations(int slot, uint64_t seed, double timeout_s,
                                            std::vector<double>* times_us);
  std::optional<RunnerFault> Probe(uint64_t out, uint64_t in, int64_t vectors, int blocks, uint64_t seed,
                                   CallTimes* times);
  std::optional<RunnerFault> Canary(uint64_t out, int words, uint32_t seed);
  std::optional<RunnerFault> Unload();
  // Unmaps the memory.
  std::optional<RunnerFault> Close();
  bool dead() const { return dead_; }
  // Ids of the processes of all objects, also of those that have ended.
  static std::vector<int> ProcessIds();

 private:
  std::optional<RunnerFault> Ask(const nlohmann::json& request, double timeout_s, nlohmann::json* answer);
  std::optional<RunnerFault> AskTimed(const nlohmann::json& request, double timeout_s, CallTimes* times);
  std::optional<RunnerFault> Receive(std::chrono::steady_clock::time_point start, double timeout_s,
                                     nlohmann::json* answer);
  RunnerFault NoAnswer(bool is_late);
  RunnerFault End(RunnerFault::Kind kind, const std::string& message);

  ChildProcess process_;
  Fd socket_;
  bool dead_ = false, has_greeted_ = false, has_trusted_ = false;  // has_trusted_: the trusted kernels
  SecretRandom random_;
};

}  // namespace kevin
