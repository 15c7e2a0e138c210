#pragma once
// Admission: a problem counts only if incorrect answers fail on it and correct ones pass. Decoys, the reference's own
// answers and the alternatives (env/problem/problem.h) run against each problem's check; all tables are printed.
// Alternatives are for float32; in other precisions they are left out. On a CPU the problem's Python form is tried as well,
// correct and with mistakes, under the rules `open` (PythonAnswers in env/problem/python_model.h).

#include <filesystem>
#include <string>
#include <vector>

#include "agent/json.h"
#include "env/cpu/cpu_environment.h"
#include "env/problem/problem.h"

namespace kevin {

struct AdmissionOptions {
  Workload workload;  // size empty: small on the CPU, full on a GPU; precision: of the problems given
  bool json = false;  // `decoy` and `admission` events, one JSON object a line
  int threads = 0;    // 0: all cores of this process
  std::string device = "cpu";     // or "cuda:N", where only decoys run
  std::filesystem::path results;  // also kept in this file, and what it has is not done again; empty: no file
  double seconds = 0;             // begin no further problem after this time; 0: no limit
};

struct AdmissionRow {
  std::string name;
  bool must_pass = false;
  bool passed = false;
  std::string reason;
  bool is_distinguishable = true;  // false: correct to the precision of the outputs' type; counts neither way
};

struct AdmissionResult {
  std::vector<AdmissionRow> rows;
  std::string reason;            // why the problem is not admitted; empty when it is
  std::string python_not_tried;  // why there are no rows of kernels in Python; empty: there are
  int Count(bool must_pass, bool passed) const;
};

// Runs decoys and alternatives on the CPU, at each shape of options.size, and prints nothing. Throws Error
// as Environment does.
AdmissionResult Admit(CpuEnvironment& environment, const Problem& problem, const EvaluateOptions& options);

// Adds what PythonAnswers of the problem give, at each shape, or why they were not tried: this machine has no Python
// with torch or cannot isolate it, or the kind does not take the problem. Throws Error as Environment does for
// all else.
void TryInPython(CpuEnvironment& environment, const Problem& problem, const EvaluateOptions& options,
                 AdmissionResult* result);

// Prints to stdout as it goes and returns an ExitCode value: kBroken when a problem could not be judged;
// the others are judged all the same. Throws Error as Environment does, and after three such problems in
// a row.
int RunAdmission(const std::vector<Problem>& problems, const AdmissionOptions& options);

// --- `--results FILE`: what was found, one JSON object a line as --json prints it, so that a long admission can
// be done in slices and go on where it stopped ---

// One problem's admission.
struct AdmissionRecord {
  std::string problem, problem_hash;
  Workload workload;
  std::string device;
  std::string reason = {};          // why it is not admitted; empty: it is
  std::string error = {};           // why that is unknown: the problem could not be judged
  int decoys = 0, rejected = 0;     // incorrect answers
  int right = 0, right_passed = 0;  // correct answers: alternatives and the reference's own
  int too_near = 0;  // decoys that are not distinguishable (env/verdict/admission.h), counted nowhere else
  std::string python_not_tried = {};  // of the AdmissionResult
  double seconds = 0;
};

// The `admission` event and back; other events give a record without a problem.
Json ToJson(const AdmissionRecord& record);
AdmissionRecord AdmissionFromJson(const nlohmann::json& json);

class AdmissionLog {
 public:
  // "" keeps nothing. Unreadable lines, such as one cut off by a kill, are skipped. Throws
  // Error(kBadRequest) when the file is there and cannot be opened.
  explicit AdmissionLog(std::filesystem::path file);

  // The latest of the same problem text, size, inputs, device and precision that has no error; else null.
  const AdmissionRecord* Find(const AdmissionRecord& wanted) const;
  // The events of one problem, the `admission` event last. Throws Error(kBroken) when they cannot be written.
  void Add(const std::vector<Json>& events, const AdmissionRecord& record);

 private:
  std::filesystem::path file_;
  std::vector<AdmissionRecord> records_;
};

}  // namespace kevin
