// Hostile GPU candidates, one file each in red_team/, judged as any other: none may gain from its attack,
// and after each that ended a runner a correct kernel must still be measured. And correct ones in
// red_team/correct/, all of which must be measured. Without a GPU this is skipped.

#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>

#include "env/gpu/runner/device_memory.h"
#include "env/gpu/runner/driver.h"
#include "tests/catch.h"
#include "tests/env/cpu/cpu_fixture.h"
#include "tests/env/cpu/mlp_candidates.h"
#include "tests/env/gpu/gpu_candidates.h"
#include "tests/env/gpu/gpu_fixture.h"

namespace kevin {
namespace {

Evaluation Judge(const GpuCandidate& one, bool confirm = false) {
  EvaluateOptions options;
  options.workload.size = one.size;
  options.confirm = confirm;
  return SharedGpu()->Evaluate(ListedProblem(one.problem), one.candidate, options);
}

bool IsMeasured(const Outcome& outcome) { return std::holds_alternative<Measured>(outcome); }

// A gain is what stands after the second measurement that every winner gets: among so many, one 99 % interval
// may lie too high by chance.
bool IsBlocked(const GpuCandidate& attack, const Outcome& outcome) {
  if (!IsMeasured(outcome)) return true;
  if (attack.ending != Ending::kNoGain) return false;
  if (!SeemsFaster(outcome)) return true;
  const Outcome again = Judge(attack, true).outcome;
  Print(attack.name + ", again", again);
  return !SeemsFaster(again);
}

// Of the same problem, so that the evaluator need not make another one ready.
GpuCandidate CanaryFor(const GpuCandidate& attack) {
  const std::vector<GpuCandidate> correct = CorrectGpuKernels();
  const auto found = std::find_if(correct.begin(), correct.end(), [&](const GpuCandidate& kernel) {
    return kernel.problem == attack.problem;
  });
  REQUIRE(found != correct.end());
  GpuCandidate canary = *found;
  canary.size = attack.size;
  return canary;
}

bool EndsRunner(const Outcome& outcome) {
  return std::holds_alternative<Crashed>(outcome) || std::holds_alternative<TimedOut>(outcome);
}

}  // namespace

TEST_CASE("no attack on a GPU gains anything") {
  if (!SharedGpu()) return;
  const std::vector<GpuCandidate> attacks = GpuAttacks();
  REQUIRE(attacks.size() > 100);
  int blocked = 0;
  for (const GpuCandidate& attack : attacks) {
    INFO(attack.name);
    // An Error would make the turn void: a hostile candidate must get a verdict.
    const Outcome outcome = Judge(attack).outcome;
    Print(attack.name, outcome);
    const bool is_blocked = IsBlocked(attack, outcome);
    CHECK(is_blocked);
    blocked += is_blocked;
    if (!EndsRunner(outcome)) continue;
    const Outcome canary = Judge(CanaryFor(attack)).outcome;
    INFO("afterwards: " << OutcomeReason(canary));
    CHECK(IsMeasured(canary));
  }
  std::printf("attacks blocked %d/%zu\n", blocked, attacks.size());
}

TEST_CASE("correct GPU kernels are measured") {
  if (!SharedGpu()) return;
  const std::vector<GpuCandidate> kernels = CorrectGpuKernels();
  REQUIRE(kernels.size() > 10);
  int passed = 0;
  for (const GpuCandidate& kernel : kernels) {
    const Outcome outcome = Judge(kernel).outcome;
    INFO(kernel.name << ": " << OutcomeReason(outcome));
    Print(kernel.name, outcome);
    CHECK(IsMeasured(outcome));
    passed += IsMeasured(outcome);
  }
  std::printf("correct kernels passed %d/%zu\n", passed, kernels.size());
}

// The texts differ only behind a comment that looks like the end of the code.
TEST_CASE("a kernel that does nothing does not get the verdict of one that works") {
  if (!SharedGpu()) return;
  const auto text = [](const std::string& work) {
    return "__global__ void relu(const float* x, float* out) {\n  const long i = blockIdx.x * 256L + threadIdx.x;\n"
           "  const float zero = 0;\n  asm volatile(\"/*\\n.section .debug_str\\n*/\\n.loc 1 1 0 " +
           work +
           "\" : : \"l\"(out + i), \"f\"(fmaxf(x[i], 0)), \"f\"(zero) : \"memory\");\n}\n"
           "void launch(const float* x, float* out) { relu<<<B * N / 256, 256>>>(x, out); }\n";
  };
  const Problem problem = ListedProblem("level1/19");
  EvaluateOptions options;
  options.workload.size = "small";
  const Evaluation works = SharedGpu()->Evaluate(problem, {"cuda", text("st.global.f32 [%0], %1;")}, options);
  INFO(OutcomeReason(works.outcome));
  REQUIRE(IsMeasured(works.outcome));
  options.known = [&](const std::string& machine_key) -> std::optional<Evaluation> {
    if (machine_key != works.machine_key) return std::nullopt;
    return works;
  };
  const Outcome idle =
      SharedGpu()->Evaluate(problem, {"cuda", text("// st.global.f32 [%0], %1;")}, options).outcome;
  Print("does_nothing", idle);
  CHECK(std::holds_alternative<Wrong>(idle));
  const Outcome same =
      SharedGpu()
          ->Evaluate(problem, {"cuda", "// Again.\n" + text("st.global.f32 [%0], %1;")}, options)
          .outcome;
  CHECK(IsMeasured(same));
}

TEST_CASE("parameters in one block are judged on a GPU as any others") {
  if (!SharedGpu()) return;
  const Problem mlp = LoadProblemFile(MlpPath());
  EvaluateOptions options;
  options.workload.size = "small";
  const auto judged = [&](const std::string& text) {
    return SharedGpu()->Evaluate(mlp, {"cuda", text}, options).outcome;
  };
  for (const std::string& text : {kMlpCuda, kMlpCudaOneKernel}) {
    const Outcome outcome = judged(text);
    INFO(OutcomeReason(outcome));
    CHECK(IsMeasured(outcome));
  }
  std::string wrong = kMlpCuda;
  wrong.replace(wrong.find("b7_offset"), 9, "b6_offset");
  CHECK(std::holds_alternative<Wrong>(judged(wrong)));
}

// Nearly all memory beside the session of another problem is taken by this process.
TEST_CASE("a kernel whose workspaces do not fit beside other problems is judged without them") {
  if (!SharedGpu()) return;
  const auto judge = [](const std::string& problem, const std::string& size, const std::string& text) {
    EvaluateOptions options;
    options.workload.size = size;
    const Outcome outcome = SharedGpu()->Evaluate(ListedProblem(problem), {"cuda", text}, options).outcome;
    Print(problem + ", " + size, outcome);
    return outcome;
  };
  const auto relu = [](const std::string& gibibytes) {
    return "__global__ void relu(const float* x, float* out, float* w) {\n"
           "  const long i = blockIdx.x * 256L + threadIdx.x;\n  w[i] = fmaxf(x[i], 0);\n  out[i] = w[i];\n}\n"
           "void launch(const float* x, float* out) {\n  float* w = workspace<float>(" +
           gibibytes + " * 268435456L);\n  relu<<<B * N / 256, 256>>>(x, out, w);\n}\n";
  };
  CHECK(IsMeasured(judge("level1/19", "small", relu("1"))));
  CHECK(IsMeasured(judge("level1/19", "full", relu("7"))));  // a session of 12 GiB at least
  LoadDriver();
  UsePrimaryContext(0);
  const size_t free_bytes = MemoryOfDevice().free;
  constexpr size_t kLeft = size_t{4} << 30;
  REQUIRE(free_bytes > 2 * kLeft);
  const DeviceBuffer taken(free_bytes - kLeft);
  const Outcome fits = judge("level1/19", "small", relu("8"));
  INFO(OutcomeReason(fits));
  CHECK(IsMeasured(fits));
}

// Half of its indices lie outside the table: the device fails, and with it the process that judges.
TEST_CASE("a reference that makes the GPU fail is an error of its problem, and the next problem is judged") {
  if (!SharedGpu()) return;
  const Problem problem = ParseProblem(R"(
id = "mine/1"
name = "Rows"
families = ["indexing"]
reference = '''
def forward(table, i):
    return torch.embedding(table, i)
'''
[sizes.small]
N = 1024
[sizes.full]
N = 1024
[[inputs]]
name = "table"
shape = ["N", "N"]
[[inputs]]
name = "i"
shape = ["N"]
dtype = "int64"
distribution = "uniform01"
scale = "2*N"
[[outputs]]
name = "out"
shape = ["N", "N"]
[cost]
flops = 1
bytes = 1
min_flops = 0
min_bytes = 0
)",
                                       "mine.toml");
  const Candidate kernel{
      "cuda",
      "__global__ void rows(float* out) { out[blockIdx.x * 1024 + threadIdx.x] = 0; }\n"
      "void launch(const float* table, const long* i, float* out) { rows<<<N, 1024>>>(out); }\n"};
  EvaluateOptions options;
  options.workload.size = "small";
  std::string what;
  try {
    SharedGpu()->Evaluate(problem, kernel, options);
  } catch (const Error& error) {
    what = error.what();
    CHECK(error.code() == ExitCode::kBadRequest);
  }
  std::printf("%s\n", what.c_str());
  CHECK(what.starts_with("mine/1: "));
  CHECK(IsMeasured(Judge(CorrectGpuKernels().front()).outcome));
}

// The standing check of the clock: eager's own form, four numbers at once.
TEST_CASE("a kernel in eager's form is as fast as eager") {
  if (!SharedGpu()) return;
  const std::vector<GpuCandidate> correct = CorrectGpuKernels();
  const auto found = std::find_if(correct.begin(), correct.end(),
                                  [](const GpuCandidate& kernel) { return kernel.name == "four_at_once"; });
  REQUIRE(found != correct.end());
  GpuCandidate relu = *found;
  relu.size = "full";
  const Outcome outcome = Judge(relu).outcome;
  Print("four_at_once, full", outcome);
  REQUIRE(IsMeasured(outcome));
  CHECK(std::get<Measured>(outcome).speedup.value > 0.9);
  CHECK(std::get<Measured>(outcome).speedup.value < 1.1);
}

}  // namespace kevin
