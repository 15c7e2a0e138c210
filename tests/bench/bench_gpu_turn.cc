#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <iterator>
#include <thread>

#include "env/error.h"
#include "env/process/machine.h"
#include "tests/bench/bench_gpu_parts.h"
#include "tests/bench/bench_kernels.h"

namespace kevin {
namespace {

constexpr const char* kProblems[] = {"level1/19", "level1/23", "level1/40", "level1/1", "level1/47"};
constexpr int kFailures = 5;                // of each kind of failing candidate
constexpr double kKernelBenchTurnS = 77.5;  // its own harness, one correct level1/19 at full on an H200

using Clock = std::chrono::steady_clock;

// A part of an identifier that no earlier run of this program has used, so that no cache has the text.
std::string Mark() {
  static const std::string kRun =
      fmt::format("_{:x}_{}_", std::chrono::system_clock::now().time_since_epoch().count(), getpid());
  static int count = 0;
  return kRun + std::to_string(count++);
}

struct Turn {
  double wall_s = 0;
  Evaluation evaluation;
};

Turn TimedTurn(Environment* environment, const Problem& problem, const std::string& source) {
  const std::string text = Variant(source, Mark());
  EvaluateOptions options;
  options.workload.size = "full";
  const auto start = Clock::now();
  Turn turn;
  turn.evaluation = environment->Evaluate(problem, {"cuda", text}, options);
  turn.wall_s = SecondsSince(start);
  return turn;
}

// Whether the turn had this outcome; prints a note if not.
bool IsExpected(const Problem& problem, const Turn& turn, const std::string& outcome,
                const BenchFigures& figures) {
  if (OutcomeName(turn.evaluation.outcome) == outcome) return true;
  figures.Note(fmt::format("{}: expected {}, got {}: {}", problem.id, outcome,
                           OutcomeName(turn.evaluation.outcome), OutcomeReason(turn.evaluation.outcome)));
  return false;
}

struct Turns {
  std::vector<double> wall_s, compile_s, verify_s, measure_s, wait_s, held_s, speedup;
  int unexpected = 0;  // outcomes; they count in none of the above
};

Turns Repeat(Environment* environment, const Problem& problem, const std::string& source,
             const std::string& outcome, int repeats, const BenchFigures& figures) {
  Turns turns;
  for (int i = 0; i < repeats; ++i) {
    const Turn turn = TimedTurn(environment, problem, source);
    if (!IsExpected(problem, turn, outcome, figures)) {
      ++turns.unexpected;
      continue;
    }
    const Evaluation& evaluation = turn.evaluation;
    turns.wall_s.push_back(turn.wall_s);
    turns.compile_s.push_back(evaluation.compile_s);
    turns.verify_s.push_back(evaluation.verify_s);
    turns.measure_s.push_back(evaluation.measure_s);
    turns.wait_s.push_back(evaluation.wait_s);
    turns.held_s.push_back(evaluation.device_s);
    if (const Measured* measured = std::get_if<Measured>(&evaluation.outcome))
      turns.speedup.push_back(measured->speedup.value);
  }
  return turns;
}

std::optional<Goal> GoalIf(bool has_one, double value) {
  return has_one ? std::optional<Goal>({true, value}) : std::nullopt;
}

void BenchProblem(Environment* environment, const Problem& problem, int repeats, BenchFigures* figures) {
  const std::string source = SearchKernel(problem);
  const double first_s = TimedTurn(environment, problem, source).wall_s;  // starts the problem's session
  const auto repeat = [&](const std::string& text, const char* outcome, int times) {
    return Repeat(environment, problem, text, outcome, times, *figures);
  };
  const Turns turns = repeat(source, "measured", repeats);
  const Turns wrong = repeat(ZeroKernel(problem), "wrong", kFailures);
  const Turns broken = repeat(BrokenKernel(source), "compile_failed", kFailures);
  const bool is_relu = problem.id == "level1/19";
  const double turn_s = QuantileOf(turns.wall_s, 0.5), held_s = QuantileOf(turns.held_s, 0.5);
  FigureRow row{"turn", problem.id, {}};
  row.figures = {{"turns", static_cast<double>(turns.wall_s.size()), 0, {}},
                 {"unexpected", static_cast<double>(turns.unexpected + wrong.unexpected + broken.unexpected),
                  0, Goal{true, 0}},
                 {"first_s", first_s, 2, {}},
                 {"turn_s", turn_s, 3, GoalIf(is_relu, 0.5)},
                 {"worst_s", QuantileOf(turns.wall_s, 1), 3, {}},
                 {"compile_s", QuantileOf(turns.compile_s, 0.5), 3, {}},
                 {"verify_s", QuantileOf(turns.verify_s, 0.5), 3, {}},
                 {"measure_s", QuantileOf(turns.measure_s, 0.5), 3, {}},
                 {"wait_s", QuantileOf(turns.wait_s, 0.5), 3, {}},
                 {"held_s", held_s, 3, GoalIf(is_relu, 0.3)},
                 {"wrong_s", QuantileOf(wrong.wall_s, 0.5), 3, Goal{true, 0.2}},
                 {"not_compiling_s", QuantileOf(broken.wall_s, 0.5), 3, Goal{true, 0.2}},
                 {"speedup", QuantileOf(turns.speedup, 0.5), 3, {}}};
  figures->Add(row);
  if (!is_relu || turns.wall_s.empty()) return;
  figures->Add({"harness",
                problem.id,
                {{"kernelbench_s", kKernelBenchTurnS, 1, {}},
                 {"times_turn", kKernelBenchTurnS / turn_s, 0, Goal{false, kKernelBenchTurnS / 0.5}},
                 {"times_held", kKernelBenchTurnS / held_s, 0, Goal{false, kKernelBenchTurnS / 0.3}}}});
}

// Compiles one text after another until it is stopped.
class BusyFarm {
 public:
  BusyFarm() {
    compiler_.Milliseconds(CompileSources()[0], -1);
    thread_ = std::thread([this] { Work(); });
  }
  ~BusyFarm() { Stop(); }
  // How many texts it compiled.
  int Stop() {
    stop_ = true;
    if (thread_.joinable()) thread_.join();
    return count_;
  }
  const std::string& error() const { return error_; }  // after Stop()

 private:
  void Work() {
    try {
      for (; !stop_; ++count_) compiler_.Milliseconds(CompileSources()[count_ % 3], count_);
    } catch (const Error& error) {
      error_ = error.what();
    }
  }

  BenchCompiler compiler_;
  std::atomic<bool> stop_ = false;
  int count_ = 0;
  std::string error_;
  std::thread thread_;
};

}  // namespace

void BenchTurns(Environment* environment, int repeats, BenchFigures* figures) {
  const ProblemSet problems(ProblemSet::DefaultDirectory());
  for (const char* id : kProblems) {
    figures->Note(fmt::format("turn: {}, {} texts", id, repeats));
    BenchProblem(environment, problems.Find(id), repeats, figures);
  }
}

void BenchCompile(int repeats, BenchFigures* figures) {
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

void BenchThroughput(Environment* environment, double seconds, BenchFigures* figures) {
  const Problem problem = ProblemSet(ProblemSet::DefaultDirectory()).Find("level1/19");
  const std::string source = SearchKernel(problem);
  TimedTurn(environment, problem, source);
  figures->Note(fmt::format("throughput: level1/19 for {:.0f} s", seconds));
  BusyFarm farm;
  double held_s = 0;
  int candidates = 0, unexpected = 0;
  const auto start = Clock::now();
  while (SecondsSince(start) < seconds) {
    const Turn turn = TimedTurn(environment, problem, source);
    const bool is_measured = IsExpected(problem, turn, "measured", *figures);
    held_s += turn.evaluation.device_s;
    ++(is_measured ? candidates : unexpected);
  }
  const double wall_s = SecondsSince(start);
  const int compiled = farm.Stop();
  if (!farm.error().empty()) throw Error(ExitCode::kBroken, "the busy farm: " + farm.error());
  figures->Add({"throughput",
                problem.id,
                {{"candidates", static_cast<double>(candidates), 0, {}},
                 {"unexpected", static_cast<double>(unexpected), 0, Goal{true, 0}},
                 {"held_s", held_s / std::max(1, candidates), 3, {}},
                 {"per_hour_gpu_held", 3600 * candidates / std::max(held_s, 1e-9), 0, Goal{false, 8000}},
                 {"per_hour_wall", 3600 * candidates / wall_s, 0, {}},
                 {"compiled_beside_per_s", compiled / wall_s, 1, {}}}});
}

}  // namespace kevin
