// bench_gpu: the figures of the GPU environment on this machine: cost of a turn, compile times, accuracy of
// the clock, candidates per hour. Nothing else should run at the same time.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "agent/machine.h"
#include "env/error.h"
#include "env/process/machine.h"
#include "tests/bench/bench_gpu_parts.h"

namespace kevin {
namespace {

constexpr const char* kExamples = R"(Examples:
  bench_gpu                                  everything; some 15 minutes on an H200
  bench_gpu --part turn --repeats 5          a quick look at the turns
  bench_gpu --part clock --at 50us --json    one kernel time, one JSON object a line
  bench_gpu --part compile                   needs no GPU
  bench_gpu --part python --repeats 20       candidates in Python: accuracy of their clock, cost of a turn
  bench_gpu --part prepare --suite level2 --from level2/40 --seconds 180
                                             reference, inputs and truth of every problem, in slices
Exit code 3 when a part needs a GPU and there is none. Parts run in the order given. A missed goal is printed and does not change the exit code.)";

struct Options {
  std::vector<std::string> parts = {"turn", "compile", "throughput", "clock"};
  std::string device = "cuda:0", isolation = "full", at;
  int repeats = 0;
  double seconds = 0;  // 0: as usual
  PrepareChoice prepare;
  bool json = false;
};

void AddOptions(CLI::App* app, Options* options) {
  app->add_option(
         "--part", options->parts,
         "turn, compile, clock, throughput, prepare or python; repeatable; the first four by default")
      ->check(CLI::IsMember({"turn", "compile", "clock", "throughput", "prepare", "python"}))
      ->allow_extra_args(false);
  app->add_option(
         "--repeats", options->repeats,
         "Texts of each problem or kind, measurements of each kernel time (default: 20, 20, 100; python: 100 of each)")
      ->check(CLI::PositiveNumber);
  app->add_option("--at", options->at, "clock and python: one kernel time only (4ms: clock alone)")
      ->check(CLI::IsMember({"5us", "50us", "1ms", "4ms"}));
  app->add_option("--seconds", options->seconds,
                  "throughput: how long (30 s); prepare: start no further problem after this time (no limit)")
      ->check(CLI::PositiveNumber);
  app->add_option("--suite", options->prepare.suite, "prepare: these problems")->capture_default_str();
  app->add_option("--from", options->prepare.from, "prepare: start at this problem");
  app->add_option("--size", options->prepare.size, "prepare: size set")->capture_default_str();
  app->add_option("--device", options->device, "cuda:N")
      ->check([](const std::string& device) {
        return device.rfind("cuda:", 0) == 0 ? "" : device + " is not cuda:N";
      })
      ->capture_default_str();
  app->add_option("--isolation", options->isolation, "reduced: run kernels even where the sandbox leaks")
      ->check(CLI::IsMember({"full", "reduced"}))
      ->capture_default_str();
  app->add_flag("--json", options->json, "One JSON object a line on stdout, as each is known");
  app->footer(kExamples);
}

std::unique_ptr<Environment> StartEnvironment(const Options& options, const BenchFigures& figures) {
  EnvironmentOptions environment = EnvironmentOptionsFor(0, options.isolation);
  environment.device = options.device;
  std::unique_ptr<Environment> started = MakeEnvironment(environment);
  const EnvironmentFacts& facts = started->Facts();
  figures.Note(fmt::format("{}; isolation {}; {} cores", facts.device, facts.isolation, UsableCpus()));
  return started;
}

int Report(const Error& error) {
  fmt::print(stderr, "bench_gpu: {}\n  next: {}\n", error.what(), error.next_step());
  return static_cast<int>(error.code());
}

// Returns the exit code. The next part runs after a part that failed.
int Run(const Options& options, BenchFigures* figures) {
  int code = 0;
  std::unique_ptr<Environment> environment;
  const auto repeats = [&](int usual) { return options.repeats > 0 ? options.repeats : usual; };
  for (const std::string& part : options.parts) {
    try {
      if (part != "compile" && !environment) environment = StartEnvironment(options, *figures);
      if (part == "turn") BenchTurns(environment.get(), repeats(20), figures);
      if (part == "compile") BenchCompile(repeats(20), figures);
      if (part == "throughput")
        BenchThroughput(environment.get(), options.seconds > 0 ? options.seconds : 30, figures);
      if (part == "prepare") BenchPrepare(environment.get(), options.prepare, figures);
      if (part == "python") BenchPython(environment.get(), repeats(100), options.at, figures);
      if (part == "clock") BenchClock(environment.get(), repeats(100), options.at, figures);
    } catch (const Error& error) {
      code = Report(error);
      if (part != "compile" && !environment) break;
    }
  }
  return code;
}

}  // namespace
}  // namespace kevin

int main(int argc, char** argv) {
  CLI::App app{"Cost of judging kernels on this GPU, and accuracy of its clock"};
  kevin::Options options;
  kevin::AddOptions(&app, &options);
  CLI11_PARSE(app, argc, argv);
  options.prepare.seconds = options.seconds;
  kevin::BenchFigures figures(options.json);
  const int code = kevin::Run(options, &figures);
  if (!options.json) fmt::print("{}", figures.Table());
  return code;
}
