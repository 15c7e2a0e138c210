// The result of a turn in words: every outcome, comparisons, the lines of compilers.

#include "agent/feedback.h"

#include "agent/gpu_feedback.h"
#include "tests/agent/feedback_samples.h"
#include "tests/catch.h"
#include "tests/support/golden.h"

namespace kevin {
namespace {

using testing::FeedbackOn;
using testing::FeedbackOnGpu;
using testing::GpuMeasured;
using testing::kSource;
using testing::OnGpu;
using testing::SomeMeasured;

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
  against.verdict_against_start = Verdict::kFast;
  Measured unclear = SomeMeasured(0.926, Verdict::kSlow);
  unclear.speedup.low = 0.775, unclear.speedup.high = 1.11;
  Measured drifted = SomeMeasured(5.09, Verdict::kAmbiguous);
  drifted.speedup.low = 4.04, drifted.speedup.high = 6.41;
  drifted.candidate_us = 512, drifted.reference_us = 2150;
  Measured near_memory = SomeMeasured(2.7, Verdict::kFast),
           near_arithmetic = SomeMeasured(1.5, Verdict::kFast);
  near_arithmetic.gflop_per_s = 171;
  Measured from_caches = SomeMeasured(4, Verdict::kFast);
  Measured no_cost = SomeMeasured(1.5, Verdict::kFast);
  no_cost.gb_per_s = no_cost.gflop_per_s = 0;
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
      {"measured, not distinguishable", FeedbackOn(unclear)},
      {"measured, times without the ratio of the speed-up", FeedbackOn(drifted)},
      {"measured, near the bandwidth", FeedbackOn(near_memory)},
      {"measured, near the arithmetic", FeedbackOn(near_arithmetic)},
      {"measured, more than memory gives", FeedbackOn(from_caches)},
      {"measured, against the start", FeedbackOn(against)},
      {"measured, as fast", FeedbackOn(SomeMeasured(1.0, Verdict::kAmbiguous))},
      {"measured, no cost stated", FeedbackOn(no_cost)},
      {"measured, cached", FeedbackOn(SomeMeasured(1.5, Verdict::kFast), "", "01J0")},
  };
  testing::CheckGoldenTexts("tests/agent/golden/feedback.txt", texts);
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
  Diagnosis launches;
  launches.launches = {{0, 12.5}, {1, 60.25}};
  Evaluation tensor_cores = OnGpu();
  tensor_cores.workload.precision = "bf16";
  tensor_cores.peak_gflop_per_s = 700000;
  const std::vector<std::pair<std::string, std::string>> texts = {
      {"parse failed", FeedbackOnGpu({}, ParseFailed{"the reply held no fenced code block"})},
      {"compile failed, NVRTC", FeedbackOnGpu({}, CompileFailed{kNvrtcLog})},
      {"compile failed, ptxas", FeedbackOnGpu({}, CompileFailed{kPtxasLog})},
      {"compile failed, launch function",
       FeedbackOnGpu({},
                     CompileFailed{"line 2, column 3: `cudaMalloc` is not known; write workspace<T>(count) "
                                   "instead\n  cudaMalloc(&p, 4);\n  ^\n"})},
      {"refused", FeedbackOnGpu({}, Refused{"the kernel reads the clock"})},
      {"crashed", FeedbackOnGpu(OnGpu(), Crashed{"illegal memory access in the first call, line 2"})},
      {"an illegal instruction",
       FeedbackOnGpu(
           OnGpu(),
           Crashed{"cuStreamSynchronize: CUDA_ERROR_ILLEGAL_INSTRUCTION (715) during verify; line 31"})},
      {"timed out", FeedbackOnGpu({}, TimedOut{"verify", 20})},
      {"wrong", FeedbackOnGpu(OnGpu(), Wrong{"out[1, 5] is nan, should be 0.25", 0.25, 1e-6})},
      {"measured, at the memory ceiling", FeedbackOnGpu(OnGpu(), GpuMeasured(3700, 460))},
      {"measured, memory", FeedbackOnGpu(OnGpu(), GpuMeasured(2000, 250))},
      {"measured, arithmetic", FeedbackOnGpu(OnGpu(), GpuMeasured(400, 33000))},
      {"measured, slow and far from both", FeedbackOnGpu(spills, GpuMeasured(40, 5, Verdict::kSlow))},
      {"measured, with the times of its launches", FeedbackOnGpu(spills, GpuMeasured(2000, 250), &launches)},
      {"measured, on tensor cores", FeedbackOnGpu(tensor_cores, GpuMeasured(400, 630000))},
      {"measured, many kernels", FeedbackOnGpu(many, GpuMeasured(2000, 250))},
      {"measured, no peaks known", FeedbackOnGpu({}, GpuMeasured(2000, 250))},
  };
  testing::CheckGoldenTexts("tests/agent/golden/feedback_gpu.txt", texts);
}

TEST_CASE("the choices of Triton's autotuner are told, from the log of a kernel in Triton") {
  Evaluation evaluation;
  evaluation.log = "a warning\nautotuned relu: BLOCK: 64, num_warps: 4\nautotuned for nothing";
  CHECK(KernelNotes(evaluation).empty());
  evaluation.backend = "triton";
  CHECK(KernelNotes(evaluation) ==
        "Triton's autotuner chose relu: BLOCK: 64, num_warps: 4\nTriton's autotuner chose for nothing");
  for (int i = 0; i < 20; ++i) evaluation.log += "\nautotuned k: " + std::string(5000, 'x');
  CHECK(KernelNotes(evaluation).size() < 2000);
}

TEST_CASE("a wrong signature shows both signatures, and the candidate's own line") {
  const std::string source =
      "#include <cmath>\n// launch\nextern \"C\" void launch(const float* x, float* out, long n) {\n  out[0] = x[n];\n}\n";
  const auto told = [&](const std::string& log, const std::string& text) {
    static const Problem problem = testing::ReluProblem();
    static const SizedProblem sized = AtSize(problem, "small");
    Evaluation evaluation;
    evaluation.outcome = CompileFailed{log};
    return Feedback(evaluation, {text, &sized, 2, "cpp"});
  };
  const std::string gcc =
      "required-signature:1:17: error: conflicting declaration of C function 'void launch(const float*, float*)'\n"
      "candidate.cpp:3:17: note: previous declaration 'void launch(const float*, float*, long int)'\n";
  const std::string clang =
      "required-signature:1:17: error: functions that differ only in their return type cannot be overloaded\n"
      "candidate.cpp:3:17: note: previous definition is here\n";
  const std::string both =
      "The kernel does not compile: the signature of `launch` is not the required one.\n\n```\n"
      "required  | extern \"C\" void launch(const float* x, float* out)\n"
      "line 3    | extern \"C\" void launch(const float* x, float* out, long n)\n```";
  CHECK(told(gcc, source) == both);
  const std::string reason = "the signature of `launch` is not the required one";
  CHECK((OutcomeReason(CompileFailed{gcc}) == reason && OutcomeReason(CompileFailed{clang}) == reason));
  CHECK(OutcomeReason(CompileFailed{gcc, "at mine/2"}) == "at mine/2: " + reason);
  CHECK(told(clang, source) == both);
  const std::string further = "candidate.cpp:4:3: error: 'y' was not declared in this scope\n";
  CHECK(told(further + gcc, source) ==
        both +
            "\n\nFurther errors:\n\n```\nline 4, column 3: 'y' was not declared in this "
            "scope\n     4 |   out[0] = x[n];\n```");
  // A text that is not complete: the compiler meets the required signature inside of it.
  const std::string open =
      "required-signature:1:1: error: expected unqualified-id before string constant\n"
      "candidate.cpp:5:20: error: expected '}' at end of input\ncandidate.cpp:3:88: note: to match this '{'\n";
  CHECK(OutcomeReason(CompileFailed{open}) == "its text is not complete");
  const std::string text = told(open, source);
  CHECK(text.starts_with(
      "The kernel does not compile: its text is not complete. What is opened in line 3 is not closed."));
  CHECK(text.find("required") == std::string::npos);
  CHECK(
      told("required-signature:1:1: error: expected initializer before string constant\n", source) ==
      "The kernel does not compile: its text is not complete. A bracket, a comment, a string or an `#if` is not closed, or a "
      "semicolon is missing at the end.");
  // Other errors may mention the name.
  CHECK(told("candidate.cpp:4:3: error: required-signature\n", source).find("signature of `launch`") ==
        std::string::npos);
}

TEST_CASE("what of a reply was left out is said below the result") {
  static const Problem problem = testing::ReluProblem();
  static const SizedProblem sized = AtSize(problem, "small");
  for (const Outcome& outcome :
       {Outcome(CompileFailed{kGccLog}), Outcome(SomeMeasured(1.5, Verdict::kFast))}) {
    Evaluation evaluation;
    evaluation.outcome = outcome;
    FeedbackContext context{kSource, &sized, 2, "cpp"};
    const std::string plain = Feedback(evaluation, context);
    context.note = "The code held characters.";
    CHECK(Feedback(evaluation, context) == plain + "\nThe code held characters.");
  }
}

TEST_CASE("a compiler's flood is cut to its causes, each with its line") {
  const std::string text = FeedbackOn(CompileFailed{kGccLog});
  CHECK(text.find("     3 |   for (long i = 0; i < B * N; ++i)") != std::string::npos);
  CHECK(text.find("warning") == std::string::npos);
  CHECK(FeedbackOn(CompileFailed{std::string(100000, 'x')}).size() < 2000);
}

TEST_CASE("the words of a comparison and of a ceiling follow the numbers beside them, over a grid") {
  static const Problem problem = testing::ReluProblem();
  static const SizedProblem sized = AtSize(problem, "small");
  const std::vector<double> ends = {0.5, 0.9, 0.975, 0.99, 1, 1.004, 1.019, 1.1, 2};
  const auto has = [](const std::string& text, const std::string& part) {
    return text.find(part) != std::string::npos;
  };
  for (const double low : ends) {
    for (const double high : ends) {
      if (low > high) continue;
      Measured measured = SomeMeasured(1, Verdict::kAmbiguous);
      const Ratio ratio{(low + high) / 2, low, high};
      measured.speedup = ratio;
      Evaluation evaluation;
      evaluation.outcome = measured;
      FeedbackContext context{kSource, &sized, 2, "cpp"};
      context.against_best = ratio, context.against_best_turn = 3;
      const std::string text = Feedback(evaluation, context);
      INFO(text);
      CHECK(has(text, "faster than the reference") == (low > 1));
      CHECK(has(text, "slower than the reference") == (high < 1));
      CHECK(has(text, "faster than that one") == (low > 1));
      CHECK(has(text, "slower than that one") == (high < 1));
      CHECK(has(text, "It is the new best.") == (low > 1));
      CHECK(has(text, "not distinguishable from that one") ==
            has(text, "not distinguishable from the reference"));
    }
  }
}

TEST_CASE("a wide interval says what it hides") {
  Measured measured = SomeMeasured(1.5, Verdict::kFast);
  measured.speedup = {1.5, 1.45, 1.55};
  CHECK(FeedbackOn(measured).find("The times of the pairs vary") == std::string::npos);
  measured.speedup = {1.5, 1.0, 2.25};
  CHECK(FeedbackOn(measured).find("differ by less than 50 % are not distinguishable") != std::string::npos);
}

TEST_CASE("an answer that is incorrect in a timed call alone is said to be so") {
  const char* const kRace = "Verification before it was correct";
  CHECK(FeedbackOn(Wrong{"in a timed call: out[0] is 1, should be 2", 1, 0.1}).find(kRace) !=
        std::string::npos);
  CHECK(FeedbackOn(Wrong{"out[0] is 1, should be 2", 1, 0.1}).find(kRace) == std::string::npos);
}

TEST_CASE(
    "of a file in Python the policy is told Python's and the compiler's own lines, and what to write instead") {
  static const Problem problem = testing::ReluProblem();
  static const SizedProblem sized = AtSize(problem, "small");
  const auto told = [&](const Outcome& outcome, const std::string& kind = "modelnew") {
    Evaluation evaluation;
    evaluation.device = "cpu: AMD EPYC, 2 threads";
    evaluation.outcome = outcome;
    if (std::holds_alternative<Measured>(outcome)) evaluation.own_share = 0.97;
    return Feedback(evaluation, {"import torch\nline two\n", &sized, 2, kind, {}, nullptr});
  };
  // Line 2 of main.cpp is none of the file.
  const std::string compiler =
      "extension relu does not compile:\nmain.cpp: In function 'at::Tensor relu(at::Tensor)':\n"
      "main.cpp:2:3: error: 'undefined_name' was not declared in this scope\n    2 |   undefined_name();\n";
  CHECK(told(CompileFailed{compiler}) == "The file does not compile:\n\n```\n" + compiler + "```");
  CHECK(told(CompileFailed{"line 2: SyntaxError: invalid syntax"}) ==
        "The file cannot be imported:\n\n```\nline 2: SyntaxError: invalid syntax\n```");
  CHECK(
      told(Refused{
          "kernels of its own do 0 % of the work, and the rules `kevin` ask for 90 %: the rest is done by "
          "libraries: torch 100 % (--rules open permits that)"}) ==
      "The kernel was refused: kernels of its own do 0 % of the work, and the rules `kevin` ask for 90 %: the rest is "
      "done by libraries: torch 100 %. Write the computation as kernels of your own (C++ with load_inline) and call them in "
      "`forward`. PyTorch's operators may allocate, reshape and connect, but not compute.");
  CHECK(told(Refused{"kernels of its own do 0 % of the work"}, "triton")
            .find("(@triton.jit) and call them in `launch`") != std::string::npos);
  CHECK(
      told(Refused{"ModelNew has no place for these weights of the problem: w [3]. Register each"}) ==
      "The kernel was refused: ModelNew has no place for these weights of the problem: w [3]. Register each.");
  CHECK(told(Refused{
                 "KernelBench's static rules refuse it: try/except: a fallback may take the kernel's place"})
            .ends_with("Change the file so that this rule permits it."));
  CHECK(told(TimedOut{"compile", 60})
            .starts_with("The kernel did not compile within 60 s, also while nothing else"));
  CHECK(told(SomeMeasured(1.5, Verdict::kFast)).find("\nKernels of its own did 97 % of the work.") !=
        std::string::npos);
}

}  // namespace kevin
