#pragma once
// Looks at a GPU candidate with NVIDIA's own tools where they are installed: the hardware's counters (ncu),
// memory and race checks (compute-sanitizer), machine code (nvdisasm), what the device code prints. None of
// it is part of a verdict or a time. The candidate makes one call in kevin-gpu-examiner, in namespaces and a
// root folder of its own with the tool in it; Landlock is off there and the list of system calls longer,
// since the tools work with processes and sockets (no network all the same).
//
// One thread. Throws Error(kMachine) when a tool is not there or fails by itself (no right to the counters).

#include <filesystem>
#include <string>
#include <vector>

#include "env/problem/problem.h"
#include "env/process/generator.h"

namespace kevin {

class WorkFolder;

struct ExaminerOptions {
  std::filesystem::path program;         // kevin-gpu-examiner
  std::filesystem::path work_directory;  // a folder for temporary folders
  std::filesystem::path trusted_cubin;   // file with Kevin's own kernels
  int device = 0;
  bool namespaces = true;
  InputMode inputs = InputMode::kDefault;
  double timeout_s = 120;
};

// What one of compute-sanitizer's checks found.
struct CheckReport {
  std::string tool;     // "memcheck", "racecheck", "initcheck"
  int errors = 0;       // that it counted
  std::string finding;  // the first one in a few lines; empty: none
  int line = 0;         // of the candidate's text, where the first one is; 0: unknown
};

class Examiner {
 public:
  explicit Examiner(ExaminerOptions options) : options_(std::move(options)) {}

  // "ncu", "compute-sanitizer", "nvdisasm": in $KEVIN_CUDA/bin, $CUDA_HOME/bin, on the PATH, in
  // /usr/local/cuda/bin. Empty: not on this machine.
  static std::filesystem::path FindTool(const std::string& name);

  // The machine code as text, with the source's lines between.
  std::string Disassemble(const std::string& cubin) const;
  // `plan` is LaunchPlanToText; the call is made on inputs of the problem's own kind.
  CheckReport Check(const std::string& tool, const SizedProblem& sized, const std::string& plan) const;
  // Two or three sentences a kernel. `report`, if not empty, is where ncu's own file goes.
  std::string Profile(const SizedProblem& sized, const std::string& plan,
                      const std::filesystem::path& report) const;
  // What the device code printed, and how the call failed if it did.
  std::string Print(const SizedProblem& sized, const std::string& plan) const;

 private:
  struct Outcome;
  Outcome RunIn(const WorkFolder& work, const std::vector<std::string>& command, bool on_device) const;
  std::vector<std::string> Target() const;

  ExaminerOptions options_;
};

}  // namespace kevin
