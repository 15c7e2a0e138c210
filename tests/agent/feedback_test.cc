#include "agent/feedback.h"

#include "tests/agent/golden.h"
#include "tests/catch.h"
#include "tests/fakes.h"

namespace kevin {
namespace {

const std::string kSource =
    "#include <cmath>\n"
    "extern \"C\" void launch(const float* x, float* out) {\n"
    "  for (long i = 0; i < B * N; ++i) out[i] = std::max(y[i], 0.0f);\n"
    "}\n";

std::string Tell(const Outcome& outcome, const std::string& log = "", const std::string& cached_from = "") {
  static const Problem problem = testing::ReluProblem();
  static const SizedProblem sized = AtSize(problem, "small");
  Evaluation evaluation;
  evaluation.outcome = outcome;
  evaluation.log = log;
  evaluation.cached_from = cached_from;
  return Feedback(evaluation, {kSource, &sized, 2});
}

Measured SomeMeasured(double speedup, Verdict verdict) {
  Measured m;
  m.speedup = {speedup, speedup * 0.98, speedup * 1.02, 0.01, 30, 3};
  m.verdict = verdict;
  m.reference_us = 160.25;
  m.candidate_us = 160.25 / speedup;
  m.gb_per_s = 12.5 * speedup;
  m.gflop_per_s = 1.5625 * speedup;
  m.floor_us = 80;
  return m;
}

const char* const kGccLog =
    "candidate.cpp: In function 'void launch(const float*, float*)':\n"
    "candidate.cpp:3:42: error: 'max' is not a member of 'std'\n"
    "    3 |   for (long i = 0; i < B * N; ++i) out[i] = std::max(y[i], 0.0f);\n"
    "      |                                                  ^~~\n"
    "candidate.cpp:3:51: error: 'y' was not declared in this scope\n"
    "candidate.cpp:2:17: warning: unused parameter 'x'\n"
    "candidate.cpp:99:1: error: expected '}' at end of input\n"
    "candidate.cpp:99:2: error: a fourth\n"
    "candidate.cpp:99:3: fatal error: a fifth\n";

}  // namespace

TEST_CASE("feedback for every outcome") {
  Measured against = SomeMeasured(1.5, Verdict::kFast);
  against.against_start = Ratio{1.2, 1.1, 1.3, 0.01, 30, 3};
  Measured no_floor = SomeMeasured(1.0, Verdict::kAmbiguous);
  no_floor.floor_us = 0;
  const std::vector<std::pair<std::string, std::string>> texts = {
      {"parse failed", Tell(ParseFailed{"the reply was cut off inside its code block"})},
      {"compile failed, g++", Tell(CompileFailed{kGccLog})},
      {"compile failed, linker",
       Tell(CompileFailed{"/usr/bin/ld: kernel.o: in function `launch':\n"
                          "kernel.cpp:(.text+0x1): undefined reference to `helper()'\n"
                          "collect2: error: ld returned 1 exit status\n"})},
      {"compile failed, unknown form", Tell(CompileFailed{"the compiler was killed: out of memory\n"})},
      {"refused", Tell(Refused{"deferred work"})},
      {"crashed", Tell(Crashed{"signal 11 in call 3"}, "stack smashing detected\n")},
      {"timed out", Tell(TimedOut{"verify", 20})},
      {"wrong", Tell(Wrong{"out[1, 5] is 0.5, should be 0.25", 0.25, 1e-6})},
      {"measured, fast", Tell(SomeMeasured(1.5, Verdict::kFast))},
      {"measured, slow", Tell(SomeMeasured(0.5, Verdict::kSlow))},
      {"measured, near the floor", Tell(SomeMeasured(1.9, Verdict::kFast))},
      {"measured, against the start", Tell(against)},
      {"measured, no floor known", Tell(no_floor)},
      {"measured, cached", Tell(SomeMeasured(1.5, Verdict::kFast), "", "01J0")},
  };
  std::string all;
  for (const auto& [name, text] : texts) all += "=== " + name + "\n" + text + "\n\n";
  testing::CheckGolden("tests/agent/golden/feedback.txt", all);
}

TEST_CASE("a compiler's flood is cut to three errors, each with its line") {
  const std::string text = Tell(CompileFailed{kGccLog});
  CHECK(text.find("     3 |   for (long i = 0; i < B * N; ++i)") != std::string::npos);
  CHECK(text.find("(2 more errors)") != std::string::npos);
  CHECK(text.find("warning") == std::string::npos);
  CHECK(text.find("a fourth") == std::string::npos);
  CHECK(Tell(CompileFailed{std::string(100000, 'x')}).size() < 2000);
}

TEST_CASE("what limits an operation follows from its arithmetic intensity") {
  SizedProblem sized;
  CHECK(RooflineBound(sized) == Bound::kUnclear);
  sized.bytes = 100;
  sized.flops = 100;
  CHECK(RooflineBound(sized) == Bound::kMemory);
  sized.flops = 1000;
  CHECK(RooflineBound(sized) == Bound::kUnclear);
  sized.flops = 10000;
  CHECK(RooflineBound(sized) == Bound::kCompute);
}

}  // namespace kevin
