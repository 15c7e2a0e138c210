#pragma once
// Between the parts of kevin-python-worker.so.

#include <cstddef>

#include "env/sandbox/sandbox.h"

namespace kevin {

// Offsets of outputs that a worker names count from here (KevinPublish).
void SetArena(std::byte* arena);

// With what holds for all workers: it ends with its parent, and abort() ends it. Once, with one thread.
void EnterWorkerSandbox(const SandboxOptions& options);

}  // namespace kevin
