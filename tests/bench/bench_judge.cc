// bench_judge: what a verdict costs on a CPU. Prints
//   width    for several plans of pairs: seconds of an evaluation, turns an hour, half-width of the 99 % interval;
//   cost     microseconds of each step of a round of pairs and of each defence (env/verdict/README.md);
//   marks    audits of a correct kernel on small tensors that seem to show inputs read ahead.
// The judge runs in this process. Other programs widen intervals: say the load with each figure.

#include <fcntl.h>
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <variant>
#include <vector>

#include "agent/machine.h"
#include "env/cpu/audit.h"
#include "env/cpu/compile.h"
#include "env/cpu/judge.h"
#include "env/cpu/peak.h"
#include "env/cpu/session.h"
#include "env/error.h"
#include "env/problem/problem.h"
#include "env/process/machine.h"
#include "env/process/spawn.h"
#include "env/verdict/estimate.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;

struct Subject {
  const char* problem;
  const char* expression;
};
constexpr Subject kSubjects[] = {{"level1/19", "x[i] > 0 ? x[i] : 0"},
                                 {"level1/30", "x[i] / (1 + std::fabs(x[i]))"},
                                 {"level1/32", "x[i] < -1 ? -1 : x[i] > 1 ? 1 : x[i]"}};

std::string Kernel(const std::string& expression) {
  return fmt::format(R"(#include <cmath>
extern "C" void launch(const float* x, float* out) {{
#pragma omp parallel for simd
  for (long i = 0; i < B * N; ++i) out[i] = {};
}}
)",
                     expression);
}

// One problem with its session and a correct kernel.
struct Prepared {
  std::unique_ptr<Session> session;
  Compiled compiled;
  Fd library;
  double compile_s = 0;
};

Prepared Prepare(const Problem& problem, const std::string& expression, const std::string& size = "small") {
  const EnvironmentOptions environment = EnvironmentOptionsFor(0, "full");
  SessionOptions options;
  options.problem = problem;
  options.size = size;
  options.threads = UsableCpus();
  options.namespaces = NamespacesAvailable();
  options.evaluator_path = RequireProgram(environment.program_directory, "kevin-evaluator");
  options.runner_path = RequireProgram(environment.program_directory, "kevin-runner");
  Prepared prepared;
  CompileOptions compile;
  compile.runner = options.runner_path;
  compile.cache_directory = environment.cache_directory;
  compile.namespaces = options.namespaces;
  const auto start = Clock::now();
  prepared.compiled =
      CompileCpp(FindCompiler(), AtSize(options.problem, options.size), Kernel(expression), compile);
  prepared.compile_s = SecondsSince(start);
  if (prepared.compiled.library.empty()) throw Error(ExitCode::kBroken, prepared.compiled.log);
  prepared.session = std::make_unique<Session>(std::move(options));
  prepared.library = Fd(open(prepared.compiled.library.c_str(), O_RDONLY | O_CLOEXEC));
  return prepared;
}

// --- Width ---

struct NamedPlan {
  const char* name;
  PairsPlan plan;
};
const NamedPlan kPlans[] = {{"3 processes, 4 to 6 pairs each", {}},
                            {"3 processes, 6 to 10 pairs each", {1.1, 3, 1.0, 6, 10}},
                            {"3 processes, 3 pairs each", {1.1, 3, 0.4, 3, 3}},
                            {"5 processes, 3 pairs each", {1.1, 5, 0.6, 3, 3}},
                            {"6 processes, 6 to 10 pairs each", {1.1, 6, 2.0, 6, 10}},
                            {"sequential test 0.6 s, 3 processes, 4 to 6 pairs", {0.6, 3, 0.6, 4, 6}}};

void Width(const std::vector<Prepared>& prepared, int repeats) {
  std::map<std::string, std::vector<double>> seconds, widths;
  int other_outcomes = 0;
  for (int i = 0; i < repeats; ++i) {
    for (const Prepared& one : prepared) {  // all plans side by side: the load of the machine changes
      for (const NamedPlan& named : kPlans) {
        JudgeRequest request;
        request.library_fd = one.library.get();
        request.plan = named.plan;
        const auto start = Clock::now();
        const JudgeResult result = JudgeLibrary(*one.session, request);
        const double waited_s = result.wait_s;
        const auto* measured = std::get_if<Measured>(&result.outcome);
        if (measured == nullptr) {
          fmt::print("  {}: {}: {}\n", one.session->options().problem.id, OutcomeName(result.outcome),
                     OutcomeReason(result.outcome));
          ++other_outcomes;
          continue;
        }
        seconds[named.name].push_back(SecondsSince(start) - waited_s);
        widths[named.name].push_back(std::log(measured->speedup.high / measured->speedup.low) / 2);
      }
    }
  }
  for (const NamedPlan& named : kPlans) {
    if (seconds[named.name].empty()) continue;
    const double median_s = Median(seconds[named.name]);
    fmt::print("width: {:<50} {:.2f} s, {:.0f} turns an hour, half-width {:.1f} %, {} evaluations\n",
               named.name, median_s, 3600 / median_s, 100 * Median(widths[named.name]),
               seconds[named.name].size());
  }
  fmt::print("width: {} evaluations were not measured\n", other_outcomes);
}

// --- Cost ---

void Cost(Session& session, const Fd& library, int repeats) {
  const DeviceLock lock("cpu", LockMode::kExclusive, nullptr);
  OutputMemory& outputs = session.CandidateOutputs();
  session.PoisonOutputs(outputs, session.DrawSlots(session.slots()));
  const std::unique_ptr<BatchProcess> process = session.StartCandidate(library.get(), outputs);
  if (const auto end = process->WaitReady(20)) throw Error(ExitCode::kBroken, end->message);
  const int calls = CallsOfBatch(session.reference_us(), session.reference_us(), session.slots()).first;
  std::vector<uint16_t> slots = session.DrawSlots(calls);
  const auto print = [&](const char* name, const std::function<void()>& step) {
    std::vector<double> times_us;
    for (int i = 0; i < repeats; ++i) {
      const auto start = Clock::now();
      step();
      times_us.push_back(SecondsSince(start) * 1e6);
    }
    const double median_us = Median(times_us);
    fmt::print("cost: {:<52} {:9.1f} us a batch, {:8.2f} us a call\n", name, median_us, median_us / calls);
  };
  fmt::print("cost: {}: batches of {} calls, {} slots\n", session.options().problem.id, calls,
             session.slots());
  double total_us = 0;
  print("draw inputs", [&] { session.FillInputs(slots); });
  print("poison outputs", [&] { session.PoisonOutputs(outputs, slots); });
  print("flush caches", [&] { FlushCaches(session.options().threads); });
  print("batch of eager", [&] { session.reference_process().RunBatch(slots, 60, &total_us); });
  print("batch of the candidate", [&] { process->RunBatch(slots, 60, &total_us); });
  print("continue, an empty batch, stop", [&] { session.reference_process().Publish(60); });
  print("read the CPU clock of a stopped process", [&] { process->CpuSeconds(); });
  print("unwritten outputs, when a batch is done", [&] {
    FinalOutputs final_outputs(session, outputs, slots);
    for (size_t call = 0; call < slots.size(); ++call) final_outputs.Remember(call);
  });
  print("guard bands", [&] { session.BrokenGuard(outputs, slots); });
  session.PoisonOutputs(outputs, slots);
  process->RunBatch(slots, 60, &total_us);
  session.reference_process().RunBatch(slots, 60, &total_us);
  session.reference_process().Publish(60);
  Checker checker(session);
  print("compare outputs with eager's", [&] {
    for (size_t call = 0; call < slots.size(); ++call) {
      checker.AgainstReference(slots[call], session.OutputsOf(outputs, slots[call]),
                               session.ReferenceOutputsOf(call));
    }
  });
  const auto batch_after = [&](const std::function<void()>& step) {
    std::vector<double> times_us;
    for (int i = 0; i < repeats; ++i) {
      process->RunBatch(slots, 60, &total_us);
      step();
      FlushCaches(session.options().threads);
      process->RunBatch(slots, 60, &total_us);
      times_us.push_back(total_us);
    }
    return Median(times_us);
  };
  fmt::print("cost: a batch over pages with and without marks of accesses: {:.1f} us, {:.1f} us\n",
             batch_after([] {}), batch_after([&] { process->ForgetTouched(); }));
  print("audit: remove the marks of accesses", [&] { process->ForgetTouched(); });
  print("audit: make processors forget translations", [&] { FlushTranslations(session.options().threads); });
  print("audit: read the marks of accesses", [&] { process->TouchedInputs(); });
  print("audit: change one element in 256", [&] {
    for (const uint16_t slot : slots) session.RearrangeInputs(slot);
  });
  print("audit: how long eager waited for a processor", [&] { session.reference_process().WaitedSeconds(); });
  print("a fresh process", [&] {
    const auto fresh = session.StartCandidate(library.get(), outputs);
    if (const auto end = fresh->WaitReady(20)) throw Error(ExitCode::kBroken, end->message);
  });
}

// --- Marks ---

// Tensors of one page to 64 KiB, as another size of the problem: the kernel's memory management marks pages now and then.
Prepared PrepareSmall(const ProblemSet& problems, int rows) {
  const Problem listed = problems.Find(kSubjects[0].problem);
  const std::string text = listed.text + fmt::format("\n[sizes.rows]\nB = {}\nN = 256\n", rows);
  return Prepare(ParseProblem(text, listed.path), kSubjects[0].expression, "rows");
}

void Marks(const Prepared& one, int repeats) {
  Session& session = *one.session;
  TimedProcess process(session, "candidate", one.library.get(), session.CandidateOutputs());
  OutputMemory& outputs = session.CandidateOutputs();
  int happened = 0, marked = 0;
  std::vector<double> times_us;
  for (int i = 0; i < repeats; ++i) {
    const std::vector<uint16_t> slots = session.DrawSlots(session.slots());
    const auto start = Clock::now();
    session.FillInputs(slots);
    session.PoisonOutputs(outputs, slots);
    session.RestoreReference(slots);
    double reference_us = 0;
    session.reference_process().RunBatch(slots, 60, &reference_us);
    const double usual_us = session.reference_us() * static_cast<double>(slots.size());
    const AuditPlan plan =
        DrawAuditPlan(usual_us, slots.size(), session.layout().inputs_bytes, true, session.random());
    Audit audit(session, process.process(), outputs, slots, plan, {true});
    process.Run(slots, "measure", audit.Pauses());
    audit.AfterBatch();
    happened += audit.Happened(), marked += audit.ReadAhead();
    times_us.push_back(SecondsSince(start) * 1e6);
  }
  fmt::print("marks: {} KiB a tensor: {} of {} audits marked, {:.0f} us an audit\n",
             session.sized().inputs[0].bytes / 1024, marked, happened, Median(times_us));
}

}  // namespace
}  // namespace kevin

int main(int argc, char** argv) {
  CLI::App app{"What a verdict costs on this CPU"};
  int repeats = 10;
  std::string part;
  app.add_option("--repeats", repeats, "Evaluations of each kind, or measurements of each step")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--part", part, "width, cost or marks; the first two by default")
      ->check(CLI::IsMember({"width", "cost", "marks"}));
  CLI11_PARSE(app, argc, argv);
  try {
    kevin::InstallCachingAllocator(nullptr, 0);  // as the evaluator does
    const kevin::ProblemSet problems(kevin::ProblemSet::DefaultDirectory());
    if (part == "marks") {
      for (const int rows : {4, 16, 64}) kevin::Marks(kevin::PrepareSmall(problems, rows), repeats);
      return 0;
    }
    std::vector<kevin::Prepared> prepared;
    for (const kevin::Subject& subject : kevin::kSubjects)
      prepared.push_back(kevin::Prepare(problems.Find(subject.problem), subject.expression));
    if (part != "width") {
      for (const kevin::Prepared& one : prepared) kevin::Cost(*one.session, one.library, repeats);
    }
    if (part != "cost") kevin::Width(prepared, repeats);
  } catch (const kevin::Error& error) {
    fmt::print(stderr, "bench_judge: {}\n  next: {}\n", error.what(), error.next_step());
    return static_cast<int>(error.code());
  }
  return 0;
}
