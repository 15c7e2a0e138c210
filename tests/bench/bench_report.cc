// bench_report: time of reports and attributions on a large database. Makes one of made-up turns (kept and used
// again if --db names it), then runs the program beside it and prints the seconds of each command.
// Usage: bench_report [--turns 1000000] [--db FILE].

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <random>

#include "agent/machine.h"
#include "env/error.h"
#include "env/process/machine.h"
#include "env/process/spawn.h"
#include "trajectories/blob.h"
#include "trajectories/store.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;
constexpr int kTurns = 8, kProblems = 250, kSamples = 4;

ProblemRecord MadeUpProblem(int number) {
  static const char* const kFamilies[] = {"elementwise", "reduction", "softmax", "norm", "matmul"};
  ProblemRecord problem;
  const int level = number < 100 ? 1 : number < 200 ? 2 : 3;
  problem.id = fmt::format("level{}/{}", level, number % 100 + 1);
  problem.name = fmt::format("Made up {}", number + 1);
  problem.text = "id = \"" + problem.id + "\"\n";
  problem.content_hash = ContentHash(problem.text);
  problem.families = {kFamilies[number % 5]};
  return problem;
}

// A source of the size that small kernels have, and a few lines that differ from turn to turn.
std::string MadeUpSource(int tile, int unroll) {
  std::string source = fmt::format("constexpr int kTile = {};\nconstexpr int kUnroll = {};\n", tile, unroll);
  for (int line = 0; line < 12; ++line)
    source +=
        fmt::format("// A line of the kernel, number {}, that stays as it is from turn to turn.\n", line);
  return source + "extern \"C\" void launch(const float* x, float* out) { Run<kTile, kUnroll>(x, out); }\n";
}

// Problems differ in how hard they are; later turns are better; some fail in each way.
class MadeUpTurns {
 public:
  explicit MadeUpTurns(uint64_t seed) : random_(seed) {}

  TurnRecord Next(int turn, int problem, double skill) {
    TurnRecord t;
    t.turn = turn;
    t.messages = {{"system", "You write fast kernels."},
                  {"user", fmt::format("Problem {}: make it faster. This is turn {}.", problem, turn)}};
    t.model.name = "made-up";
    t.stop_reason = Share() < 0.03 ? "length" : "stop";
    t.usage.prompt_tokens = 900 + 600 * turn,
    t.usage.completion_tokens = 700 + static_cast<int64_t>(800 * Share());
    t.generate_s = 4 + 6 * Share(), t.overhead_s = 0.003;
    t.summary = "Another tile size.";
    t.feedback = "It is right but can be made faster.";
    FillVerdict(turn, problem, skill, &t.evaluation);
    t.reply = "```cpp\n" + t.evaluation.source + "```\n";
    t.reward = t.evaluation.score;
    const EvaluationRecord& e = t.evaluation;
    t.seconds = t.generate_s + t.overhead_s + e.compile_s + e.verify_s + e.measure_s;
    return t;
  }
  double Share() { return std::uniform_real_distribution<double>(0, 1)(random_); }

 private:
  void FillVerdict(int turn, int problem, double skill, EvaluationRecord* e) {
    e->kind = "cpp", e->workload.size = "small", e->workload.inputs = "default",
    e->workload.precision = "fp32", e->device = "cpu: made up";
    e->source = MadeUpSource(8 << static_cast<int>(4 * Share()), 1 + static_cast<int>(16 * Share()));
    e->candidate_hash = ContentHash(e->kind + e->source);
    e->key = ContentHash(fmt::format("{} {}", problem, e->candidate_hash));
    e->key_parts = {{"candidate", e->candidate_hash}, {"threads", "2"}, {"baseline_version", "eager 2.11"}};
    e->compile_s = 0.1, e->verify_s = 0.3;
    const double luck = Share() + skill + 0.02 * turn - 0.002 * problem;
    if (luck < 0.25) {
      e->outcome = "compile_failed", e->reason = "error: expected ';'";
      return;
    }
    e->compiled = true;
    if (luck < 0.45) {
      e->outcome = "wrong", e->reason = "element 17 is 0.5 and should be 0.25";
      return;
    }
    e->outcome = "measured", e->correct = true, e->verdict = "fast", e->measure_s = 1 + Share();
    const double s = std::exp(0.5 * luck - 0.45 + 0.1 * std::normal_distribution<double>()(random_));
    e->speedup = Ratio{s, s * 0.97, s * 1.03, 0.01, 30, 3};
    e->reference_us = 100, e->candidate_us = 100 / s, e->score = 0.3 + s;
    for (int i = 0; i < kSamples; ++i)
      e->samples.push_back(
          {0, i / 2, "fixed", i % 2 ? "candidate" : "reference", 50, 5000 / (i % 2 ? s : 1)});
  }

  std::mt19937_64 random_;
};

void MakeEpisode(Store& store, const std::string& run, int number, double skill, MadeUpTurns* made_up) {
  const ProblemRecord problem = MadeUpProblem(number % kProblems);
  EpisodeRecord episode;
  episode.run = run, episode.problem = problem.id, episode.problem_hash = problem.content_hash;
  episode.policy = "made-up", episode.device = "cpu: made up", episode.isolation = "full";
  episode.workload.size = "small", episode.workload.inputs = "default", episode.workload.precision = "fp32";
  episode.seed = static_cast<uint64_t>(number), episode.turns_asked = kTurns;
  const std::string id = store.BeginEpisode(episode, problem);
  EpisodeEnd end;
  EvaluationRecord best;
  for (int turn = 1; turn <= kTurns; ++turn) {
    const TurnRecord record = made_up->Next(turn, number % kProblems, skill);
    store.AppendTurn(id, record);
    end.seconds += record.seconds;
    if (!record.evaluation.correct || (end.best_turn && record.evaluation.score <= best.score)) continue;
    end.best_turn = turn, best = record.evaluation;
  }
  if (end.best_turn) {
    const double s = best.speedup->value * (0.98 + 0.02 * made_up->Share());
    best.purpose = "confirm", best.samples.clear(), best.speedup = Ratio{s, s * 0.97, s * 1.03, 0.01, 30, 3};
    store.AppendEvaluation(id, *end.best_turn, best);
    end.best_speedup = s, end.best_speedup_low = s * 0.97, end.best_speedup_high = s * 1.03;
  }
  store.FinishEpisode(id, end);
}

void MakeDatabase(const fs::path& path, int64_t turns) {
  const auto start = std::chrono::steady_clock::now();
  Store store = Store::Open(path, OpenMode::kCreate);
  MadeUpTurns made_up(1);
  const auto episodes = static_cast<int>((turns + kTurns - 1) / kTurns);
  std::string run;
  for (int i = 0; i < episodes; ++i) {
    const bool is_second = i >= episodes / 2;
    if (i == 0 || i == episodes / 2) {
      if (!run.empty()) store.FinishRun(run);
      RunRecord record;
      record.command = is_second ? "made up, the better half" : "made up", record.program_version = "0";
      run = store.BeginRun(record);
    }
    MakeEpisode(store, run, i, is_second ? 0.03 : 0, &made_up);
    if (i % 1000 == 999)
      fmt::print(stderr, "\rmade {} of {} turns, {:.0f} s", (i + 1) * kTurns, turns, SecondsSince(start));
  }
  store.FinishRun(run);
  fmt::print(stderr, "\n");
}

void Time(const std::string& what, const std::string& arguments) {
  const std::string command =
      "'" + (ProgramDirectory() / "kevin").string() + "' " + arguments + " >/dev/null";
  const auto start = std::chrono::steady_clock::now();
  if (std::system(command.c_str()) != 0) throw Error(ExitCode::kBroken, command + " failed");
  fmt::print("{:<42} {:.2f} s\n", what, SecondsSince(start));
  std::fflush(stdout);
}

void Bench(const fs::path& path, int64_t turns, const fs::path& page) {
  if (!fs::exists(path)) MakeDatabase(path, turns);
  const std::string db = " --db '" + path.string() + "'";
  fmt::print("{} turns, {:.2f} GB\n", turns, static_cast<double>(fs::file_size(path)) / 1e9);
  Time("report", "report" + db);
  Time("report --by run (two sides, compared)", "report --by run" + db);
  Time("report --html", "report --html '" + page.string() + "' --force" + db);
  fmt::print("  page of {:.1f} MB\n", static_cast<double>(fs::file_size(page)) / 1e6);
  Time("attribute, first time", "attribute" + db);
  Time("attribute, in place of an earlier result", "attribute" + db);
  Time("attribute --scheme trloo, one of two runs", "attribute --scheme trloo --run latest" + db);
}

}  // namespace
}  // namespace kevin

int main(int argc, char** argv) {
  CLI::App app{"Time of reports and attributions on a large database"};
  int64_t turns = 1'000'000;
  std::string database;
  app.add_option("--turns", turns, "Size of the database that is made")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--db", database,
                 "Keep it in this file, or use this file if it exists (default: a temporary one)");
  CLI11_PARSE(app, argc, argv);
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() / fmt::format("kevin-bench-{}", getpid());
  int code = 0;
  try {
    std::filesystem::create_directories(folder);
    const std::filesystem::path path =
        database.empty() ? folder / "kevin.db" : std::filesystem::path(database);
    kevin::Bench(path, turns, folder / "report.html");
  } catch (const kevin::Error& error) {
    fmt::print(stderr, "bench_report: {}\n", error.what());
    code = static_cast<int>(error.code());
  }
  std::filesystem::remove_all(folder);
  return code;
}
