#pragma once
// The sandbox of the processes that run references. A reference is a text of others: it is checked
// (env/reference/operators.h), and the process that runs it can write no file but the device locks, reads
// only what libtorch and the candidates' runners need, and has no network.

#include <filesystem>
#include <vector>

namespace kevin {

struct EvaluatorSandbox {
  bool namespaces = true;  // the process was started in new namespaces (sees_processes)
  bool gpu = false;
  std::vector<std::filesystem::path> visible;  // the programs to start, and the folder of compiled kernels
};

// Called once, before any other thread is started and before the first problem is read. Afterwards
// KEVIN_LOCK_DIRECTORY is set, and /proc/self/exe no longer names the program. Ends the process with a message
// on stderr when a layer that this machine has fails.
void EnterEvaluatorSandbox(const EvaluatorSandbox& options);

// The same for a process that an evaluator has started for references alone: it starts nothing and writes to
// no file. `visible` is not needed.
void EnterReferenceSandbox();

}  // namespace kevin
