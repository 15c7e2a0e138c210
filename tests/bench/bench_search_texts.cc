#include "tests/bench/bench_search_texts.h"

#include <fmt/format.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "agent/conversation.h"
#include "agent/parse.h"
#include "env/cpu/compile.h"
#include "env/error.h"
#include "env/gpu/launch/launch_function.h"
#include "env/problem/problem.h"
#include "env/process/spawn.h"
#include "env/sandbox/sandbox.h"
#include "policies/search/search_policy.h"
#include "tests/bench/bench_figures.h"
#include "tests/bench/bench_kernels.h"
#include "tests/support/search_text.h"
#include "tools/device_options.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

constexpr int kMostKernels = 40;  // that a text should have
constexpr double kMostText_ms = 50;

double MostCompileSeconds(const std::string& kind) { return kind == "cuda" ? 5 : 20; }

double ThreadMilliseconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

// User time of all living processes below this one.
double DescendantsSeconds() {
  std::map<int, std::pair<int, double>> processes;  // id -> parent, seconds
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (name.find_first_not_of("0123456789") != std::string::npos) continue;
    std::ifstream file(entry.path() / "stat");
    std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
    const size_t end = text.rfind(')');
    if (end == std::string::npos) continue;
    std::istringstream fields(text.substr(end + 2));
    std::string word;
    int parent = 0;
    double ticks = 0;
    for (int i = 3; i <= 14 && fields >> word; ++i) {
      if (i == 4) parent = std::stoi(word);
      if (i == 14) ticks = std::stod(word);
    }
    processes[std::stoi(name)] = {parent, ticks / static_cast<double>(sysconf(_SC_CLK_TCK))};
  }
  double seconds = 0;
  for (const auto& [id, process] : processes) {
    for (int above = process.first; above > 1;) {
      if (above == getpid()) seconds += process.second;
      const auto next = processes.find(above);
      above = next == processes.end() || above == getpid() ? 0 : next->second.first;
    }
  }
  return seconds;
}

// User time of all processes that have ended below this one.
double EndedSeconds() {
  rusage use{};
  getrusage(RUSAGE_CHILDREN, &use);
  return static_cast<double>(use.ru_utime.tv_sec) + 1e-6 * static_cast<double>(use.ru_utime.tv_usec);
}

// The compiler of C++ candidates, with a cache folder of its own.
class CppBenchCompiler {
 public:
  CppBenchCompiler() : compiler_(FindCompiler()) {
    char folder[] = "/tmp/kevin-bench-XXXXXX";
    if (mkdtemp(folder) == nullptr) throw Error(ExitCode::kMachine, "no folder can be made in /tmp", "");
    options_.cache_directory = folder;
    options_.runner = RequireProgram(ProgramDirectory(), "kevin-runner");
    options_.namespaces = NamespacesAvailable();
    options_.limits.compile_timeout_s = 600;
  }
  ~CppBenchCompiler() {
    std::error_code ignored;
    fs::remove_all(options_.cache_directory, ignored);
  }
  Compiled Compile(const SizedProblem& problem, const std::string& text) const {
    return CompileCpp(compiler_, problem, text, options_);
  }

 private:
  Compiler compiler_;
  CompileOptions options_;
};

struct TextRow {
  std::string what, kind, failure;
  double text_ms = 0, compile_s = 0;
  int functions = 0;
  size_t bytes = 0;
};

class TextBench {
 public:
  explicit TextBench(const TextBenchOptions& options) : options_(options) {
    if (!options.compiles) return;
    for (const std::string& kind : options.kinds) {
      if (kind == "cuda") compiler_ = std::make_unique<BenchCompiler>(1);
      if (kind == "cpp") cpp_compiler_ = std::make_unique<CppBenchCompiler>();
    }
  }

  void Run() {
    const ProblemSet problems(ProblemSet::DefaultDirectory());
    fmt::print("{:<12} {:<4} {:<5} {:<4} {:>8} {:>7} {:>7} {:>9}\n", "problem", "kind", "size", "", "text ms",
               "kernels", "KB", options_.compiles ? "compile s" : "");
    for (const std::string& id : ProblemsOfSuite(problems, ProblemSet::DefaultDirectory(), options_.suite)) {
      for (const std::string& kind : options_.kinds) {
        for (const std::string& size : options_.sizes) {
          for (const std::string& precision : options_.precisions)
            One(problems.Find(id), kind, size, precision);
        }
      }
    }
    PrintTotals();
  }

 private:
  void One(const Problem& given, const std::string& kind, const std::string& size,
           const std::string& precision) {
    if (given.sizes.count(size) == 0) return;
    TextRow row;
    row.kind = kind;
    row.what = fmt::format("{:<12} {:<4} {:<5} {:<4}", given.id, kind, size, precision);
    try {
      Workload workload;
      workload.precision = precision;
      Write(workload.Apply(given), kind, size, row);
    } catch (const Error& error) {
      row.failure = error.what();
    }
    fmt::print("{} {:>8.1f} {:>7} {:>7.0f} {:>9}  {}\n", row.what, row.text_ms, row.functions,
               static_cast<double>(row.bytes) / 1000,
               row.compile_s > 0 ? fmt::format("{:.1f}", row.compile_s) : "", row.failure.substr(0, 200));
    rows_.push_back(std::move(row));
  }

  void Write(const Problem& problem, const std::string& kind, const std::string& size, TextRow& row) {
    constexpr int kRepetitions = 3;
    Request request;
    request.task = testing::SearchTask(problem, size, kind);
    std::string reply;
    for (int i = 0; i < kRepetitions; ++i) {
      const double begin = ThreadMilliseconds();
      reply = MakeSearchPolicy()->Complete(request, nullptr, {}).text;
      const double took = ThreadMilliseconds() - begin;
      row.text_ms = i == 0 ? took : std::min(row.text_ms, took);
    }
    const ParsedReply parsed = ParseReply(reply, kind);
    if (!parsed.source) throw Error(ExitCode::kBroken, parsed.failure, "");
    row.functions = CountOf(*parsed.source, kind == "cuda" ? "__global__" : "static void stage_");
    row.bytes = parsed.source->size();
    if (!options_.folder.empty()) Keep(row.what, kind, *parsed.source);
    if (!options_.compiles) return;
    kind == "cuda" ? CompileCuda(AtSize(problem, size), *parsed.source, row)
                   : CompileCpp(AtSize(problem, size), *parsed.source, row);
  }

  void CompileCpp(const SizedProblem& sized, const std::string& text, TextRow& row) const {
    const double begin = EndedSeconds();
    const Compiled compiled = cpp_compiler_->Compile(sized, text);
    row.compile_s = EndedSeconds() - begin;
    if (compiled.library.empty()) row.failure = "does not compile: " + compiled.log;
  }

  void CompileCuda(const SizedProblem& sized, const std::string& text, TextRow& row) {
    const InterpretedLaunch launch = InterpretLaunch(sized, "cuda", text);
    GpuCompileRequest request;
    request.device_text = launch.split.device_text;
    request.kernels.assign(launch.kernels.begin(), launch.kernels.end());
    request.symbols = sized.symbols;
    const double begin = DescendantsSeconds();
    const GpuCompiled compiled = compiler_->Compile(request);
    row.compile_s = DescendantsSeconds() - begin;
    if (compiled.module.cubin.empty()) row.failure = "does not compile: " + compiled.log;
  }

  void Keep(std::string name, const std::string& kind, const std::string& text) const {
    std::replace(name.begin(), name.end(), '/', '-');
    std::string joined;
    std::istringstream words(name);
    for (std::string word; words >> word;) joined += (joined.empty() ? "" : ".") + word;
    fs::create_directories(options_.folder);
    std::ofstream(options_.folder + "/" + joined + (kind == "cuda" ? ".cu" : ".cpp")) << text;
  }

  static int CountOf(const std::string& text, const std::string& head) {
    int count = 0;
    for (size_t at = text.find(head); at != std::string::npos; at = text.find(head, at + 1)) ++count;
    return count;
  }

  void PrintTotals() const {
    std::vector<double> text_ms, functions;
    int above_ms = 0, above_functions = 0, failures = 0;
    for (const TextRow& row : rows_) {
      failures += !row.failure.empty();
      if (row.text_ms == 0) continue;
      text_ms.push_back(row.text_ms), functions.push_back(row.functions);
      above_ms += row.text_ms > kMostText_ms, above_functions += row.functions > kMostKernels;
    }
    if (text_ms.empty())
      throw Error(ExitCode::kBadRequest, "no text was written", "choose another suite or size");
    fmt::print("{} texts, {} failures\n", text_ms.size(), failures);
    fmt::print("text ms: median {:.1f}, most {:.1f}; above {}: {}\n", QuantileOf(text_ms, 0.5),
               QuantileOf(text_ms, 1), kMostText_ms, above_ms);
    fmt::print("kernels: median {:.0f}, most {:.0f}; above {}: {}\n", QuantileOf(functions, 0.5),
               QuantileOf(functions, 1), kMostKernels, above_functions);
    for (const std::string& kind : options_.kinds) PrintCompileTotals(kind);
  }

  void PrintCompileTotals(const std::string& kind) const {
    std::vector<double> seconds;
    int above = 0;
    for (const TextRow& row : rows_) {
      if (row.kind != kind || row.compile_s == 0) continue;
      seconds.push_back(row.compile_s);
      above += row.compile_s > MostCompileSeconds(kind);
    }
    if (seconds.empty()) return;
    fmt::print("compile {}, user s: median {:.2f}, most {:.1f}; above {}: {}\n", kind,
               QuantileOf(seconds, 0.5), QuantileOf(seconds, 1), MostCompileSeconds(kind), above);
  }

  const TextBenchOptions& options_;
  std::unique_ptr<BenchCompiler> compiler_;
  std::unique_ptr<CppBenchCompiler> cpp_compiler_;
  std::vector<TextRow> rows_;
};

}  // namespace

void BenchTexts(const TextBenchOptions& options) { TextBench(options).Run(); }

}  // namespace kevin
