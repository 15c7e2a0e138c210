#pragma once
// A GPU candidate as ordinary CUDA: its device code, and host code with the launches of its launch function at
// one size. Needs the CUDA run-time and nothing of Kevin's.

#include <string>
#include <vector>

#include "env/gpu/launch/launch_list.h"
#include "env/problem/problem.h"

namespace kevin {

struct LaunchCode {
  // The size symbols and the candidate's device code, then in namespace kevin_launch
  //   static cudaError_t SetUp(cudaStream_t stream)   once per device, before the first Run; waits for `stream`
  //   static cudaError_t Run(char* const* buffers, cudaStream_t stream)
  // where `buffers` are the problem's tensors in the file's order, then the workspaces.
  std::string text;
  std::vector<int64_t> workspace_bytes;
  bool needs_driver = false;  // tensor maps: cuTensorMapEncodeTiled, found through the run-time
};

// `source` is a candidate of kind `cuda`, correct for `problem` at its size. Throws Error(kBadRequest) for
// other kinds and for a source that no longer reads as a candidate.
LaunchCode WriteLaunchCode(const SizedProblem& problem, const std::string& kind, const std::string& source);

// What nvcc needs for instructions of one architecture alone (wgmma), which its flags for the GPU of a machine leave out;
// empty: nothing.
std::string ArchitectureFlag(const std::string& source);

}  // namespace kevin
