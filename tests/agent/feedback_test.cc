#include "agent/feedback.h"

#include "agent/gpu_feedback.h"
#include "agent/knob_feedback.h"
#include "tests/catch.h"
#include "tests/support/fakes.h"
#include "tests/support/golden.h"

namespace kevin {
namespace {

const std::string kSource =
    "#include <cmath>\n"
    "extern \"C\" void launch(const float* x, float* out) {\n"
    "  for (long i = 0; i < B * N; ++i) out[i] = std::max(y[i], 0.0f);\n"
    "}\n";

std::string FeedbackOn(const Outcome& outcome, const std::string& log = "",
                       const std::string& cached_from = "") {
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

// The same problem's candidate on a GPU.
std::string TellGpu(Evaluation evaluation, const Outcome& outcome) {
  static const Problem problem = testing::ReluProblem();
  static const SizedProblem sized = AtSize(problem, "full");
  evaluation.outcome = outcome;
  return Feedback(evaluation, {"__global__ void f(float* y) {\n  y[0] = z;\n}\n", &sized, 1, "cuda"});
}

Evaluation OnGpu() {
  Evaluation evaluation;
  evaluation.kernels = {{"relu<4>", "132 x 1 x 1", "256 x 1 x 1", 40, 0, 16384, 0, 0, 0.75, "registers"}};
  evaluation.peak_gb_per_s = 4000;
  evaluation.peak_gflop_per_s = 60000;
  return evaluation;
}

Measured GpuMeasured(double gb_per_s, double gflop_per_s, Verdict verdict = Verdict::kFast) {
  Measured m = SomeMeasured(1.5, verdict);
  m.gb_per_s = gb_per_s;
  m.gflop_per_s = gflop_per_s;
  m.floor_us = 0;
  return m;
}

const char* const kNvrtcLog =
    "candidate.cu(2): error: identifier \"z\" is undefined\n"
    "    y[0] = z;\n"
    "           ^\n"
    "\n"
    "candidate.cu(3): warning #177-D: variable \"q\" was declared but never referenced\n"
    "1 error detected in the compilation of \"candidate.cu\".\n";

const char* const kPtxasLog =
    "ptxas error   : Entry function '_Z1fPf' uses too much shared data (0x20000 bytes, 0xc000 max)\n"
    "ptxas application ptx input, line 12; error   : Unknown symbol 'abc'\n"
    "ptxas fatal   : Ptx assembly aborted due to errors\n";

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
      {"parse failed", FeedbackOn(ParseFailed{"the reply was cut off inside its code block"})},
      {"compile failed, g++", FeedbackOn(CompileFailed{kGccLog})},
      {"compile failed, linker",
       FeedbackOn(CompileFailed{"/usr/bin/ld: kernel.o: in function `launch':\n"
                                "kernel.cpp:(.text+0x1): undefined reference to `helper()'\n"
                                "collect2: error: ld returned 1 exit status\n"})},
      {"compile failed, unknown form", FeedbackOn(CompileFailed{"the compiler was killed: out of memory\n"})},
      {"refused", FeedbackOn(Refused{"deferred work"})},
      {"crashed", FeedbackOn(Crashed{"signal 11 in call 3"}, "stack smashing detected\n")},
      {"timed out", FeedbackOn(TimedOut{"verify", 20})},
      {"wrong", FeedbackOn(Wrong{"out[1, 5] is 0.5, should be 0.25", 0.25, 1e-6})},
      {"measured, fast", FeedbackOn(SomeMeasured(1.5, Verdict::kFast))},
      {"measured, slow", FeedbackOn(SomeMeasured(0.5, Verdict::kSlow))},
      {"measured, near the floor", FeedbackOn(SomeMeasured(1.9, Verdict::kFast))},
      {"measured, against the start", FeedbackOn(against)},
      {"measured, no floor known", FeedbackOn(no_floor)},
      {"measured, cached", FeedbackOn(SomeMeasured(1.5, Verdict::kFast), "", "01J0")},
  };
  std::string all;
  for (const auto& [name, text] : texts) all += "=== " + name + "\n" + text + "\n\n";
  testing::CheckGolden("tests/agent/golden/feedback.txt", all);
}

TEST_CASE("feedback on a GPU") {
  Evaluation spills = OnGpu();
  spills.kernels.push_back({"tail", "1 x 1 x 1", "1024 x 1 x 1", 255, 512, 0, 128, 256, 0.25, "registers"});
  spills.profile = "The memory is busy 93 % of the time. Warps mostly wait for loads.";
  Evaluation many = OnGpu();
  for (int i = 0; i < 9; ++i) {
    many.kernels.push_back(many.kernels[0]);
    many.kernels.back().registers = 41 + i / 2;
  }
  Measured near_floor = GpuMeasured(2000, 250);
  near_floor.floor_us = near_floor.candidate_us / 1.1;
  const std::vector<std::pair<std::string, std::string>> texts = {
      {"parse failed", TellGpu({}, ParseFailed{"the reply held no fenced code block"})},
      {"compile failed, NVRTC", TellGpu({}, CompileFailed{kNvrtcLog})},
      {"compile failed, ptxas", TellGpu({}, CompileFailed{kPtxasLog})},
      {"compile failed, launch function",
       TellGpu({}, CompileFailed{"line 2, column 3: `cudaMalloc` is not known; write workspace<T>(count) "
                                 "instead\n  cudaMalloc(&p, 4);\n  ^\n"})},
      {"refused", TellGpu({}, Refused{"the kernel reads the clock"})},
      {"crashed", TellGpu(OnGpu(), Crashed{"illegal memory access in the first call, line 2"})},
      {"timed out", TellGpu({}, TimedOut{"verify", 20})},
      {"wrong", TellGpu(OnGpu(), Wrong{"out[1, 5] is nan, should be 0.25", 0.25, 1e-6})},
      {"measured, at the memory ceiling", TellGpu(OnGpu(), GpuMeasured(3700, 460))},
      {"measured, memory", TellGpu(OnGpu(), GpuMeasured(2000, 250))},
      {"measured, arithmetic", TellGpu(OnGpu(), GpuMeasured(400, 33000))},
      {"measured, slow and far from both", TellGpu(spills, GpuMeasured(40, 5, Verdict::kSlow))},
      {"measured, near the floor", TellGpu(OnGpu(), near_floor)},
      {"measured, many kernels", TellGpu(many, GpuMeasured(2000, 250))},
      {"measured, no peaks known", TellGpu({}, GpuMeasured(2000, 250))},
  };
  std::string all;
  for (const auto& [name, text] : texts) all += "=== " + name + "\n" + text + "\n\n";
  testing::CheckGolden("tests/agent/golden/feedback_gpu.txt", all);
}

namespace {

KnobTrial Trial(int64_t tile, int64_t unroll, std::optional<double> us, bool chosen = false) {
  return {{{"TILE", tile}, {"UNROLL", unroll}},
          us ? "measured" : "wrong",
          us ? "" : "out[0, 3] is 1.5, should be 0.25",
          us,
          us.value_or(0) > 20,
          chosen,
          0.5};
}

std::string FeedbackWith(const Outcome& outcome, const std::vector<KnobTrial>& trials) {
  Evaluation evaluation;
  evaluation.outcome = outcome;
  return Feedback(evaluation, {kSource, nullptr, 2, "cpp", trials});
}

}  // namespace

TEST_CASE("feedback on knobs says what mattered") {
  KnobTrial crashed = Trial(256, 1, std::nullopt);
  crashed.outcome = "crashed", crashed.reason = "signal 11 (segmentation fault) in the first call";
  KnobTrial only = Trial(64, 1, std::nullopt, true);
  only.outcome.clear(), only.reason.clear();
  const Measured measured = SomeMeasured(1.5, Verdict::kFast);
  const Wrong wrong{"out[0, 3] is 1.5, should be 0.25", 1.25, 0.001};
  const std::vector<std::pair<std::string, std::string>> texts = {
      {"a setting was chosen",
       FeedbackWith(measured, {Trial(64, 1, 12.0), Trial(128, 1, 10.0), Trial(256, 1, 24.0),
                               Trial(128, 2, 9.9, true), Trial(128, 4, 10.4)})},
      {"the first values are the fastest",
       FeedbackWith(measured, {Trial(64, 1, 10.0, true), Trial(128, 1, 11.0)})},
      {"some failed", FeedbackWith(measured, {Trial(64, 1, std::nullopt), Trial(128, 1, 10.0, true), crashed,
                                              Trial(64, 2, std::nullopt)})},
      {"none is correct",
       FeedbackWith(wrong, {Trial(64, 1, std::nullopt, true), Trial(128, 1, std::nullopt), crashed})},
      {"the chosen one is incorrect by the full rules",
       FeedbackWith(wrong, {Trial(64, 1, 12.0), Trial(64, 2, 6.0, true)})},
      {"nothing was tried", FeedbackWith(measured, {only})},
  };
  std::string all;
  for (const auto& [name, text] : texts) all += "=== " + name + "\n" + text + "\n\n";
  testing::CheckGolden("tests/agent/golden/feedback_knobs.txt", all);
  CHECK(KnobNotes({}).empty());
  CHECK(FeedbackWith(measured, {}).find("Knobs") == std::string::npos);
}

TEST_CASE("the nearer ceiling is the one of which the larger share is reached") {
  Evaluation evaluation = OnGpu();
  CHECK(RooflineOf(GpuMeasured(2000, 250), evaluation).memory == 0.5);
  CHECK(RooflineOf(GpuMeasured(2000, 250), evaluation).nearer == Ceiling::kMemory);
  CHECK(RooflineOf(GpuMeasured(2000, 33000), evaluation).arithmetic == 0.55);
  CHECK(RooflineOf(GpuMeasured(2000, 33000), evaluation).nearer == Ceiling::kArithmetic);
  evaluation.peak_gb_per_s = evaluation.peak_gflop_per_s = 0;
  CHECK(RooflineOf(GpuMeasured(2000, 250), evaluation).nearer == Ceiling::kUnknown);
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

TEST_CASE("a compiler's flood is cut to three errors, each with its line") {
  const std::string text = FeedbackOn(CompileFailed{kGccLog});
  CHECK(text.find("     3 |   for (long i = 0; i < B * N; ++i)") != std::string::npos);
  CHECK(text.find("(2 more errors)") != std::string::npos);
  CHECK(text.find("warning") == std::string::npos);
  CHECK(text.find("a fourth") == std::string::npos);
  CHECK(FeedbackOn(CompileFailed{std::string(100000, 'x')}).size() < 2000);
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
