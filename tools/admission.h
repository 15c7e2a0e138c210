#pragma once
// Admission: a problem counts only if wrong answers fail on it and honest ones pass. Decoys and honest
// alternatives run against each problem's own check; both tables are printed.

#include <string>
#include <vector>

#include "env/cpu_environment.h"
#include "env/problem.h"

namespace kevin {

struct AdmissionOptions {
  std::string size = "small";
  std::string inputs = "default";  // or "kernelbench": U[0,1)
  bool json = false;               // `decoy` and `admission` events, one JSON object a line
  int threads = 0;                 // 0: all cores of this process
};

struct AdmissionRow {
  std::string name;
  bool must_pass = false;
  bool passed = false;
  std::string reason;
};

struct AdmissionResult {
  std::vector<AdmissionRow> rows;
  std::string reason;  // why the problem is not admitted; empty when it is
  int Count(bool must_pass, bool passed) const;
};

// Runs decoys and honest kernels and prints nothing. Throws Error as Environment does.
AdmissionResult Admit(CpuEnvironment& environment, const Problem& problem, const EvaluateOptions& options);

// Prints to stdout as it goes and returns an ExitCode value. Throws Error as Environment does.
int RunAdmission(const std::vector<Problem>& problems, const AdmissionOptions& options);

}  // namespace kevin
