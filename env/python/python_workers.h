#pragma once
// The evaluator's side of the workers (env/python/worker.py): one process that has imported torch, from which a sandboxed
// process for each candidate in Python, and one for the reference, is forked within 50 ms. One thread.

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "env/process/shared_memory.h"
#include "env/process/spawn.h"

namespace kevin {

// A Python with torch, as env/python/python_kind.h finds it, and what its workers need.
struct PythonSetup {
  std::string python;                // the interpreter
  std::string script;                // worker.py
  std::string library;               // kevin-python-worker.so
  std::string torch_version;         // "2.11.0+cu130"
  std::vector<std::string> folders;  // readable in the sandbox, beside the system's
};
nlohmann::json PythonSetupToJson(const PythonSetup& setup);
PythonSetup PythonSetupFromJson(const nlohmann::json& json);
// All that a worker sees beside the system's: `folders`, and those of the script and of the library. Read-only.
std::vector<std::filesystem::path> FoldersOf(const PythonSetup& setup);

// What a worker gets beside its memory: a JSON object (env/python/worker.py) and the descriptors.
enum JobDescriptor { kJobPage, kJobInputs, kJobArena, kJobBundle, kJobLog, kJobText, kJobDescriptors };

// Of workers on a GPU.
struct GpuOfWorkers {
  int capability = 0;  // 90: what Triton compiles for
};

class PythonWorkers {
 public:
  // Starts the process; torch is imported meanwhile. This process becomes the parent of its orphans. `gpu`: its workers
  // may use the GPU (env/python/gpu_worker.py), with one thread of the CPU.
  PythonWorkers(PythonSetup setup, int threads, bool namespaces,
                const std::optional<GpuOfWorkers>& gpu = std::nullopt);

  // A worker that waits for its job on `socket`, the other end of the caller's. Blocks while torch is imported. Throws
  // Error(kBroken).
  ChildProcess Fork(int socket);
  // Fork in two steps: several may be asked for before the first is awaited, and they come in the order of asking.
  void Ask(int socket);
  ChildProcess Await();

  const PythonSetup& setup() const { return setup_; }

 private:
  PythonSetup setup_;
  Fd socket_;
  ChildProcess process_;
};

// Once for each worker; twice on a GPU, where the second message has the worker's pool in place of the page, which came with
// the first one (env/gpu/judge/python_side.h). Throws Error(kBroken) when it has ended.
void SendJob(int socket, const std::string& text, const int (&descriptors)[kJobText]);

}  // namespace kevin
