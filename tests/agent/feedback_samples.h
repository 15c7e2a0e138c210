#pragma once
// Evaluations of a ReLU kernel on a CPU and on a GPU, and the feedback on them.

#include <string>

#include "agent/feedback.h"
#include "tests/support/fakes.h"

namespace kevin::testing {

inline const std::string kSource =
    "#include <cmath>\n"
    "extern \"C\" void launch(const float* x, float* out) {\n"
    "  for (long i = 0; i < B * N; ++i) out[i] = std::max(y[i], 0.0f);\n"
    "}\n";

inline std::string FeedbackOn(const Outcome& outcome, const std::string& log = "",
                              const std::string& cached_from = "", const Diagnosis* diagnosis = nullptr) {
  static const Problem problem = ReluProblem();
  static const SizedProblem sized = AtSize(problem, "small");
  Evaluation evaluation;
  evaluation.device = "cpu: AMD EPYC, 2 threads";
  evaluation.peak_gb_per_s = 40;
  evaluation.peak_gflop_per_s = 200;
  evaluation.outcome = outcome;
  evaluation.log = log;
  evaluation.cached_from = cached_from;
  FeedbackContext context{kSource, &sized, 2, "cpp", {}, diagnosis};
  context.cache_bytes = 32 << 20;  // both tensors fit
  return Feedback(evaluation, context);
}

inline Measured SomeMeasured(double speedup, Verdict verdict) {
  Measured m;
  m.speedup = {speedup, speedup * 0.98, speedup * 1.02, 0.01, 30, 3};
  m.verdict = verdict;
  m.reference_us = 160.25;
  m.candidate_us = 160.25 / speedup;
  m.gb_per_s = 12.5 * speedup;
  m.gflop_per_s = 1.5625 * speedup;
  m.floor_us = 4;  // of the judge: nobody is told it
  return m;
}

// The same problem's candidate on a GPU.
inline std::string FeedbackOnGpu(Evaluation evaluation, const Outcome& outcome,
                                 const Diagnosis* diagnosis = nullptr) {
  static const Problem problem = ReluProblem();
  static const SizedProblem sized = AtSize(problem, "full");
  evaluation.outcome = outcome;
  return Feedback(evaluation,
                  {"__global__ void f(float* y) {\n  y[0] = z;\n}\n", &sized, 1, "cuda", {}, diagnosis});
}

inline Evaluation OnGpu() {
  Evaluation evaluation;
  evaluation.device = "cuda:0: NVIDIA H200";
  evaluation.kernels = {{"relu<4>", "132 x 1 x 1", "256 x 1 x 1", 40, 0, 16384, 0, 0, 0.75, "registers"}};
  evaluation.peak_gb_per_s = 4000;
  evaluation.peak_gflop_per_s = 60000;
  return evaluation;
}

inline Measured GpuMeasured(double gb_per_s, double gflop_per_s, Verdict verdict = Verdict::kFast) {
  Measured m = SomeMeasured(1.5, verdict);
  m.gb_per_s = gb_per_s;
  m.gflop_per_s = gflop_per_s;
  m.floor_us = 0;
  return m;
}

}  // namespace kevin::testing
