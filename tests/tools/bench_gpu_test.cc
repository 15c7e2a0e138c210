#include <cmath>
#include <regex>

#include "env/gpu/launch_function.h"
#include "tests/catch.h"
#include "tests/env/gpu_fixture.h"
#include "tools/bench_candidates.h"
#include "tools/bench_figures.h"
#include "tools/bench_gpu_parts.h"

namespace kevin {
namespace {

GpuCompiled Compile(const Problem& problem, const std::string& source) {
  static Farm farm;
  const SizedProblem sized = AtSize(problem, "full");
  const InterpretedLaunch launch = InterpretLaunch(sized, "cuda", source);
  CHECK(launch.list.operations.size() >= 1);
  GpuCompileRequest request;
  request.device_text = launch.split.device_text;
  request.kernels.assign(launch.kernels.begin(), launch.kernels.end());
  request.symbols = sized.symbols;
  return farm->Compile(request);
}

void CheckCompiles(const Problem& problem, const std::string& source) {
  const GpuCompiled compiled = Compile(problem, source);
  INFO(problem.id << "\n" << source << compiled.log);
  CHECK_FALSE(compiled.module.cubin.empty());
  CHECK(compiled.refused.empty());
}

TEST_CASE("a variant is another text and another cubin") {
  if (!TestToolchain()) return;
  const ProblemSet problems(ProblemSet::DefaultDirectory());
  for (const char* id : {"level1/19", "level1/23", "level1/40", "level1/1", "level1/47"}) {
    const Problem problem = problems.Find(id);
    const std::string source = SearchKernel(problem);
    CheckCompiles(problem, Variant(source, "_1"));
    const GpuCompiled one = Compile(problem, Variant(source, "_1")),
                      two = Compile(problem, Variant(source, "_2"));
    CHECK(one.cached);
    CHECK_FALSE(two.cached);
    CHECK(one.module.cubin != two.module.cubin);
    CheckCompiles(problem, Variant(ZeroKernel(problem), "_1"));
    CHECK(Compile(problem, Variant(BrokenKernel(source), "_1")).module.cubin.empty());
  }
}

TEST_CASE("the clock's kernels compile, and a delay stays in the machine code") {
  if (!TestToolchain()) return;
  const Problem problem = ReluProblem(1'310'720);
  CheckCompiles(problem, EagerFormRelu());
  CheckCompiles(problem, DelayedRelu(1000));
  CHECK(Compile(problem, DelayedRelu(1000)).module.ptx.find("add.rn.f32") != std::string::npos);
}

TEST_CASE("quantiles and goals") {
  CHECK(std::isnan(QuantileOf({}, 0.5)));
  CHECK(QuantileOf({3, 1, 2}, 0.5) == 2);
  CHECK(QuantileOf({3, 1, 2}, 1) == 3);
  Figures figures(false);
  figures.Add(
      {"turn", "a", {{"held_s", 0.25, 2, Goal{true, 0.3}}, {"per_hour", 7000, 0, Goal{false, 8000}}}});
  figures.Add({"clock", "b", {{"found_pct", 1, 0, {}}}});
  figures.Add({"turn", "c", {{"held_s", std::nan(""), 2, Goal{true, 0.3}}, {"per_hour", 9000, 0, {}}}});
  CHECK(figures.Table() == R"(
turn  held_s  per_hour
a     0.25    7000
c     nan     9000
  met    a held_s: 0.25, wanted <= 0.3
  MISSED a per_hour: 7000, wanted >= 8000
  MISSED c held_s: nan, wanted <= 0.3

clock  found_pct
b      1
)");
}

// Judges the benchmark's own texts by what they hold: each step of a delay takes 2 ns on top of 5 us.
class PretendedGpu : public Environment {
 public:
  Evaluation Evaluate(const Problem&, const Candidate& candidate, const EvaluateOptions& options) override {
    Evaluation evaluation;
    evaluation.device_s = 0.25;
    if (candidate.source.find("float broken(") != std::string::npos) {
      evaluation.outcome = CompileFailed{};
    } else if (candidate.source.find("void zero") != std::string::npos) {
      evaluation.outcome = Wrong{};
    } else {
      Measured measured;
      measured.candidate_us = Microseconds(candidate.source);
      measured.speedup = {2, 2, 2, 0, 20, 3};
      if (!options.start_source.empty()) {
        const double ratio = Microseconds(options.start_source) / measured.candidate_us;
        measured.against_start = {ratio, ratio * 0.99, ratio * 1.01, 0, 20, 3};
        measured.verdict_against_start = ratio < 0.99 ? Verdict::kSlow : Verdict::kSame;
      }
      evaluation.outcome = measured;
    }
    return evaluation;
  }
  std::string EvaluationKey(const Problem&, const Candidate&, const EvaluateOptions&) override { return ""; }
  const EnvironmentFacts& Facts() const override { return facts_; }

 private:
  static double Microseconds(const std::string& source) {
    std::smatch found;
    const bool is_delayed = std::regex_search(source, found, std::regex("\\(float4\\*\\)out, (\\d+), "));
    return 5 + (is_delayed ? 0.002 * std::stoi(found[1]) : 0);
  }
  EnvironmentFacts facts_;
};

TEST_CASE("the parts tell right, wrong and not compiling apart, and find a planted delay") {
  PretendedGpu gpu;
  Figures figures(false);
  BenchTurns(&gpu, 2, &figures);
  BenchClock(&gpu, 2, "5us", &figures);
  const std::string table = figures.Table();
  INFO(table);
  CHECK(table.find("MISSED level1/19 unexpected") == std::string::npos);
  CHECK(table.find("met    level1/47 unexpected: 0") != std::string::npos);
  CHECK(table.find("met    level1/19 held_s: 0.250, wanted <= 0.3") != std::string::npos);
  CHECK(table.find("harness    kernelbench_s") != std::string::npos);
  CHECK(table.find("310") != std::string::npos);  // 77.5 / 0.25
  CHECK(table.find("met    5us holds_1_pct: 100.0") != std::string::npos);
  CHECK(table.find("met    5us found_pct: 100.0") != std::string::npos);
  CHECK(table.find("5us           6.0          150    2.000") != std::string::npos);  // 6 % of 5 us
}

}  // namespace
}  // namespace kevin
