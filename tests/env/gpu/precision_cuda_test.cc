// The kernels of precision/ and Kevin's own, up to the moment before anything runs, with no GPU.

#include "env/gpu/launch/launch_function.h"
#include "env/gpu/runner/device_memory.h"
#include "tests/env/cpu/inout_cases.h"
#include "tests/env/cpu/precision_search.h"
#include "tests/env/gpu/gpu_fixture.h"

namespace kevin {

namespace {

void CheckCompiles(Farm& farm, const Problem& problem, const std::string& text,
                   const std::string& size = "full") {
  const SizedProblem sized = AtSize(problem, size);
  INFO(problem.id << " in " << PrecisionName(PrecisionOf(problem)) << "\n" << text);
  const InterpretedLaunch launch = InterpretLaunch(sized, "cuda", text);
  GpuCompileRequest request;
  request.device_text = launch.split.device_text;
  request.kernels.assign(launch.kernels.begin(), launch.kernels.end());
  request.symbols = sized.symbols;
  const GpuCompiled compiled = farm->Compile(request);
  INFO(compiled.log << compiled.refused);
  CHECK_FALSE(compiled.module.cubin.empty());
  CHECK(compiled.refused.empty());
}

}  // namespace

TEST_CASE("CUDA kernels in 16 bits reach machine code") {
  if (!TestToolchain()) return;
  Farm farm([](CompileFarmOptions* options) { options->limits.compile_timeout_s = 280; });
  for (const PrecisionKernel& kernel : kPrecisionKernels) {
    for (const Precision precision : {Precision::kFp16, Precision::kBf16})
      CheckCompiles(farm, ProblemIn(kernel.problem, precision),
                    PrecisionKernelText(kernel.file, "cu", precision));
  }
}

TEST_CASE("what the search writes in 16 bits reaches machine code") {
  if (!TestToolchain()) return;
  Farm farm([](CompileFarmOptions* options) { options->limits.compile_timeout_s = 280; });
  for (const char* id : kSearchedProblems) {
    for (const Precision precision : {Precision::kFp16, Precision::kBf16}) {
      const Problem problem = ProblemIn(id, precision);
      std::string why;
      const std::string text = testing::SearchText(problem, "full", "cuda", &why);
      INFO(why);
      REQUIRE(why.empty());
      CheckCompiles(farm, problem, text);
    }
  }
}

TEST_CASE("what the search writes in place reaches machine code") {
  if (!TestToolchain()) return;
  Farm farm([](CompileFarmOptions* options) { options->limits.compile_timeout_s = 280; });
  for (const InOutCase& one : InOutCases()) {
    const Problem problem = InOutProblem(one);
    std::string why;
    const std::string text = testing::SearchText(problem, "small", "cuda", &why);
    INFO(one.name << ": " << why);
    REQUIRE(why.empty());
    CheckCompiles(farm, problem, text, "small");
  }
}

TEST_CASE("an input-output must not be const in a launch function") {
  const Problem problem = InOutProblem(InOutCases()[3]);
  std::string message;
  try {
    InterpretLaunch(
        AtSize(problem, "small"), "cuda",
        "__global__ void f(float* keys) {}\nvoid launch(const float* x, const float* keys, const float* y, "
        "const long* position) { f<<<1, 1>>>(0); }");
  } catch (const LaunchException& exception) {
    message = exception.error().message;
  }
  CHECK(message.find("parameter 2 is the input-output `keys` and must not be const") != std::string::npos);
}

TEST_CASE("a launch function for float32 gets the text to write in bf16") {
  const Problem problem = ProblemIn("level1/19", Precision::kBf16);
  const SizedProblem sized = AtSize(problem, "small");
  std::string message;
  try {
    InterpretLaunch(sized, "cuda",
                    "__global__ void f(const float* x, float* out) {}\n"
                    "void launch(const float* x, float* out) { f<<<1, 1>>>(x, out); }");
  } catch (const LaunchException& exception) {
    message = exception.error().message;
  }
  CHECK(message.find("write `void launch(const __nv_bfloat16* x, __nv_bfloat16* out)`") != std::string::npos);
}

TEST_CASE("Kevin's own kernels reach machine code, those for each type too") {
  if (!TestToolchain()) return;
  Farm farm([](CompileFarmOptions* options) { options->limits.compile_timeout_s = 280; });
  const GpuCompiled compiled = farm.Compile(TrustedKernelText(), TrustedKernelNames());
  INFO(compiled.log);
  CHECK_FALSE(compiled.module.cubin.empty());
}

}  // namespace kevin
