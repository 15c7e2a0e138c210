// bench_search: the search policy's kernels over whole suites. For each problem: the time to write the text, whether it
// is correct in one verified call (or its speed-up by the full rules with --measure), and what failed, with the reason.
//
//   bench_search --device cpu --suite level1,level2,level3,chains --size small
//   bench_search --device cuda:0 --suite level1 --size full --measure --parallel 8
//   bench_search --write cpp,cuda --compile --suite level3 --sizes full --precisions fp32,fp16   # needs no GPU
//
// --write judges nothing: it prints what writing the texts takes, in processor time, how many kernels they have, and
// with --compile the user time of the compiler.
//
// The texts have the first setting of every knob. Turns that look for better ones: kevin collect.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <cmath>
#include <fstream>
#include <map>
#include <mutex>

#include "agent/machine.h"
#include "agent/parse.h"
#include "agent/task.h"
#include "env/error.h"
#include "env/problem/precision.h"
#include "env/process/lasting_threads.h"
#include "env/process/machine.h"
#include "policies/search/search_policy.h"
#include "tests/bench/bench_figures.h"
#include "tests/bench/bench_search_texts.h"
#include "tools/device_options.h"

namespace kevin {
namespace {

constexpr int kMostFunctions = 40;  // that a text should have

struct Options {
  DeviceOptions device;
  std::string suite = "level1", size, texts;
  int parallel = 2;
  double minutes = 1e9;
  bool measure = false;
};

struct Row {
  std::string id, outcome, reason;
  int functions = 0;
  double text_ms = 0, compile_s = 0, candidate_us = 0, reference_us = 0;
  std::optional<Ratio> speedup;
};

class Bench {
 public:
  explicit Bench(const Options& options)
      : options_(options),
        environment_(MakeEnvironment(EnvironmentOptionsFor(options.device, options.device.device))) {}

  int Run() {
    const ProblemSet problems(ProblemSet::DefaultDirectory());
    const Precision precision = PrecisionNamed();
    std::vector<LeftOut> left_out;
    ids_ = ProblemsOfSuite(problems, ProblemSet::DefaultDirectory(), options_.suite, &left_out, precision);
    fmt::print("{}; {} problems, {} left out by their flags\n", environment_->Facts().device, ids_.size(),
               left_out.size());
    RunSideBySide(options_.parallel, [this, &problems] { Work(problems); });
    PrintTotals();
    return 0;
  }

 private:
  Precision PrecisionNamed() const {
    return options_.device.precision == "fp16"   ? Precision::kFp16
           : options_.device.precision == "bf16" ? Precision::kBf16
                                                 : Precision::kFp32;
  }

  void Work(const ProblemSet& problems) {
    while (SecondsSince(start_) < options_.minutes * 60) {
      const size_t at = next_++;
      if (at >= ids_.size()) return;
      Row row = RowOf(problems.Find(ids_[at]));
      const std::lock_guard lock(mutex_);
      Print(row);
      rows_.push_back(std::move(row));
    }
  }

  Row RowOf(const Problem& given) {
    Row row;
    row.id = given.id;
    try {
      Judge(given, row);
    } catch (const Error& error) {
      row.outcome = "error";
      row.reason = error.what();
    }
    return row;
  }

  void Judge(const Problem& given, Row& row) {
    EvaluateOptions evaluate;
    evaluate.workload.size = options_.size.empty() ? environment_->Facts().default_size : options_.size;
    evaluate.workload.precision = options_.device.precision;
    evaluate.screen = !options_.measure;
    const Problem problem = evaluate.workload.Apply(given);
    const SizedProblem sized = AtSize(problem, evaluate.workload.size);
    ConversationContext context;
    context.problem = &sized;
    context.kind = environment_->Facts().kinds.front();
    context.threads = ReadMachine().cores;
    context.gpu = environment_->Facts().gpu;
    context.shape_graphs = {{sized.symbols, environment_->Graph(problem, evaluate.workload.size), ""}};
    Request request;
    request.task = BuildTask(context, {});
    const auto begin = std::chrono::steady_clock::now();
    const std::string text = MakeSearchPolicy()->Complete(request, nullptr, {}).text;
    row.text_ms = 1e3 * SecondsSince(begin);
    const ParsedReply reply = ParseReply(text, context.kind);
    if (!reply.source) throw Error(ExitCode::kBroken, reply.failure, "");
    row.functions = CountOf(*reply.source, context.kind == "cuda" ? "__global__" : "static void stage_");
    if (!options_.texts.empty()) Keep(given.id, context.kind, *reply.source);
    const Evaluation evaluation = environment_->Evaluate(problem, {context.kind, *reply.source}, evaluate);
    const OutcomeFields fields = FieldsOf(evaluation.outcome);
    row.outcome = fields.outcome;
    row.reason = fields.reason;
    row.compile_s = evaluation.compile_s;
    row.candidate_us = fields.candidate_us.value_or(0);
    row.reference_us = fields.reference_us.value_or(0);
    if (options_.measure) row.speedup = fields.speedup;
  }

  void Keep(std::string id, const std::string& kind, const std::string& text) const {
    std::replace(id.begin(), id.end(), '/', '-');
    std::ofstream(options_.texts + "/" + id + "." + FileEnding(kind)) << text;
  }

  // Kernels of a text in CUDA, functions of stages in C++.
  static int CountOf(const std::string& text, const std::string& head) {
    int count = 0;
    for (size_t at = text.find(head); at != std::string::npos; at = text.find(head, at + 1)) ++count;
    return count;
  }

  static void Print(const Row& row) {
    std::string speedup;
    if (row.speedup)
      speedup = fmt::format("{:.3f}x [{:.3f}, {:.3f}], eager {:.1f} us, ", row.speedup->value,
                            row.speedup->low, row.speedup->high, row.reference_us);
    fmt::print("{:<12} {:<14} {}{:.1f} us, text {:.1f} ms, compile {:.1f} s  {}\n", row.id, row.outcome,
               speedup, row.candidate_us, row.text_ms, row.compile_s, row.reason.substr(0, 200));
    std::fflush(stdout);
  }

  void PrintTotals() const {
    std::map<std::string, int> outcomes;
    std::vector<double> functions;
    std::string long_texts;
    std::vector<double> text_ms, compile_s, ratios;
    int above = 0;
    double log_sum = 0;
    for (const Row& row : rows_) {
      ++outcomes[row.outcome];
      if (row.text_ms > 0) text_ms.push_back(row.text_ms);
      if (row.compile_s > 0) compile_s.push_back(row.compile_s);
      if (row.functions > 0) functions.push_back(row.functions);
      if (row.functions > kMostFunctions) long_texts += fmt::format(" {} ({})", row.id, row.functions);
      if (!row.speedup) continue;
      ratios.push_back(row.speedup->value);
      log_sum += std::log(row.speedup->value);
      above += row.speedup->low > 1;
    }
    fmt::print("{} problems:", rows_.size());
    for (const auto& [outcome, count] : outcomes) fmt::print(" {} {}", outcome, count);
    fmt::print("\n");
    if (text_ms.empty()) return;
    fmt::print("text: median {:.1f} ms, longest {:.1f} ms\n", QuantileOf(text_ms, 0.5),
               QuantileOf(text_ms, 1));
    if (!functions.empty())
      fmt::print("functions: median {:.0f}, most {:.0f}; above {}:{}\n", QuantileOf(functions, 0.5),
                 QuantileOf(functions, 1), kMostFunctions, long_texts.empty() ? " none" : long_texts);
    if (!compile_s.empty())
      fmt::print("compile: median {:.2f} s, longest {:.2f} s\n", QuantileOf(compile_s, 0.5),
                 QuantileOf(compile_s, 1));
    if (ratios.empty()) return;
    fmt::print(
        "speed-up: geometric mean {:.3f}x, median {:.3f}x, least {:.3f}x; lower bound above 1.0x on {} of {}\n",
        std::exp(log_sum / static_cast<double>(ratios.size())), QuantileOf(ratios, 0.5),
        QuantileOf(ratios, 0), above, ratios.size());
  }

  Options options_;
  std::unique_ptr<Environment> environment_;
  std::vector<std::string> ids_;
  std::atomic<size_t> next_{0};
  std::mutex mutex_;
  std::vector<Row> rows_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"The search policy's kernels over whole suites"};
  AddDeviceOptions(&app, &options.device);
  app.add_option("--suite", options.suite, "Problems, as for kevin collect")->capture_default_str();
  app.add_option("--size", options.size, "Size set of one shape (the device's default)");
  app.add_option("--parallel", options.parallel, "Problems at once")->capture_default_str();
  app.add_option("--minutes", options.minutes, "No problem begins after this time");
  app.add_option("--texts", options.texts, "Keep the texts in this folder");
  app.add_flag("--measure", options.measure, "Judge by the full rules");
  TextBenchOptions texts;
  app.add_option("--write", texts.kinds, "Only write texts of these kinds: cpp, cuda")->delimiter(',');
  app.add_option("--sizes", texts.sizes, "With --write: size sets")->delimiter(',');
  app.add_option("--precisions", texts.precisions, "With --write: fp32, fp16, bf16")->delimiter(',');
  app.add_flag("--compile", texts.compiles, "With --write: compile the texts, of kind cuda for sm_90a");
  CLI11_PARSE(app, argc, argv);
  if (!texts.kinds.empty()) {
    texts.suite = options.suite, texts.folder = options.texts;
    if (texts.sizes.empty()) texts.sizes = {"full"};
    BenchTexts(texts);
    return 0;
  }
  return Bench(options).Run();
}

}  // namespace
}  // namespace kevin

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  try {
    return kevin::Main(argc, argv);
  } catch (const kevin::Error& error) {
    fmt::print(stderr, "bench_search: {}\n  {}\n", error.what(), error.next_step());
    return static_cast<int>(error.code());
  }
}
