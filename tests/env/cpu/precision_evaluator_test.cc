// The precisions through the real evaluator: correct kernels in fp16 and bf16 are measured, incorrect ones
// are wrong.

#include <array>
#include <span>

#include "env/cpu/cpu_environment.h"
#include "tests/catch.h"
#include "tests/env/cpu/precision_search.h"

namespace kevin {
namespace {

CpuEnvironment& SharedEnvironment() {
  static const TemporaryFolder cache;
  static const std::unique_ptr<CpuEnvironment> environment = [] {
    EnvironmentOptions options = SmallLimits(cache.path());
    options.limits.call_timeout_s = 20;
    return MakeCpuEnvironmentForTools(options);
  }();
  return *environment;
}

// The first text of each problem, in both types.
void CheckSearchTexts(std::span<const char* const> ids) {
  for (const Precision precision : {Precision::kFp16, Precision::kBf16}) {
    for (const char* id : ids) {
      std::string why;
      const Problem problem = ProblemIn(id, precision);
      const std::string text = testing::SearchText(problem, "small", "cpp", &why);
      const Outcome outcome = SharedEnvironment().Verify(problem, {"cpp", text}, {});
      INFO(id << " in " << PrecisionName(precision) << ": " << why << OutcomeReason(outcome));
      CHECK(std::string(OutcomeName(outcome)) == "measured");
    }
  }
}

}  // namespace

TEST_CASE("correct C++ kernels in 16 bits are measured, and those that save digits are wrong") {
  for (const Precision precision : {Precision::kFp16, Precision::kBf16}) {
    for (const PrecisionKernel& kernel : kPrecisionKernels) {
      const Outcome outcome =
          SharedEnvironment().Verify(ProblemIn(kernel.problem, precision),
                                     {"cpp", PrecisionKernelText(kernel.file, "cpp", precision)}, {});
      INFO(kernel.file << " in " << PrecisionName(precision) << ": " << OutcomeName(outcome) << " "
                       << OutcomeReason(outcome));
      CHECK(std::string(OutcomeName(outcome)) == (kernel.is_correct ? "measured" : "wrong"));
    }
  }
}

TEST_CASE("what the search writes in 16 bits is right") { CheckSearchTexts(kSearchedProblems); }

// They round to 16 bits after each layer where eager does: a kernel that does the same at other places is incorrect.
TEST_CASE("the search policy's texts of networks are correct in 16 bits") {
  CheckSearchTexts(std::array{"level3/3", "level3/21", "level3/31"});
}

TEST_CASE("a kernel in bf16 is measured, with half of float32's bytes, under a key of its own") {
  const Problem narrow = ProblemIn("level1/19", Precision::kBf16), wide = ListedProblem("level1/19");
  const Candidate candidate{"cpp", PrecisionKernelText("relu", "cpp", Precision::kBf16)};
  const Evaluation evaluation = SharedEnvironment().Evaluate(narrow, candidate, {});
  INFO(OutcomeReason(evaluation.outcome));
  const auto* measured = std::get_if<Measured>(&evaluation.outcome);
  REQUIRE(measured);
  CHECK(evaluation.workload.precision == "bf16");
  CHECK(evaluation.key_parts.at("precision") == "bf16");
  CHECK(evaluation.key == SharedEnvironment().EvaluationKey(narrow, candidate, {}));
  CHECK(evaluation.key != SharedEnvironment().EvaluationKey(wide, candidate, {}));
  const double bytes = AtSize(wide, "small").bytes / 2;
  CHECK(measured->gb_per_s == Approx(bytes / measured->candidate_us * 1e-3));
}

TEST_CASE("what is written for float32 does not compile in bf16, and an unwritten element is called that") {
  const Problem narrow = ProblemIn("level1/19", Precision::kBf16);
  const Outcome wide = SharedEnvironment().Verify(
      narrow, {"cpp", "extern \"C\" void launch(const float* x, float* out) { out[0] = x[0]; }"}, {});
  CHECK(std::string(OutcomeName(wide)) == "compile_failed");
  const Outcome unwritten =
      SharedEnvironment().Verify(narrow, {"cpp", "extern \"C\" void launch(const bf16*, bf16*) {}"}, {});
  CHECK(OutcomeReason(unwritten).find("never written") != std::string::npos);
}

TEST_CASE("decoys are chosen by the precision, and a mean of a million cannot show coarse inputs") {
  const auto decoys = SharedEnvironment().Admit(ProblemIn("level1/19", Precision::kFp16), {});
  std::vector<std::string> names;
  for (const DecoyResult& decoy : decoys) {
    INFO(decoy.name);
    CHECK(decoy.passed == decoy.must_pass);
    names.push_back(decoy.name);
  }
  for (const char* wanted :
       {"inputs rounded to bf16", "inputs rounded to fp8 (e4m3)", "outputs rounded to bf16"})
    CHECK(std::find(names.begin(), names.end(), wanted) != names.end());
}

}  // namespace kevin
