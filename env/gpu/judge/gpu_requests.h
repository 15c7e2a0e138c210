#pragma once
// How the evaluator of a GPU (gpu_evaluator.h) answers requests about candidates: those of `cuda` and `ptx`, or those in
// Python. Either keeps the sessions of several problems, as many as fit the device. One thread.

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "env/gpu/judge/gpu_evaluator.h"
#include "env/gpu/judge/gpu_session.h"
#include "env/gpu/runner/driver.h"
#include "env/process/resident_sessions.h"

namespace kevin {

// What requests of both makes need. The evaluator owns it.
struct GpuServing {
  GpuEvaluatorOptions options;
  std::string trusted_cubin;               // its bytes
  const OtherProcesses* others = nullptr;  // on the device
  std::shared_ptr<SpareRunners> spares = std::make_shared<SpareRunners>();
  std::function<void(const std::string& phase)> on_phase;  // tells who waits for the answer

  std::string LockName() const;
  // Bytes for new sessions, references and truths.
  int64_t FreeBytes() const;
  GpuSessionOptions SessionOptionsOf(const nlohmann::json& request) const;
};

class GpuRequests {
 public:
  virtual ~GpuRequests() = default;
  // Throws Error, DriverError, and what torch throws; the sessions are then to be dropped.
  virtual nlohmann::json Answer(const nlohmann::json& request) = 0;
  virtual std::vector<std::string> Sessions() const = 0;  // keys of the resident ones
  virtual void DropSessions() = 0;                        // with everything that takes memory of the device
  virtual void PrepareWhileIdle() {}                      // for the next request
};

// `serving` must outlive them. That for Python is made in the sandbox, and throws Error where there is no Python with torch.
std::unique_ptr<GpuRequests> MakeCudaRequests(const GpuServing& serving);
std::unique_ptr<GpuRequests> MakePythonRequests(const GpuServing& serving);

// Throws OutOfMemory in place of the driver's error of that meaning.
template <typename Work>
nlohmann::json NamingOutOfMemory(const Work& work) {
  try {
    return work();
  } catch (const DriverError& error) {
    if (!error.out_of_memory()) throw;
    throw OutOfMemory(error.text());
  }
}

}  // namespace kevin
