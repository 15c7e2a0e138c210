#pragma once
// The evaluator's side of one GPU runner: starts it, hands it the shared memory, and turns what becomes of a
// request into a value. A runner that faults, hangs or dies is killed; the object is then `dead`.

#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "env/gpu/runner/candidate_module.h"
#include "env/sandbox/sandbox.h"

namespace kevin {

struct RunnerFault {
  enum class Kind { kFault, kHung, kDied };  // a driver error, no answer in time, the process is gone
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
  // Starts the process, which makes its context on its own time: a spare costs nothing when it is needed.
  explicit RunnerClient(const RunnerOptions& options);
  // Waits for the context and hands the memory over. Throws Error(kMachine) when the runner cannot start.
  void Open(const SharedDeviceMemory& inputs, const SharedDeviceMemory& outputs, const SlotMemory& memory,
            const std::string& trusted_cubin);

  std::optional<RunnerFault> Load(const LaunchPlan& plan, double timeout_s);
  std::optional<RunnerFault> Time(int slot, double timeout_s, double* us);
  // `repeat` times in one go. *wall_us is this process's own clock.
  struct Repeated {
    bool prepared = true, called = true;  // what precedes a timed call; the call itself
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
