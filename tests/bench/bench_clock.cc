// bench_clock: accuracy of the CPU clock on this machine. Prints
//   A/A      a kernel against itself: intervals that hold 1.0, spread, false FAST or SLOW;
//   A/A+5%   a kernel against itself plus 5 % more work (a calibrated spin): how often it is called SLOW;
//   eager    a plain loop that does what eager does, against eager;
//   python   eager's own text as a candidate of kind `modelnew`, against eager (only when asked for; needs a Python with torch);
//   draw     how fast inputs are drawn (only when asked for).
// Nothing else should run at the same time. Two kernels are judged as `kevin bench A B` does.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <map>
#include <vector>

#include "agent/machine.h"
#include "env/environment.h"
#include "env/error.h"
#include "env/problem/problem.h"
#include "env/process/generator.h"
#include "env/process/machine.h"
#include "env/verdict/estimate.h"

namespace kevin {
namespace {

// One form for all elementwise problems here, with `spin_ns` of extra work.
std::string Kernel(const std::string& expression, double spin_ns) {
  return fmt::format(R"(#include <cmath>
#include <ctime>
extern "C" void launch(const float* x, float* out) {{
  timespec begin, now;
  clock_gettime(CLOCK_MONOTONIC, &begin);
#pragma omp parallel for simd
  for (long i = 0; i < B * N; ++i) out[i] = {};
  if ({:.0f} > 0) {{
    timespec spin;
    clock_gettime(CLOCK_MONOTONIC, &spin);
    do clock_gettime(CLOCK_MONOTONIC, &now);
    while ((now.tv_sec - spin.tv_sec) * 1e9 + (now.tv_nsec - spin.tv_nsec) < {:.0f});
  }}
}}
)",
                     expression, spin_ns, spin_ns);
}

constexpr double kPatience = 10;  // of `kevin bench A B`

struct Subject {
  const char* problem;
  const char* expression;
};
constexpr Subject kSubjects[] = {{"level1/19", "x[i] > 0 ? x[i] : 0"},
                                 {"level1/20", "x[i] > 0 ? x[i] : 0.01f * x[i]"},
                                 {"level1/30", "x[i] / (1 + std::fabs(x[i]))"},
                                 {"level1/32", "x[i] < -1 ? -1 : x[i] > 1 ? 1 : x[i]"}};

class ClockBenchmark {
 public:
  explicit ClockBenchmark(int repeats)
      : repeats_(repeats),
        problems_(ProblemSet::DefaultDirectory()),
        environment_(MakeCpuEnvironment(EnvironmentOptionsFor(0, "full"))) {
    fmt::print("{}\nisolation {}\n", environment_->Facts().device, environment_->Facts().isolation);
  }

  void Run(const std::string& part) {
    if (part == "python") return Python();
    if (part != "slower" && part != "eager") Pairs("A/A", 0);
    if (part != "same" && part != "eager") Pairs("A/A+5%", 0.05);
    if (part != "same" && part != "slower") Eager();
  }

 private:
  Measured Judge(const Problem& problem, const std::string& source, const std::string& start) {
    EvaluateOptions options;
    options.start_source = start;
    if (!start.empty()) options.patience = kPatience;
    return Judge(problem, {"cpp", source}, options);
  }

  Measured Judge(const Problem& problem, const Candidate& candidate, const EvaluateOptions& options) {
    const Evaluation evaluation = environment_->Evaluate(problem, candidate, options);
    if (const Measured* measured = std::get_if<Measured>(&evaluation.outcome)) return *measured;
    throw Error(ExitCode::kBroken, problem.id + ": " + OutcomeName(evaluation.outcome) + ": " +
                                       OutcomeReason(evaluation.outcome));
  }

  // The time of the kernel without a spin; measured once.
  double PlainUs(const Subject& subject) {
    double& us = plain_us_[subject.problem];
    if (us == 0) us = Judge(problems_.Find(subject.problem), Kernel(subject.expression, 0), "").candidate_us;
    return us;
  }

  // What a kernel measures against itself.
  struct Tally {
    std::string name;
    int holds = 0, fast = 0, slow = 0, same = 0;
    std::vector<double> logs = {}, widths = {};

    // And prints it.
    void Add(const char* problem, const Ratio& ratio, Verdict verdict) {
      holds += ratio.low <= 1 && 1 <= ratio.high;
      fast += verdict == Verdict::kFast;
      slow += verdict == Verdict::kSlow;
      same += verdict == Verdict::kSame;
      logs.push_back(std::log(ratio.value));
      widths.push_back(std::log(ratio.high / ratio.low) / 2);
      fmt::print("  {} {:>2} {:<10} {:.4f} [{:.4f}, {:.4f}] {}\n", name, logs.size(), problem, ratio.value,
                 ratio.low, ratio.high, VerdictName(verdict));
      std::fflush(stdout);
    }

    void Print() const {
      const auto repeats = static_cast<int>(logs.size());
      std::vector<double> deviations;
      for (const double log : logs) deviations.push_back(std::abs(log));
      fmt::print(
          "{}: interval holds 1.0 in {}/{}, median log-ratio {:+.2f} %, median |log-ratio| {:.2f} %, median "
          "half-width {:.2f} %, FAST {}, SLOW {}, SAME {}, AMBIGUOUS {}\n",
          name, holds, repeats, 100 * Median(logs), 100 * Median(deviations), 100 * Median(widths), fast,
          slow, same, repeats - fast - slow - same);
    }
  };

  void Pairs(const char* name, double more) {
    Tally tally{name};
    for (int i = 0; i < repeats_; ++i) {
      const Subject& subject = kSubjects[static_cast<size_t>(i) % std::size(kSubjects)];
      const Problem problem = problems_.Find(subject.problem);
      const std::string plain = Kernel(subject.expression, 0);
      const double spin_ns = more > 0 ? more * 1000 * PlainUs(subject) : 0;
      const Measured measured = Judge(problem, Kernel(subject.expression, spin_ns), plain);
      tally.Add(subject.problem, *measured.against_start, measured.verdict_against_start);
    }
    tally.Print();
  }

  void Python() {
    Tally tally{"python"};
    EvaluateOptions options;
    options.workload.rules = "open";
    const Problem problem = problems_.Find("level1/19");
    for (int i = 0; i < repeats_; ++i) {
      const std::string source = fmt::format(
          "# {}\nimport torch\n\n\nclass ModelNew(torch.nn.Module):\n    def forward(self, x):\n"
          "        return torch.relu(x)\n",
          i);
      const Measured measured = Judge(problem, {"modelnew", source}, options);
      tally.Add(problem.id.c_str(), measured.speedup, measured.verdict);
    }
    tally.Print();
  }

  void Eager() {
    const Problem problem = problems_.Find("level1/19");
    const Measured measured = Judge(problem, Kernel(kSubjects[0].expression, 0), "");
    fmt::print("eager: a plain parallel loop for level1/19 measures {:.3f}x [{:.3f}, {:.3f}] against eager\n",
               measured.speedup.value, measured.speedup.low, measured.speedup.high);
  }

  int repeats_;
  std::map<std::string, double> plain_us_;
  ProblemSet problems_;
  std::unique_ptr<Environment> environment_;
};

// The best of several fillings of 64 MB, which is more than a cache holds.
void Drawing(int repeats) {
  constexpr int64_t kBytes = int64_t{64} << 20;
  std::vector<std::byte> memory(kBytes);
  for (const int threads : {1, UsableCpus()}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kI64}) {
      for (const Distribution distribution :
           {Distribution::kNormal, Distribution::kUniform, Distribution::kHeavyTailed}) {
        TensorSpec spec;
        spec.dtype = dtype;
        spec.distribution = distribution;
        const ValueStream stream{NewSecretKey(), 0, 0};
        const int64_t elements = kBytes / DTypeBytes(dtype);
        double best_s = 1e9;
        for (int i = 0; i < repeats; ++i) {
          const auto start = std::chrono::steady_clock::now();
          FillTensor(spec, InputMode::kDefault, stream, elements, threads, memory.data());
          best_s = std::min(best_s, SecondsSince(start));
        }
        fmt::print("draw {:<8} {:<12} {} threads  {:.2f} G values/s\n", DTypeName(dtype),
                   DistributionName(distribution), threads, static_cast<double>(elements) / best_s * 1e-9);
      }
    }
  }
}

}  // namespace
}  // namespace kevin

int main(int argc, char** argv) {
  CLI::App app{"Accuracy of the CPU clock on this machine"};
  int repeats = 40;
  std::string part;
  app.add_option("--repeats", repeats, "Measurements of each kind")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--part", part, "same, slower, eager, python or draw; the first three by default")
      ->check(CLI::IsMember({"same", "slower", "eager", "python", "draw"}));
  CLI11_PARSE(app, argc, argv);
  try {
    if (part == "draw") {
      kevin::Drawing(repeats);
    } else {
      kevin::ClockBenchmark(repeats).Run(part);
    }
  } catch (const kevin::Error& error) {
    fmt::print(stderr, "bench_clock: {}\n  next: {}\n", error.what(), error.next_step());
    return static_cast<int>(error.code());
  }
  return 0;
}
