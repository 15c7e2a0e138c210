#pragma once
// The forms in which `kevin export` writes one kernel: its source, CUDA C++ text with launch code, and a PyTorch
// operator (torch_package.h).

#include <optional>
#include <string>
#include <vector>

#include "env/problem/problem.h"
#include "trajectories/store.h"

namespace kevin {

struct KernelExport {
  std::string form;    // "": the source; "cu" or "torch-package"
  std::string output;  // file or folder; "-": standard output (not a folder); "": by_default with an ending
  std::string by_default;            // "EPISODE-TURN", one component of a path
  std::vector<std::string> heading;  // comments on top of the file, one text a line
  bool force = false;                // overwrite
  bool inference_only = false;       // torch-package: gradients are an error
};

// What stands on top of each file: the comments, then an empty line.
std::string HeadingText(const std::vector<std::string>& heading);

// Writes the turn's kernel and says on stderr where it is and how it is built. Throws Error(kBadRequest) where
// the kernel has no such form.
void ExportKernel(const KernelExport& request, Store& store, const EpisodeRecord& episode,
                  const TurnRecord& turn);

// The problem in the precision of the episode. Nothing where the database has no text of it.
std::optional<Problem> ProblemOfEpisode(Store& store, const EpisodeRecord& episode);

// A C++ kernel as a file that compiles alone: heading, the constants that Kevin puts in scope (shape symbols,
// offsets of a parameter block, in bf16 the type), then the source. The constants are skipped where Kevin
// judges the file again, because it defines them itself.
std::string StandaloneCpp(const SizedProblem& problem, const std::vector<std::string>& heading,
                          const std::string& source);

}  // namespace kevin
