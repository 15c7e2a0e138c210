// bench_compile: compile times of the CUDA compile farm for new texts. Prints the median and the worst of N
// distinct sources of each kind, one after another on warm compilers, and the texts per second of all cores
// together. Usage: bench_compile [--sources N]; the programs beside it are used.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <thread>
#include <vector>

#include "env/error.h"
#include "env/process/machine.h"
#include "tests/bench/bench_figures.h"
#include "tests/bench/bench_kernels.h"

namespace kevin {
namespace {

void OneAfterAnother(BenchCompiler* compiler, const CompileSource& source, int sources) {
  const BenchCompiler::Times times = compiler->OneAfterAnother(source, sources);
  fmt::print("{:<20} {:>9.0f} {:>9.1f} {:>9.1f} {:>9.1f}\n", source.name, times.first_ms,
             QuantileOf(times.later_ms, 0.5), QuantileOf(times.later_ms, 0.9), QuantileOf(times.later_ms, 1));
}

void AllTogether(BenchCompiler* compiler, int sources) {
  const auto start = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (int thread = 0; thread < UsableCpus(); ++thread) {
    threads.emplace_back([=] {
      for (int i = 0; i < sources; ++i)
        compiler->Milliseconds(CompileSources()[i % 3], 100'000 + thread * sources + i);
    });
  }
  for (std::thread& thread : threads) thread.join();
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  fmt::print("{} threads, the first three mixed: {:.1f} a second\n", UsableCpus(),
             sources * UsableCpus() / seconds);
}

void Run(int sources) {
  BenchCompiler compiler;
  fmt::print("{}, {} compilers, {} distinct sources each, sm_90a, ms\n", compiler.toolchain().version,
             UsableCpus(), sources);
  compiler.WarmUp();
  fmt::print("{:<20} {:>9} {:>9} {:>9} {:>9}\n", "", "first", "p50", "p90", "worst");
  for (const CompileSource& source : CompileSources()) OneAfterAnother(&compiler, source, sources);
  AllTogether(&compiler, sources);
}

}  // namespace
}  // namespace kevin

int main(int argc, char** argv) {
  CLI::App app{"Compile times of new texts for a GPU"};
  int sources = 20;
  app.add_option("--sources", sources, "Distinct sources of each kind")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  try {
    kevin::Run(sources);
  } catch (const kevin::Error& error) {
    fmt::print(stderr, "bench_compile: {}\n  {}\n", error.what(), error.next_step());
    return static_cast<int>(error.code());
  }
  return 0;
}
