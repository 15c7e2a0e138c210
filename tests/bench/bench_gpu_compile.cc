#include <fmt/format.h>

#include <iterator>

#include "tests/bench/bench_compiler.h"
#include "tests/bench/bench_gpu_parts.h"

namespace kevin {

void BenchCompile(int repeats, Figures* figures) {
  BenchCompiler compiler;
  figures->Note(fmt::format("compile: {}, {} texts of each kind", compiler.toolchain().version, repeats));
  compiler.WarmUp();
  constexpr double kP50Goals[] = {60, 60, 120};
  for (size_t i = 0; i < std::size(kP50Goals); ++i) {
    const CompileSource& source = CompileSources()[i];
    const BenchCompiler::Times times = compiler.OneAfterAnother(source, repeats);
    figures->Add({"compile",
                  source.name,
                  {{"first_ms", times.first_ms, 1, {}},
                   {"p50_ms", QuantileOf(times.later_ms, 0.5), 1, Goal{true, kP50Goals[i]}},
                   {"p90_ms", QuantileOf(times.later_ms, 0.9), 1, {}},
                   {"worst_ms", QuantileOf(times.later_ms, 1), 1, {}}}});
  }
}

}  // namespace kevin
