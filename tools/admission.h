#pragma once
// Admission: a problem counts only if incorrect answers fail on it and correct ones pass. Decoys, the reference's own
// answers and the alternatives (env/problem/problem.h) run against each problem's check; all tables are printed.
// Alternatives are for float32; in other precisions they are left out.

#include <filesystem>
#include <string>
#include <vector>

#include "env/cpu/cpu_environment.h"
#include "env/problem/problem.h"

namespace kevin {

struct AdmissionOptions {
  Workload workload;  // size empty: small on the CPU, full on a GPU; precision: of the problems given
  bool json = false;  // `decoy` and `admission` events, one JSON object a line
  int threads = 0;    // 0: all cores of this process
  std::string device = "cpu";     // or "cuda:N", without the alternatives, which are C++
  std::filesystem::path results;  // kept here too, and what is there already is not done again; empty: none
  double seconds = 0;             // begin no further problem after so many; 0: no limit
};

struct AdmissionRow {
  std::string name;
  bool must_pass = false;
  bool passed = false;
  std::string reason;
  bool distinguishable = true;  // false: right, as far as the outputs' type can tell; counts neither way
};

struct AdmissionResult {
  std::vector<AdmissionRow> rows;
  std::string reason;  // why the problem is not admitted; empty when it is
  int Count(bool must_pass, bool passed) const;
};

// Runs decoys and alternatives on the CPU, at each shape of options.size, and prints nothing. Throws Error
// as Environment does.
AdmissionResult Admit(CpuEnvironment& environment, const Problem& problem, const EvaluateOptions& options);

// Prints to stdout as it goes and returns an ExitCode value: kBroken when a problem could not be judged,
// which does not keep the others from it. Throws Error as Environment does, and after three such problems in
// a row.
int RunAdmission(const std::vector<Problem>& problems, const AdmissionOptions& options);

}  // namespace kevin
