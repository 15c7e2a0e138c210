#pragma once
// Admission: a problem counts only if wrong answers fail on it and honest ones pass. Decoys and honest
// alternatives run against each problem's own check; both tables are printed. The honest alternatives are
// float32's and left out in other precisions.

#include <string>
#include <vector>

#include "env/problem.h"

namespace kevin {

struct AdmissionOptions {
  std::string size = "small";
  std::string inputs = "default";  // or "kernelbench": U[0,1)
  std::string precision = "fp32";  // of the problems, for the reports
  bool json = false;               // `decoy` and `admission` events, one JSON object a line
  int threads = 0;                 // 0: all cores of this process
};

// Prints to stdout as it goes and returns an ExitCode value. Throws Error as Environment does.
int RunAdmission(const std::vector<Problem>& problems, const AdmissionOptions& options);

}  // namespace kevin
