// What admits a problem: the results of its decoys and of its correct answers.

#include "tools/admission.h"

#include "tests/catch.h"
#include "tests/support/fakes.h"

namespace kevin {
namespace {

struct ListedDecoys : CpuEnvironment {
  std::vector<DecoyResult> decoys;
  Outcome verified = Measured{};
  EnvironmentFacts facts;

  std::vector<DecoyResult> Admit(const Problem&, const EvaluateOptions&) override { return decoys; }
  EagerBaseline MeasureEager(const Problem&, const EvaluateOptions&) override { return {}; }
  Outcome Verify(const Problem&, const Candidate&, const EvaluateOptions&) override { return verified; }
  std::string EvaluationKey(const Problem&, const Candidate&, const EvaluateOptions&) override { return ""; }
  const EnvironmentFacts& Facts() const override { return facts; }
  Evaluation EvaluateShape(const Problem&, const Candidate&, const EvaluateOptions&) override { return {}; }
};

std::string ReasonOf(const std::vector<DecoyResult>& decoys) {
  ListedDecoys environment;
  environment.decoys = decoys;
  EvaluateOptions options;
  options.workload.size = "small";
  return Admit(environment, testing::ReluProblem(), options).reason;
}

const DecoyResult kRejected{"zeros", false, false, "wrong", true, false};
const DecoyResult kCorrect{"the reference once more", true, true, "", true, false};

}  // namespace

TEST_CASE("a problem is admitted where every decoy fails and every correct answer passes") {
  CHECK(ReasonOf({kRejected, kCorrect}).empty());
}

TEST_CASE("one decoy that passes, or one correct answer that fails, keeps a problem out") {
  DecoyResult passed = kRejected;
  passed.name = "half the rows", passed.passed = true;
  CHECK(ReasonOf({kRejected, passed, kCorrect}) == "half the rows passed");
  DecoyResult rejected = kCorrect;
  rejected.passed = false;
  CHECK(ReasonOf({kRejected, rejected}) == "the reference once more was rejected");
  CHECK(ReasonOf({passed, rejected}) == "half the rows passed; the reference once more was rejected");
}

TEST_CASE("decoys that are correct to the last digit, or that the file names, count neither way") {
  DecoyResult near = kRejected, marked = kRejected;
  near.passed = marked.passed = true;
  near.distinguishable = false, marked.is_marked = true;
  CHECK(ReasonOf({kRejected, near, marked, kCorrect}).empty());
}

}  // namespace kevin
