#pragma once
// Judges candidates of kinds `cuda` and `ptx` on one NVIDIA GPU (env/environment.h): builds them (env/gpu/gpu_build.h)
// and lets the evaluator (env/gpu/judge/gpu_evaluator.h) verify and time them. Python kinds: env/gpu/gpu_python.h. Further
// requests, for tools: examination (env/gpu/gpu_examination.h), admission, preparation.

#include <memory>
#include <string>
#include <vector>

#include "env/environment.h"
#include "env/gpu/find_gpus.h"
#include "env/gpu/gpu_examination.h"
#include "env/verdict/admission.h"

namespace kevin {

// The cost of everything before a first candidate of a problem can be judged (env/gpu/judge/gpu_judge.h).
struct Preparation {
  double session_s = 0, draw_s = 0, reference_s = 0, truth_s = 0;
  double reference_us = 0;  // eager, warm
  int slots = 0;
  int64_t used_bytes = 0, total_bytes = 0;  // of the GPU's memory
};

// MakeEnvironment gives one of these for a GPU.
class GpuEnvironment : public Environment {
 public:
  // Throws Error(kMachine) when a required tool is missing.
  virtual Examination Examine(const Problem& problem, const Candidate& candidate,
                              const ExamineOptions& options) = 0;
  // Puts each decoy and correct answer (env/verdict/admission.h) through the check of the problem, on the
  // device.
  virtual std::vector<DecoyResult> Admit(const Problem& problem, const EvaluateOptions& options) = 0;
  // Runs reference, inputs and truth of a problem once. Throws Error where they do not fit.
  virtual Preparation Prepare(const Problem& problem, const EvaluateOptions& options) = 0;
};

// Throws Error(kMachine) when the GPU, its driver, NVRTC or torch's CUDA part is not usable.
std::unique_ptr<GpuEnvironment> MakeGpuEnvironment(const EnvironmentOptions& options, const GpuFound& gpu);

}  // namespace kevin
