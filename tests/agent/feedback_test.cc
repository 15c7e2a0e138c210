#include "agent/feedback.h"

#include <fmt/format.h>

#include <algorithm>

#include "agent/diagnosis_text.h"
#include "agent/gpu_feedback.h"
#include "agent/knob_feedback.h"
#include "agent/rates.h"
#include "env/ceilings.h"
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
                       const std::string& cached_from = "", const Diagnosis* diagnosis = nullptr) {
  static const Problem problem = testing::ReluProblem();
  static const SizedProblem sized = AtSize(problem, "small");
  Evaluation evaluation;
  evaluation.device = "cpu: AMD EPYC, 2 threads";
  evaluation.peak_gb_per_s = 40;
  evaluation.peak_gflop_per_s = 200;
  evaluation.outcome = outcome;
  evaluation.log = log;
  evaluation.cached_from = cached_from;
  return Feedback(evaluation, {kSource, &sized, 2, "cpp", {}, diagnosis});
}

Measured SomeMeasured(double speedup, Verdict verdict) {
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
std::string TellGpu(Evaluation evaluation, const Outcome& outcome, const Diagnosis* diagnosis = nullptr) {
  static const Problem problem = testing::ReluProblem();
  static const SizedProblem sized = AtSize(problem, "full");
  evaluation.outcome = outcome;
  return Feedback(evaluation,
                  {"__global__ void f(float* y) {\n  y[0] = z;\n}\n", &sized, 1, "cuda", {}, diagnosis});
}

Evaluation OnGpu() {
  Evaluation evaluation;
  evaluation.device = "cuda:0: NVIDIA H200";
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
  Diagnosis launches;
  launches.launches = {{0, 12.5}, {1, 60.25}};
  Evaluation tensor_cores = OnGpu();
  tensor_cores.workload.precision = "bf16";
  tensor_cores.peak_gflop_per_s = 700000;
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
      {"measured, with the times of its launches", TellGpu(spills, GpuMeasured(2000, 250), &launches)},
      {"measured, on tensor cores", TellGpu(tensor_cores, GpuMeasured(400, 630000))},
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
  std::vector<KnobTrial> many;
  for (int i = 0; i < 16; ++i) many.push_back(Trial(16 << i % 4, 1 << i / 4, 100 + i * i, i == 0));
  const std::vector<std::pair<std::string, std::string>> texts = {
      {"a setting was chosen",
       FeedbackWith(measured, {Trial(64, 1, 12.0), Trial(128, 1, 10.0), Trial(256, 1, 24.0),
                               Trial(128, 2, 9.9, true), Trial(128, 4, 10.4)})},
      {"no two settings differ in one knob alone",
       FeedbackWith(measured, {Trial(64, 1, 12.0), Trial(128, 2, 10.0, true), Trial(256, 4, 24.0)})},
      {"several pairs of one knob",
       FeedbackWith(measured, {Trial(64, 1, 12.0), Trial(128, 1, 10.0), Trial(64, 2, 9.0),
                               Trial(128, 2, 9.0, true), Trial(64, 4, 10.4), Trial(256, 4, std::nullopt)})},
      {"the first values are the fastest",
       FeedbackWith(measured, {Trial(64, 1, 10.0, true), Trial(128, 1, 11.0)})},
      {"some failed", FeedbackWith(measured, {Trial(64, 1, std::nullopt), Trial(128, 1, 10.0, true), crashed,
                                              Trial(64, 2, std::nullopt)})},
      {"none is correct",
       FeedbackWith(wrong, {Trial(64, 1, std::nullopt, true), Trial(128, 1, std::nullopt), crashed})},
      {"the chosen one is incorrect by the full rules",
       FeedbackWith(wrong, {Trial(64, 1, 12.0), Trial(64, 2, 6.0, true)})},
      {"nothing was tried", FeedbackWith(measured, {only})},
      {"of many the fastest and the slowest", FeedbackWith(measured, many)},
      {"a value separates incorrect settings from correct ones",
       FeedbackWith(measured,
                    {Trial(64, 1, 90.0, true), Trial(256, 1, std::nullopt), Trial(256, 2, std::nullopt)})},
  };
  std::string all;
  for (const auto& [name, text] : texts) all += "=== " + name + "\n" + text + "\n\n";
  testing::CheckGolden("tests/agent/golden/feedback_knobs.txt", all);
  CHECK(KnobNotes({}).empty());
  const std::string of_many = KnobNotes(many);
  CHECK(of_many.starts_with("Knobs: 16 settings tried, 16 correct; "));
  CHECK(of_many.find("- (6 with 1.64 to 2.69 are left out; the slowest:)") != std::string::npos);
  CHECK(of_many.find("- TILE = 128, UNROLL = 8: 3.25") != std::string::npos);
  CHECK(of_many.find("Small differences are noise.") != std::string::npos);
  CHECK(of_many.find("Settings should not change the result") == std::string::npos);
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

TEST_CASE("a compiler's flood is cut to its causes, each with its line") {
  const std::string text = FeedbackOn(CompileFailed{kGccLog});
  CHECK(text.find("     3 |   for (long i = 0; i < B * N; ++i)") != std::string::npos);
  CHECK(text.find("warning") == std::string::npos);
  CHECK(FeedbackOn(CompileFailed{std::string(100000, 'x')}).size() < 2000);
}

namespace {

HotLoop SomeLoop() {
  HotLoop loop;
  loop.first_line = 12, loop.last_line = 14;
  loop.share = 0.71;
  loop.instructions = 37, loop.packed = 12, loop.multiply_adds = 8, loop.vector_bits = 256;
  loop.loads = 6, loop.stores = 1;
  for (int i = 0; i < 10; ++i)
    loop.excerpt.push_back(
        {"vfmadd231ps ymm" + std::to_string(i) + ",ymm15,YMMWORD PTR [rdx+rax*4]", i == 5 ? 0.4 : 0.02});
  return loop;
}

Diagnosis SomeDiagnosis() {
  Diagnosis d;
  d.threads = 2;
  d.cold_us = 106, d.warm_us = 60, d.one_thread_us = 180;
  d.where = {150, 0.9, 0.02, 0, 0};
  d.machine_vector_bits = 256;
  d.loop = SomeLoop();
  return d;
}

std::string Diagnosed(const Diagnosis& d) {
  return FeedbackOn(SomeMeasured(1.5, Verdict::kFast), "", "", &d);
}

}  // namespace

TEST_CASE("evidence of what limits a kernel") {
  Diagnosis scalar = SomeDiagnosis();
  scalar.warm_us = 100, scalar.one_thread_us = 110;
  scalar.where = {150, 0.5, 0.45, 0, 0};
  scalar.loop->packed = 0, scalar.loop->scalar = 12, scalar.loop->vector_bits = 0,
  scalar.loop->multiply_adds = 0;
  scalar.loop->notes = {{12, 0, "there is a branch in it"}};
  Diagnosis in_order = scalar;
  in_order.loop->notes = {{12, 32, ""}};
  in_order.loop->instructions = 3;
  in_order.loop->excerpt.resize(3);
  Diagnosis troubled = SomeDiagnosis();
  troubled.loop->stack = 9, troubled.loop->divisions = 2, troubled.loop->gathers = 1,
  troubled.loop->calls = 1;
  troubled.machine_vector_bits = 512;
  troubled.page_faults = 1234;
  troubled.where = {150, 0.3, 0.05, 0.4, 0.2};
  troubled.counters = HardwareCounters{1.5, 12345};
  Diagnosis staged;
  staged.stages = {{"(before the first)", 0.04}, {"pack", 0.12}, {"multiply", 0.84}};
  Diagnosis unmarked;
  unmarked.stage_problem = "with calls of a timer in their places the kernel does not compile";
  Diagnosis unsampled = SomeDiagnosis();
  unsampled.where = {}, unsampled.loop->share = 0;
  Diagnosis even = SomeDiagnosis();
  even.loop->share = 0.05;
  const std::vector<std::pair<std::string, std::string>> texts = {
      {"vectors, memory takes a part", Diagnosed(SomeDiagnosis())},
      {"scalar, one thread waits", Diagnosed(scalar)},
      {"a sum in order", Diagnosed(in_order)},
      {"spills, page faults, the math library", Diagnosed(troubled)},
      {"stages", Diagnosed(staged)},
      {"marks that do not compile", Diagnosed(unmarked)},
      {"no samples", Diagnosed(unsampled)},
      {"no loop stands out", Diagnosed(even)},
      {"no evidence", Diagnosed({})},
  };
  std::string all;
  for (const auto& [name, text] : texts) all += "=== " + name + "\n" + text + "\n\n";
  testing::CheckGolden("tests/agent/golden/feedback_diagnosis.txt", all);
  CHECK(DiagnosisText({}).empty());
}

TEST_CASE("a diagnosis made while the processor was busy concludes nothing from its times") {
  Diagnosis diagnosis = SomeDiagnosis();
  diagnosis.cold_us = 4300, diagnosis.one_thread_us = 4900, diagnosis.warm_us = 4000;
  const auto has = [](const std::string& text, const char* part) {
    return text.find(part) != std::string::npos;
  };
  for (const double measured_us : {0.0, 4000.0, 5000.0}) {
    CHECK(has(DiagnosisText(diagnosis, measured_us), "Threads: 4900 us with 1 thread"));
    CHECK(has(DiagnosisText(diagnosis, measured_us), "Caches: 4300 us"));
  }
  for (const double measured_us : {1856.0, 9000.0}) {
    const std::string text = DiagnosisText(diagnosis, measured_us);
    CHECK(has(text, "Its calls took 4300 us"));
    CHECK_FALSE(has(text, "with 1 thread"));
    CHECK_FALSE(has(text, "Caches:"));
    CHECK(has(text, "Hot loop"));
  }
  diagnosis.warm_us = 5000;  // longer than with cold caches
  CHECK_FALSE(has(DiagnosisText(diagnosis), "Caches:"));
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

TEST_CASE("a diagnosis is bounded, and shows hidden characters") {
  Diagnosis hostile = SomeDiagnosis();
  hostile.stages = {{"\x1b[2Jpack", 1}};
  hostile.loop->notes.assign(3, {12, 0, std::string(5000, 'x')});
  hostile.loop->packed = 0, hostile.loop->scalar = 1;
  const std::string text = DiagnosisText(hostile);
  CHECK(text.size() <= kMaxDiagnosisBytes);
  CHECK(text.find('\x1b') == std::string::npos);
  CHECK(text.find("\\x1b[2Jpack") != std::string::npos);
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
          "libraries (--rules open permits that)"}) ==
      "The kernel was refused: kernels of its own do 0 % of the work, and the rules `kevin` ask for 90 %: the rest is "
      "done by libraries. Write the computation as kernels of your own (C++ with load_inline) and call them in "
      "`forward`. PyTorch's operators may allocate, reshape and connect, but not compute.");
  CHECK(told(Refused{"kernels of its own do 0 % of the work"}, "triton")
            .find("(@triton.jit) and call them in `launch`") != std::string::npos);
  CHECK(
      told(Refused{"ModelNew has no place for these weights of the problem: w [3]. Register each"}) ==
      "The kernel was refused: ModelNew has no place for these weights of the problem: w [3]. Register each.");
  CHECK(told(Refused{
                 "KernelBench's static rules refuse it: try/except: a fallback may take the kernel's place"})
            .ends_with("Write the file without that."));
  CHECK(told(TimedOut{"compile", 60})
            .starts_with("The kernel did not compile within 60 s, also while nothing else"));
  CHECK(told(SomeMeasured(1.5, Verdict::kFast)).find("\nKernels of its own did 97 % of the work.") !=
        std::string::npos);
}

}  // namespace kevin
