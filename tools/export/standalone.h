#pragma once
// One file that shows a kernel's number: it draws inputs, checks the answers against plain loops in double,
// times the kernel and prints the time beside the recorded one. The .cu file needs nvcc alone, the .cpp file
// g++ alone.

#include <optional>
#include <string>

#include "env/problem/problem.h"

namespace kevin {

// What was measured, for the file's heading and its last lines.
struct RecordedTimes {
  std::string episode;  // with its turn, for the heading
  std::string device;
  std::optional<double> candidate_us, reference_us, speedup, speedup_low, speedup_high;
};

struct Standalone {
  std::string text;
  std::string command;  // how it is built and run
  std::string warning;  // not empty: it times but cannot check, and why
};

// `kind` is "cuda" or "cpp"; others throw Error(kBadRequest), as do sources that WriteLaunchCode refuses,
// parameters in one block, and stored inputs.
Standalone WriteStandalone(const SizedProblem& problem, const std::string& kind, const std::string& source,
                           const RecordedTimes& recorded, const std::string& file_name);

}  // namespace kevin
