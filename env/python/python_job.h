#pragma once
// The job of a Python worker, on a CPU and on a GPU: what is called with what (env/python/worker.py).

#include <nlohmann/json_fwd.hpp>

#include "env/problem/problem.h"
#include "env/process/runner_protocol.h"

namespace kevin {

inline constexpr int64_t kPythonFileBytes = int64_t{256} << 20;  // of a candidate's own temporary files
inline constexpr int64_t kPythonCpuLimit_s = 600;

// For the role "reference" or that of a candidate. `layout`: of the memory of its inputs; a worker knows only its
// arguments that are inputs. The caller adds what its memory and limits are. Throws Error(kBadRequest) for a problem with
// input-outputs.
nlohmann::json PythonJob(const SizedProblem& sized, const SlotLayout& layout, int slots, bool is_reference);

}  // namespace kevin
