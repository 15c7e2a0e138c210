#pragma once
// The search policy's texts without a judge: what writing and compiling them costs. Needs no GPU.

#include <string>
#include <vector>

namespace kevin {

struct TextBenchOptions {
  std::string suite;                               // as for kevin collect
  std::vector<std::string> kinds, sizes;           // "cpp", "cuda"; "small", "full"
  std::vector<std::string> precisions = {"fp32"};  // "fp16", "bf16"
  bool compiles = false;                           // C++ as candidates are; CUDA by NVRTC, for sm_90a
  std::string folder;                              // keep the texts there; empty: nowhere
};

// Prints one line a text as it goes: processor time of one reply of the policy (the least of three), kernels or
// functions of stages, bytes, and the user time of its compilation; then totals and what exceeds a limit. Texts have the
// first setting of every knob. Processor times, unlike those of a clock, hold on a machine that is busy.
void BenchTexts(const TextBenchOptions& options);

}  // namespace kevin
