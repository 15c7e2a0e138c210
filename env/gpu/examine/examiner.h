#pragma once
// START HERE for tools. Examines a GPU candidate with NVIDIA's tools where they are installed: hardware counters
// (ncu), memory and race checks (compute-sanitizer), machine code (nvdisasm), output of device code. None of it is
// part of a verdict or a time. The candidate makes one call in kevin-gpu-examiner, in namespaces and a root folder of
// its own together with the tool. Landlock is off there and the list of system calls is longer, since the tools work
// with processes and sockets; there is still no network.
//
// One thread. Throws Error(kMachine) when a tool is missing or fails by itself (no permission for the
// counters).

#include <filesystem>
#include <string>
#include <vector>

#include "env/problem/problem.h"
#include "env/process/generator.h"

namespace kevin {

class WorkFolder;

struct ExaminerOptions {
  std::filesystem::path program;         // kevin-gpu-examiner
  std::filesystem::path work_directory;  // for temporary folders
  std::filesystem::path trusted_cubin;   // file with Kevin's own kernels
  int device = 0;
  bool namespaces = true;
  InputMode inputs = InputMode::kDefault;
  double timeout_s = 120;
};

// The result of one check of compute-sanitizer.
struct CheckReport {
  std::string tool;     // "memcheck", "racecheck", "initcheck"
  int errors = 0;       // counted by the tool
  std::string finding;  // the first one in a few lines; empty: none
  int line = 0;         // of the first one in the candidate's text; 0: unknown
};

class Examiner {
 public:
  explicit Examiner(ExaminerOptions options) : options_(std::move(options)) {}

  // "ncu", "compute-sanitizer", "nvdisasm": in $KEVIN_CUDA/bin, $CUDA_HOME/bin, on the PATH, in
  // /usr/local/cuda/bin. Empty: not on this machine.
  static std::filesystem::path FindTool(const std::string& name);

  // The machine code as text, interleaved with source lines.
  std::string Disassemble(const std::string& cubin) const;
  // `plan` is LaunchPlanToText; the call uses inputs of the problem's own distribution.
  CheckReport Check(const std::string& tool, const SizedProblem& sized, const std::string& plan) const;
  // Two or three sentences a kernel. `report`, if not empty, is the path for the file of ncu.
  std::string Profile(const SizedProblem& sized, const std::string& plan,
                      const std::filesystem::path& report) const;
  // The output of the device code, and the error of the call if it failed.
  std::string Print(const SizedProblem& sized, const std::string& plan) const;

 private:
  struct Outcome;
  Outcome RunIn(const WorkFolder& work, const std::vector<std::string>& command, bool on_device) const;
  std::vector<std::string> Target() const;

  ExaminerOptions options_;
};

// Reads the output of compute-sanitizer. `source_name` is the file name of the candidate's text in the line
// table of the machine code. Pure.
CheckReport ReadCheckReport(const std::string& tool, const std::string& output,
                            const std::string& source_name);

// From the counters of Nsight Compute to sentences for users and policies. Pure. counters.cc.

// The counters to collect, in one comma-separated list.
std::string CounterNames();

// `csv` is the output of `ncu --csv --page raw` (other lines around it are skipped): one row for each launch.
// Launches of one kernel are combined; at most three kernels, the longest first. Empty when there is no
// table.
std::string CounterSentences(const std::string& csv);

}  // namespace kevin
