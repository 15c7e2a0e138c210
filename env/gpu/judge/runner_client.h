#pragma once
// The evaluator's handle of one GPU runner: starts it, gives it the shared memory, and returns the result of
// each request as a value. A runner that faults, hangs or ends is killed; the object is then `dead`.

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "env/gpu/runner/candidate_module.h"
#include "env/sandbox/sandbox.h"

namespace kevin {

struct RunnerFault {
  enum class Kind { kFault, kHung, kDied };  // a driver error, no answer in time, the process has ended
  Kind kind = Kind::kFault;
  std::string message;
};

struct RunnerOptions {
  std::string program;  // kevin-gpu-runner
  int device = 0;
  bool namespaces = true;
};

class RunnerClient {
 public:
  // Starts the process, which makes its context in the background: a spare is ready when it is needed.
  explicit RunnerClient(const RunnerOptions& options);
  // Waits for the context and passes the memory. Throws Error(kMachine) when the runner cannot start.
  void Open(const SharedDeviceMemory& inputs, const SharedDeviceMemory& outputs, const SlotMemory& memory,
            const std::string& trusted_cubin);

  std::optional<RunnerFault> Load(const LaunchPlan& plan, double timeout_s);
  std::optional<RunnerFault> Time(int slot, double timeout_s, double* us);
  // `repeat` calls in one request. *wall_us is by the clock of this process.
  struct Repeated {
    bool prepared = true, called = true;  // with the preparation of a timed call; with the call itself
  };
  std::optional<RunnerFault> Repeat(int slot, int repeat, Repeated what, double timeout_s, double* wall_us);
  std::optional<RunnerFault> Probe(uint64_t out, uint64_t in, int64_t vectors, int blocks, double* us);
  std::optional<RunnerFault> Canary(uint64_t out, int words, uint32_t seed);
  std::optional<RunnerFault> Unload();
  bool dead() const { return dead_; }

 private:
  std::optional<RunnerFault> Ask(const nlohmann::json& request, double timeout_s, nlohmann::json* answer);

  ChildProcess process_;
  Fd socket_;
  bool dead_ = false;
};

}  // namespace kevin
