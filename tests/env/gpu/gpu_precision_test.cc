// Kernels in fp16 and bf16 on a GPU: correct ones are measured, incorrect ones are wrong. Without a GPU this
// is skipped.

#include <cstdio>

#include "tests/catch.h"
#include "tests/env/cpu/cpu_fixture.h"
#include "tests/env/cpu/precision_search.h"
#include "tests/env/gpu/gpu_fixture.h"

namespace kevin {
namespace {

constexpr double kCallTimeout_s = 20;

void JudgeAll(const std::string& size) {
  EvaluateOptions options;
  options.workload.size = size;
  for (const Precision precision : {Precision::kFp16, Precision::kBf16}) {
    for (const PrecisionKernel& kernel : kPrecisionKernels) {
      const Outcome outcome =
          SharedGpu(kCallTimeout_s)
              ->Evaluate(ProblemIn(kernel.problem, precision),
                         {"cuda", PrecisionKernelText(kernel.file, "cu", precision)}, options)
              .outcome;
      Print(std::string(kernel.file) + " in " + PrecisionName(precision) + ", " + size, outcome);
      INFO(kernel.file << " in " << PrecisionName(precision) << ": " << OutcomeReason(outcome));
      CHECK(std::string(OutcomeName(outcome)) == (kernel.is_correct ? "measured" : "wrong"));
    }
  }
}

}  // namespace

TEST_CASE("correct CUDA kernels in 16 bits are measured, and those that save digits are wrong") {
  if (SharedGpu(kCallTimeout_s)) JudgeAll("small");
}

TEST_CASE("what the search writes in 16 bits is measured") {
  if (!SharedGpu(kCallTimeout_s)) return;
  EvaluateOptions options;
  options.workload.size = "full";
  for (const Precision precision : {Precision::kFp16, Precision::kBf16}) {
    for (const char* id : kSearchedProblems) {
      std::string why;
      const Problem problem = ProblemIn(id, precision);
      const std::string text = testing::SearchText(problem, "full", "cuda", &why);
      const Outcome outcome = SharedGpu(kCallTimeout_s)->Evaluate(problem, {"cuda", text}, options).outcome;
      Print(std::string("search for ") + id + " in " + PrecisionName(precision), outcome);
      INFO(id << ": " << why << OutcomeReason(outcome));
      CHECK(std::string(OutcomeName(outcome)) == "measured");
    }
  }
}

TEST_CASE("the same at full size") {
  if (SharedGpu(kCallTimeout_s)) JudgeAll("full");
}

}  // namespace kevin
