#pragma once
// The forms in which `kevin export` writes one kernel: its source, CUDA C++ text with launch code, and a
// PyTorch extension.

#include <string>

#include "trajectories/store.h"

namespace kevin {

struct KernelExport {
  std::string form;    // "": the source; "cu" or "torch-extension"
  std::string output;  // file or folder; "-": standard output (not a folder); "": by_default with an ending
  std::string by_default;  // "EPISODE-TURN"
  std::string heading;     // comment lines on top of the file
  bool force = false;      // overwrite
};

// Writes the turn's kernel and says on stderr where it is and how it is built. Throws Error(kBadRequest) where
// the kernel has no such form.
void ExportKernel(const KernelExport& request, Store& store, const EpisodeRecord& episode,
                  const TurnRecord& turn);

// A C++ kernel as a file that compiles alone: heading, the constants that Kevin puts in scope (shape symbols,
// offsets of a parameter block, in bf16 the type), then the source. The constants are skipped where Kevin
// judges the file again, because it defines them itself.
std::string StandaloneCpp(const SizedProblem& problem, const std::string& heading, const std::string& source);

}  // namespace kevin
