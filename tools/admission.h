#pragma once
// Admission: a problem counts only if wrong answers fail on it and right ones pass. Decoys, the reference's
// own answers and honest alternatives run against each problem's own check; all tables are printed. The
// honest alternatives are float32's and left out in other precisions.

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
  std::string device = "cpu";     // or "cuda:N", where honest kernels, which are C++, take no part
  std::filesystem::path results;  // kept here too, and what is there already is not done again; empty: none
  double seconds = 0;             // begin no further problem after so many; 0: no limit
};

struct AdmissionRow {
  std::string name;
  bool must_pass = false;
  bool passed = false;
  std::string reason;
  bool told_apart = true;  // false: right, as far as the outputs' type can tell; counts neither way
};

struct AdmissionResult {
  std::vector<AdmissionRow> rows;
  std::string reason;  // why the problem is not admitted; empty when it is
  int Count(bool must_pass, bool passed) const;
};

// Runs decoys and honest kernels on the CPU, at each shape of options.size, and prints nothing. Throws Error
// as Environment does.
AdmissionResult Admit(CpuEnvironment& environment, const Problem& problem, const EvaluateOptions& options);

// Prints to stdout as it goes and returns an ExitCode value: kBroken when a problem could not be judged,
// which does not keep the others from it. Throws Error as Environment does, and after three such problems in
// a row.
int RunAdmission(const std::vector<Problem>& problems, const AdmissionOptions& options);

}  // namespace kevin
