#include <algorithm>
#include <cmath>
#include <iterator>
#include <regex>

#include "env/gpu/launch/launch_function.h"
#include "tests/bench/bench_figures.h"
#include "tests/bench/bench_gpu_parts.h"
#include "tests/bench/bench_kernels.h"
#include "tests/catch.h"
#include "tests/env/gpu/gpu_fixture.h"

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

size_t Additions(const std::string& ptx) {
  const std::regex addition("add\\.rn\\.f32");
  return static_cast<size_t>(
      std::distance(std::sregex_iterator(ptx.begin(), ptx.end(), addition), std::sregex_iterator()));
}

TEST_CASE("the clock's kernels compile, and a delay stays in the machine code") {
  if (!TestToolchain()) return;
  const Problem problem = ReluProblem(1'310'720);
  CheckCompiles(problem, EagerFormRelu());
  CheckCompiles(problem, DelayedRelu(1000));
  for (const auto& [steps, additions] : {std::pair<int, size_t>{1000, 16 + 8}, {33, 16 + 1}, {7, 7}})
    CHECK(Additions(Compile(problem, DelayedRelu(steps)).module.ptx) == additions);
  CHECK(Additions(Compile(problem, DelayedRelu(0)).module.ptx) == 0);
}

TEST_CASE("quantiles and goals") {
  CHECK(std::isnan(QuantileOf({}, 0.5)));
  CHECK(QuantileOf({3, 1, 2}, 0.5) == 2);
  CHECK(QuantileOf({3, 1, 2}, 1) == 3);
  BenchFigures figures(false);
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

TEST_CASE("a delay is found whatever the shape of the slow-down") {
  struct Shape {
    double hidden, step;  // steps that cost nothing, and what each of the others costs
  };
  for (const Shape& shape : {Shape{0, 0.0019}, {0, 0.005}, {20, 0.004}, {206, 0.0043}, {700, 0.0012}}) {
    for (const double share : {0.03, 0.06}) {
      const auto slowdown = [&](int steps) { return std::max(0.0, shape.step * (steps - shape.hidden)); };
      INFO(shape.hidden << " " << shape.step << " " << share);
      const CalibratedDelay delay = CalibrateDelay(share, slowdown);
      CHECK(delay.is_reached);
      CHECK(delay.slowdown == slowdown(delay.steps));
      CHECK(std::abs(delay.slowdown - share) <= 0.1 * share);
      CHECK(delay.probes <= 12);
    }
  }
}

TEST_CASE("a delay that cannot be had is said to be none") {
  const CalibratedDelay hidden = CalibrateDelay(0.03, [](int) { return 0.001; });
  CHECK_FALSE(hidden.is_reached);
  CHECK(hidden.probes == 12);
  // Step 41 jumps over the share: nothing lies between 40 and 41.
  const CalibratedDelay jump = CalibrateDelay(0.03, [](int steps) { return steps > 40 ? 0.05 : 0.02; });
  CHECK_FALSE(jump.is_reached);
  CHECK(jump.slowdown == 0.02);
  CHECK(jump.steps <= 40);
  CHECK(jump.probes <= 12);
}

// Judges the benchmark's own texts by what they hold: 5 us, and each step of a delay beyond the first
// `hidden_steps` takes 2 ns more. Every three readings of delayed texts are off by -2, 0 and 2 %.
class PretendedGpu : public Environment {
 public:
  explicit PretendedGpu(int hidden_steps) : hidden_steps_(hidden_steps) {}

  Evaluation EvaluateShape(const Problem&, const Candidate& candidate,
                           const EvaluateOptions& options) override {
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
        double slowdown = measured.candidate_us / Microseconds(options.start_source) - 1;
        if (candidate.source != options.start_source) slowdown += 0.02 * (readings_++ % 3 - 1);
        const double ratio = 1 / (1 + slowdown);
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
  double Microseconds(const std::string& source) const {
    std::smatch found;
    if (!std::regex_search(source, found, std::regex("steps = (\\d+);"))) return 5;
    return 5 + 0.002 * std::max(0, std::stoi(found[1]) - hidden_steps_);
  }
  int hidden_steps_, readings_ = 0;
  EnvironmentFacts facts_;
};

TEST_CASE("the parts tell right, wrong and not compiling apart, and find a planted delay") {
  PretendedGpu gpu(60);
  BenchFigures figures(false);
  BenchTurns(&gpu, 2, &figures);
  BenchClock(&gpu, 3, "5us", &figures);
  const std::string table = figures.Table();
  INFO(table);
  CHECK(table.find("MISSED level1/19 unexpected") == std::string::npos);
  CHECK(table.find("met    level1/47 unexpected: 0") != std::string::npos);
  CHECK(table.find("met    level1/19 held_s: 0.250, wanted <= 0.3") != std::string::npos);
  CHECK(table.find("harness    kernelbench_s") != std::string::npos);
  CHECK(table.find("310") != std::string::npos);  // 77.5 / 0.25
  CHECK(table.find("met    5us holds_1_pct: 100.0") != std::string::npos);
  CHECK(table.find("met    5us found_pct: 100.0") != std::string::npos);
  CHECK(table.find("met    5us calibrated_off_pct: 0.0") != std::string::npos);
  // 6 % of 5 us are 150 steps beyond the hidden ones; calibrated, and then found, as 6 %.
  CHECK(std::regex_search(table, std::regex("5us +6\\.0 +210 +6\\.00 +0\\.0 +3 +0 +6\\.00 +100\\.0 +0\n")));
}

TEST_CASE("a delay that stays hidden is reported as missed, and not as found") {
  PretendedGpu gpu(1'000'000);
  BenchFigures figures(false);
  BenchClock(&gpu, 3, "5us", &figures);
  const std::string table = figures.Table();
  INFO(table);
  CHECK(table.find("MISSED 5us calibrated_off_pct: 100.0, wanted <= 10") != std::string::npos);
  CHECK(table.find("5us found_pct:") == std::string::npos);
}

}  // namespace
}  // namespace kevin
