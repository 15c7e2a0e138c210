// Kernels in fp16 and bf16 on a GPU: correct ones are measured, incorrect ones are wrong. Without a GPU this
// is skipped.

#include <algorithm>
#include <cstdio>
#include <vector>

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

// Its intermediates take gigabytes, its outputs little; its outputs in 16 bits are judged by the truth now and then. Uniform
// inputs, since eager takes longer for some members of the mixture.
TEST_CASE("eager is warm in every slot from the first evaluation of a session on") {
  if (!SharedGpu(kCallTimeout_s)) return;
  EvaluateOptions options;
  options.workload.inputs = "kernelbench";
  options.workload.size = "full";
  const Problem problem = ProblemIn("level3/31", Precision::kBf16);
  const std::string text = testing::SearchText(problem, "full", "cuda");
  const Evaluation evaluation = SharedGpu(kCallTimeout_s)->Evaluate(problem, {"cuda", text}, options);
  Print("search for level3/31 in bf16", evaluation.outcome);
  REQUIRE(std::holds_alternative<Measured>(evaluation.outcome));
  std::vector<double> eager_us;
  for (const Sample& sample : evaluation.samples) {
    if (sample.side == "reference" && (sample.phase == "sequential" || sample.phase == "fixed"))
      eager_us.push_back(sample.total_us);
  }
  REQUIRE(eager_us.size() >= 10);
  std::sort(eager_us.begin(), eager_us.end());
  std::printf("  eager: %.0f to %.0f us\n", eager_us.front(), eager_us.back());
  CHECK(eager_us.back() < 1.3 * eager_us.front());
}

TEST_CASE("correct CUDA kernels in 16 bits at full size are measured, and those that save digits are wrong") {
  if (SharedGpu(kCallTimeout_s)) JudgeAll("full");
}

}  // namespace kevin
