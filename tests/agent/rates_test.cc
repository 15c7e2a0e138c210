// Rates beside the ceilings of the machine, and the advice that follows.

#include "agent/rates.h"

#include <fmt/format.h>

#include <algorithm>

#include "agent/gpu_feedback.h"
#include "env/ceilings.h"
#include "tests/agent/feedback_samples.h"
#include "tests/catch.h"

namespace kevin {
namespace {

using testing::GpuMeasured;
using testing::OnGpu;

}  // namespace

TEST_CASE("the nearer ceiling is the one of which the larger share is reached") {
  Evaluation evaluation = OnGpu();
  CHECK(RooflineOf(GpuMeasured(2000, 250), evaluation).memory == 0.5);
  CHECK(RooflineOf(GpuMeasured(2000, 250), evaluation).nearer == Ceiling::kMemory);
  CHECK(RooflineOf(GpuMeasured(2000, 33000), evaluation).arithmetic == 0.55);
  CHECK(RooflineOf(GpuMeasured(2000, 33000), evaluation).nearer == Ceiling::kArithmetic);
  evaluation.peak_gb_per_s = evaluation.peak_gflop_per_s = 0;
  CHECK(RooflineOf(GpuMeasured(2000, 250), evaluation).nearer == Ceiling::kUnknown);
}

TEST_CASE("products of float32 are near a limit only where tensor cores with split inputs are, too") {
  Problem problem = testing::ReluProblem();
  problem.families = {"matmul"};
  const SizedProblem sized = AtSize(problem, "full");
  Evaluation evaluation = OnGpu();
  evaluation.unit_gflop_per_s = {{kFp32Unit, 60000}, {kTf32Unit, 390000}, {kBf16Unit, 700000}};
  const auto advice = [&](double gflop_per_s, const SizedProblem* of) {
    return CeilingAdvice(GpuMeasured(400, gflop_per_s), evaluation, of);
  };
  CHECK(advice(30000, &sized).empty());
  const std::string at_fma = advice(57000, &sized);
  CHECK(
      at_fma ==
      "The rate of fp32 FMA does not limit this kernel's products on this GPU: TF32 tensor cores reach 390 TFLOP/s. With "
      "float32 inputs split into 2 such parts (3 products in place of one, added up in float32, at full precision) products "
      "can reach 130 TFLOP/s, 2.3 times this rate.");
  CHECK(advice(90000, &sized).find("1.4 times this rate") != std::string::npos);
  CHECK(
      advice(117000, &sized)
          .find(
              "near the measured limit of float32 products on TF32 tensor cores (130 TFLOP/s with inputs "
              "split into 2 parts): a kernel that does all of these operations can at best be 1.11 times as "
              "fast.") != std::string::npos);
  CHECK(advice(160000, &sized).empty());  // it does fewer operations
  // Elementwise work has no products; TF32 needs no parts.
  static const Problem relu = testing::ReluProblem();
  const SizedProblem elementwise = AtSize(relu, "full");
  CHECK(advice(57000, &elementwise).find("near the measured limit of arithmetic") != std::string::npos);
  evaluation.workload.tf32 = true, evaluation.peak_gflop_per_s = 390000;
  CHECK(advice(380000, &sized).find("limit of arithmetic") != std::string::npos);
}

TEST_CASE("split inputs are scaled for fp16 alone") {
  CHECK(SplitText({.unit = kBf16Unit, .parts = 3, .products = 6}) == "split into 3 such parts");
  CHECK(SplitText({.unit = kFp16Unit, .parts = 2, .products = 3}) ==
        "scaled by a power of two a row or column, to the range of fp16, and split into 2 such parts");
}

TEST_CASE("register spills are named only where there are some, with advice") {
  Evaluation evaluation = OnGpu();
  CHECK(KernelNotes(evaluation) ==
        "- relu<4> <<<132 x 1 x 1, 256 x 1 x 1>>>: 40 registers, 16 KB shared memory, occupancy 75 % "
        "(limited by registers)");
  evaluation.kernels[0].spill_load_bytes = 8;
  CHECK(KernelNotes(evaluation).find("spills 0 B of stores and 8 B of loads per thread") !=
        std::string::npos);
  CHECK(KernelNotes(evaluation).find("__launch_bounds__") != std::string::npos);
  CHECK(KernelNotes({}).empty());
}

TEST_CASE("above the ceiling of arithmetic it is said that the count does not apply") {
  Evaluation evaluation = OnGpu();
  const std::string text = RateText(GpuMeasured(2000, 66000), evaluation);
  CHECK(text.find("so the kernel does fewer operations than that count") != std::string::npos);
  CHECK(RateText(GpuMeasured(2000, 50000), evaluation).find("fewer operations") == std::string::npos);
  // Other units may have done the work: nothing follows from that ceiling.
  CHECK(CeilingAdvice(GpuMeasured(2000, 180000), evaluation, nullptr).empty());
  CHECK_FALSE(CeilingAdvice(GpuMeasured(2000, 58000), evaluation, nullptr).empty());
}

TEST_CASE("advice near a ceiling gives the factor that its share leaves, and none below or beyond it") {
  Problem problem = testing::ReluProblem();
  const SizedProblem least = AtSize(problem, "small");
  problem.bytes = "80*B*N";
  const SizedProblem more = AtSize(problem, "small");
  for (int percent = 10; percent <= 140; percent += 1) {
    Evaluation evaluation = OnGpu();
    const double share = percent / 100.0;
    const std::string factor = fmt::format("{:.2f} times as fast", std::max(1.0, 1 / share));
    for (const SizedProblem* sized : {&least, &more}) {
      const std::string memory = CeilingAdvice(GpuMeasured(4000 * share, 10), evaluation, sized);
      const std::string arithmetic = CeilingAdvice(GpuMeasured(10, 60000 * share), evaluation, sized);
      INFO(percent << " %: " << memory << " / " << arithmetic);
      const bool is_near = percent >= 80 && percent <= 105;
      CHECK((memory.empty() != is_near && arithmetic.empty() != is_near));
      if (!is_near) continue;
      const bool is_at = sized == &least && percent >= 100;
      CHECK(memory.find(is_at ? "It runs at the measured memory bandwidth" : factor) != std::string::npos);
      CHECK(arithmetic.find(factor) != std::string::npos);
    }
  }
}

}  // namespace kevin
