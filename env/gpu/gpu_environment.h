#pragma once
// Judges candidates of kinds `cuda` and `ptx` on one NVIDIA GPU (env/environment.h): interprets the launch
// function, compiles and inspects the device code here, and has the evaluator (env/gpu/judge/gpu_evaluator.h)
// verify and time it. And what it can tell beyond a verdict, for tools.

#include <memory>
#include <string>
#include <vector>

#include "env/environment.h"
#include "env/gpu/examine/examiner.h"
#include "env/gpu/find_gpus.h"
#include "env/verdict/admission.h"

namespace kevin {

struct ExamineOptions {
  std::string size = "small";
  std::string inputs = "default";
  bool sass = false;                // the machine code as text
  bool debug = false;               // make one call with printf allowed, and tell what was printed
  std::vector<std::string> checks;  // of compute-sanitizer: "memcheck", "racecheck", "initcheck"
};

struct Examination {
  std::string failure;  // why there is nothing to look at: it does not compile, it is refused
  std::string sass;
  std::string printed;
  std::vector<CheckReport> checks;
};

// What it takes until candidates of a problem can be judged (env/gpu/judge/gpu_admission.h), and what is then in
// use.
struct Preparation {
  double session_s = 0, draw_s = 0, reference_s = 0, truth_s = 0;
  double reference_us = 0;  // eager, warm
  int slots = 0;
  int64_t used_bytes = 0, total_bytes = 0;  // of the GPU's memory
};

// MakeEnvironment gives one of these for a GPU.
class GpuEnvironment : public Environment {
 public:
  // Throws Error(kMachine) when a tool that is needed is not there.
  virtual Examination Examine(const Problem& problem, const Candidate& candidate,
                              const ExamineOptions& options) = 0;
  // Puts each decoy and the reference's own answers through the problem's check, on the device.
  virtual std::vector<DecoyResult> Admit(const Problem& problem, const EvaluateOptions& options) = 0;
  // Reference, inputs and truth of a problem, once. Throws Error where they do not fit.
  virtual Preparation Prepare(const Problem& problem, const EvaluateOptions& options) = 0;
};

// Throws Error(kMachine) when the GPU, its driver, NVRTC or torch's CUDA part is not usable.
std::unique_ptr<GpuEnvironment> MakeGpuEnvironment(const EnvironmentOptions& options, const GpuFound& gpu);

}  // namespace kevin
