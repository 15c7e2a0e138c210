// What admits a problem: the results of its decoys and of its correct answers.

#include "tools/admission.h"

#include <functional>
#include <set>

#include "env/error.h"
#include "env/problem/precision.h"
#include "tests/catch.h"
#include "tests/support/fakes.h"

namespace kevin {
namespace {

struct ListedDecoys : CpuEnvironment {
  std::vector<DecoyResult> decoys;
  std::function<Outcome(const Candidate&, const EvaluateOptions&)> verified = [](const auto&, const auto&) {
    return Measured{};
  };
  EnvironmentFacts facts;

  std::vector<DecoyResult> Admit(const Problem&, const EvaluateOptions&) override { return decoys; }
  EagerBaseline MeasureEager(const Problem&, const EvaluateOptions&) override { return {}; }
  Outcome Verify(const Problem&, const Candidate& candidate, const EvaluateOptions& options) override {
    return verified(candidate, options);
  }
  std::string EvaluationKey(const Problem&, const Candidate&, const EvaluateOptions&) override { return ""; }
  const EnvironmentFacts& Facts() const override { return facts; }
  Evaluation EvaluateShape(const Problem&, const Candidate&, const EvaluateOptions&) override { return {}; }
};

EvaluateOptions AtSmall() {
  EvaluateOptions options;
  options.workload.size = "small";
  return options;
}

std::string ReasonOf(const std::vector<DecoyResult>& decoys) {
  ListedDecoys environment;
  environment.decoys = decoys;
  return Admit(environment, testing::ReluProblem(), AtSmall()).reason;
}

// Of candidates in Python; `mistakes_pass`: one that is incorrect is accepted.
AdmissionResult InPython(bool correct_passes, bool mistakes_pass) {
  ListedDecoys environment;
  std::set<std::string> sources;
  environment.verified = [&](const Candidate& candidate, const EvaluateOptions& options) -> Outcome {
    CHECK(candidate.kind == "modelnew");
    CHECK(options.workload.rules == "open");
    CHECK(sources.insert(candidate.source).second);  // the correct one comes first
    if (sources.size() == 1 ? correct_passes : mistakes_pass) return Measured{};
    return Wrong{"out[0] = 1"};
  };
  AdmissionResult result;
  result.rows = {{"zeros", false, false, "out[0] = 0"}};
  TryInPython(environment, testing::ReluProblem(), AtSmall(), &result);
  CHECK(result.python_not_tried.empty());
  CHECK(result.rows.size() == 4);
  return result;
}

const DecoyResult kRejected{"zeros", false, false, "wrong", true, false};
const DecoyResult kCorrect{"the reference once more", true, true, "", true, false};

// What Verify throws, and what the result then says.
std::string NotTriedBecause(ExitCode code, const Problem& problem) {
  ListedDecoys environment;
  environment.verified = [&](const Candidate&, const EvaluateOptions&) -> Outcome {
    throw Error(code, "python3: this Python has no torch", "install it");
  };
  AdmissionResult result;
  TryInPython(environment, problem, AtSmall(), &result);
  CHECK((result.rows.empty() && result.reason.empty()));
  return result.python_not_tried;
}

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

TEST_CASE("kernels in Python count like the others") {
  const AdmissionResult admitted = InPython(true, false);
  CHECK(admitted.reason.empty());
  CHECK(admitted.Count(true, true) == 1);
  CHECK(admitted.Count(false, false) == 3);  // with the decoy that was there before
  CHECK(InPython(false, false).reason == "modelnew: operators of torch was rejected");
  CHECK(InPython(true, true).reason == "modelnew: each element 1 % off passed; modelnew: zeros passed");
}

TEST_CASE("where no kernel in Python can be tried, admission says why and goes on") {
  const Problem relu = testing::ReluProblem();
  for (const ExitCode code : {ExitCode::kMachine, ExitCode::kSandbox, ExitCode::kBadRequest})
    CHECK(NotTriedBecause(code, relu) == "python3: this Python has no torch");
  CHECK(NotTriedBecause(ExitCode::kMachine, InPrecision(relu, Precision::kBf16)) == "they are for fp32");
  CHECK_THROWS_AS(NotTriedBecause(ExitCode::kBroken, relu), Error);
  CHECK_THROWS_AS(NotTriedBecause(ExitCode::kInterrupted, relu), Error);
}

}  // namespace kevin
