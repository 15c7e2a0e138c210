// A collection whose workers are killed at random, again and again, ends with the same table as one that
// nobody disturbed: nothing lost, nothing doubled. Policy and environment are stand-ins, so that all but
// times and attempts is determined.
//
//   chaos_test [--kills N] [--workers N] [--seed N]; chaos_postgres is the same on a server of its own
//
// Also: faults of the environment, a database that is locked, a disk that is full, an item that kills the process that
// works on it. Prints what it did; exit code 1 with the first difference when a table differs.

#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <random>
#include <sstream>

#include "agent/records.h"
#include "agent/rollout/rollout.h"
#include "env/error.h"
#include "tests/support/fakes.h"
#include "tests/trajectories/test_database.h"
#include "trajectories/database.h"
#include "trajectories/engine.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int kTurns = 5, kEpisodes = 12, kProblems = 10;

// --- The worker: one process of a collection ---

// Right when it is judged, wrong when it is measured again: "// flaky 1.6". "// poison" ends the process.
// Everything takes a little while, and now and then the machinery fails.
class ChaosEnvironment : public testing::FakeEnvironment {
 public:
  explicit ChaosEnvironment(double fault_rate) : fault_rate_(fault_rate) {}

  Evaluation EvaluateShape(const Problem& problem, const Candidate& candidate,
                           const EvaluateOptions& options) override {
    std::this_thread::sleep_for(std::chrono::milliseconds(3));
    thread_local std::minstd_rand random{std::random_device()()};
    if (std::uniform_real_distribution<>()(random) < fault_rate_)
      throw Error(ExitCode::kBroken, "evaluator: ended by signal 9");
    if (candidate.source.find("level1/13 ") != std::string::npos && getenv("KEVIN_CHAOS_POISON") != nullptr)
      raise(SIGKILL);
    Candidate judged = candidate;
    const bool flaky = candidate.source.starts_with("// measured 1.75");
    if (flaky && options.confirm) judged.source.replace(0, 16, "// wrong");
    Evaluation evaluation = FakeEnvironment::EvaluateShape(problem, judged, options);
    evaluation.candidate_hash = Sha256Hex(candidate.kind + "\n" + candidate.source);
    evaluation.key = EvaluationKey(problem, candidate, options);
    return evaluation;
  }

 private:
  const double fault_rate_;
};

std::vector<Problem> Problems() {
  std::vector<Problem> problems;
  for (int i = 0; i < kProblems; ++i) {
    Problem problem = testing::ReluProblem();
    problem.id = fmt::format("level1/{}", 10 + i);
    problem.text = fmt::format("id = \"{}\"\n", problem.id);
    problem.content_hash = Sha256Hex(problem.text);
    problems.push_back(std::move(problem));
  }
  return problems;
}

// Makes the collection that all workers of a database join; returns its run.
std::string MakeCollection(const std::string& address) {
  std::vector<ProblemRecord> records;
  CollectionSpec spec;
  for (const Problem& problem : Problems()) {
    spec.tasks.push_back({problem.id, problem.content_hash});
    records.push_back(ToRecord(problem));
  }
  spec.policies = {"steady"};
  spec.episodes = kEpisodes;
  spec.turns = kTurns;
  spec.kind = "cpp";
  spec.workload.size = "small";
  Store store = Store::Open(address, OpenMode::kCreate);
  return WorkQueue(store).Open(KeyOf(spec), ToJson(spec), EpisodesOf(spec), records, {}, true).collection;
}

int RunWorker(const std::string& address, const std::string& out, double fault_rate, int most_kills) {
  const std::vector<Problem> problems = Problems();
  Store store = Store::Open(address, OpenMode::kWrite);
  const std::string collection = WorkQueue(store).Find("01").run;  // the only one
  const std::string worker_run = WorkQueue(store).Join(collection, {});
  ChaosEnvironment environment(fault_rate);
  testing::SteadyPolicy policy(2);
  RolloutSources sources;
  sources.problem = [&](const EpisodeSpec& episode) -> const Problem& {
    for (const Problem& problem : problems) {
      if (problem.content_hash == episode.problem_hash) return problem;
    }
    throw Error(ExitCode::kBadRequest, "no such problem");
  };
  sources.policy = [&](const std::string&) -> Policy& { return policy; };
  RolloutOptions options;
  options.collection = collection;
  options.worker_run = worker_run;
  options.episode.output = out;
  options.episode.machine = "Fake CPU";
  options.parallel = 3;
  options.lease_s = 20;  // of the dead their successor takes it over at once
  options.rest_s = 0.01;
  options.most_faults = 1000;
  options.most_kills = most_kills;
  RunRollout(store, environment, sources, options, {}, nullptr, nullptr);
  store.FinishRun(worker_run);
  return 0;
}

// --- The table, without times, attempts and ids ---

std::string Dump(Database& database, const char* sql) {
  std::string text;
  Statement statement = database.Prepare(sql);
  while (statement.Step()) text += statement.Text(0) + "\n";
  return text;
}

// Ids are told by what they name; numbers are added up so that their text is the same on every engine.
std::string TableOf(const TestDatabase& test) {
  Database database = test.Look();
  std::string text =
      Dump(database,
           "SELECT w.spec || ' ' || w.state || ' ' || e.state || ' turns ' || e.turns_asked || ' best ' "
           "|| coalesce(CAST(e.best_turn AS TEXT), '-') || ' ' || "
           "coalesce(CAST(CAST(e.best_speedup * 1000 AS INTEGER) AS TEXT), '-') "
           "FROM work_items w LEFT JOIN episodes e ON e.id = w.episode ORDER BY w.id");
  text += Dump(database,
               "SELECT w.spec || t.turn || ' ' || t.messages || t.reply || t.summary || t.feedback || "
               "CAST(t.reward * 1000 AS INTEGER) || ' ' || t.prompt_tokens "
               "FROM turns t JOIN work_items w ON w.episode = t.episode ORDER BY w.id, t.turn");
  text += Dump(
      database,
      "SELECT w.spec || v.turn || ' ' || v.purpose || ' ' || v.outcome || v.reason || "
      "coalesce(v.candidate, '-') || v.key || v.correct || ' ' || "
      "coalesce(CAST(CAST(v.speedup * 1000 AS INTEGER) AS TEXT), '-') || ' from ' || "
      "coalesce(CAST(o.turn AS TEXT), '-') || ' now ' || coalesce(s.purpose || s.turn || s.outcome, '-') "
      "FROM evaluations v JOIN work_items w ON w.episode = v.episode "
      "LEFT JOIN evaluations o ON o.id = v.cached_from LEFT JOIN evaluations s ON s.id = v.superseded_by "
      "ORDER BY w.id, v.turn, v.created_at, v.id");
  text += Dump(database, "SELECT 'samples ' || count(*) FROM samples");
  text += Dump(database, "SELECT 'baselines ' || count(*) FROM baselines");
  text += Dump(database,
               "SELECT 'episodes of nobody ' || count(*) FROM episodes WHERE id NOT IN "
               "(SELECT episode FROM work_items WHERE episode IS NOT NULL)");
  return text +
         Dump(database,
              "SELECT 'collections ' || count(*) || ' finished ' || count(finished_at) FROM collections");
}

bool Same(const std::string& expected, const std::string& found, const std::string& what) {
  if (expected == found) return true;
  std::istringstream a(expected), b(found);
  std::string left, right;
  int line = 0;
  do {
    left = right = "(nothing)";
    std::getline(a, left);
    std::getline(b, right);
    ++line;
  } while (left == right);
  fmt::print("{}: line {} differs\n  expected {}\n  found    {}\n", what, line, left, right);
  return false;
}

// --- The tormentor ---

struct Settings {
  int kills = 25, workers = 3;
  unsigned seed = 1;
};

pid_t StartWorker(const std::string& address, const fs::path& out, double fault_rate, int most_kills,
                  rlim_t largest_file = RLIM_INFINITY) {
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (largest_file != RLIM_INFINITY) {
    signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{largest_file, largest_file};
    setrlimit(RLIMIT_FSIZE, &limit);
  }
  const std::string rate = std::to_string(fault_rate), kills = std::to_string(most_kills);
  execl("/proc/self/exe", "chaos_test", "worker", address.c_str(), out.c_str(), rate.c_str(), kills.c_str(),
        nullptr);
  _exit(127);
}

int ExitOf(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

class Chaos {
 public:
  explicit Chaos(const Settings& settings) : settings_(settings), random_(settings.seed) {}

  int Run() {
    expected_ = Undisturbed();
    const bool good = Kills() && LockedDatabase() && FullDisk() && Poison();
    fmt::print("{}\n", good ? "all tables equal" : "FAILED");
    return good ? 0 : 1;
  }

 private:
  std::string Undisturbed() {
    const TestDatabase test;
    MakeCollection(test.address());
    const auto start = Clock::now();
    if (ExitOf(StartWorker(test.address(), Out(), 0, 3)) != 0)
      throw Error(ExitCode::kBroken, "undisturbed run");
    std::string table = TableOf(test);
    fmt::print("undisturbed: {} episodes of {} turns, {} lines of table, {:.1f} s\n", kProblems * kEpisodes,
               kTurns, std::count(table.begin(), table.end(), '\n'), Since(start));
    return table;
  }

  bool Kills() {
    int kills = 0, rounds = 0;
    const auto start = Clock::now();
    while (kills < settings_.kills) {
      const TestDatabase test;
      MakeCollection(test.address());
      const int in_round = KillDuring(test.address(), settings_.kills - kills);
      kills += in_round;
      ++rounds;
      if (!Same(expected_, TableOf(test), fmt::format("round {}, {} kills", rounds, in_round))) return false;
    }
    fmt::print("killed {} workers in {} collections, {:.1f} s: nothing lost, nothing doubled\n", kills,
               rounds, Since(start));
    return true;
  }

  int KillDuring(const std::string& address, int most) {
    std::vector<pid_t> workers;
    const fs::path out = Out();
    const auto start = [&] { return StartWorker(address, out, 0.15, 1'000'000); };
    for (int i = 0; i < settings_.workers; ++i) workers.push_back(start());
    int kills = 0;
    while (!workers.empty()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(Draw(10, 250)));
      for (size_t i = 0; i < workers.size();) {
        int status = 0;
        if (waitpid(workers[i], &status, WNOHANG) == 0) {
          ++i;
          continue;
        }
        if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
          throw Error(ExitCode::kBroken, fmt::format("a worker ended with status {}", status));
        workers.erase(workers.begin() + static_cast<ptrdiff_t>(i));
      }
      if (workers.empty() || kills >= most) continue;
      pid_t& victim = workers[static_cast<size_t>(Draw(0, static_cast<int>(workers.size()) - 1))];
      kill(victim, SIGKILL);
      if (ExitOf(victim) == 128 + SIGKILL) ++kills;
      victim = start();
    }
    return kills;
  }

  // Others hold the database for a while: everybody waits.
  bool LockedDatabase() {
    const TestDatabase test;
    MakeCollection(test.address());
    const pid_t worker = StartWorker(test.address(), Out(), 0, 3);
    for (int i = 0; i < 3; ++i) {
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      Database database = test.Look();
      Transaction hold(database);
      if (database.dialect() == SqlDialect::kPostgres) database.Execute("LOCK TABLE turns IN EXCLUSIVE MODE");
      std::this_thread::sleep_for(std::chrono::milliseconds(700));
    }
    const bool good = ExitOf(worker) == 0 && Same(expected_, TableOf(test), "locked database");
    if (good) fmt::print("the database was locked three times for 0.7 s: no difference\n");
    return good;
  }

  // The disk is full at ever later moments (a limit on a file's size fails the same way); then there is room.
  bool FullDisk() {
    const TestDatabase test;
    if (IsPostgresAddress(test.address())) return true;
    MakeCollection(test.address());
    const fs::path out = Out();
    std::string ends;
    for (const rlim_t kib : {400, 900, 1600}) {
      const int code = ExitOf(StartWorker(test.address(), out, 0, 1000, kib * 1024));
      ends += fmt::format(" {}", code);
      if (code != static_cast<int>(ExitCode::kBroken)) {
        fmt::print("a full disk ended a worker with code{}, expected 4\n", ends);
        return false;
      }
    }
    const bool good =
        ExitOf(StartWorker(test.address(), out, 0, 1000)) == 0 && Same(expected_, TableOf(test), "full disk");
    if (good)
      fmt::print("the disk was full three times (exit codes{}), then there was room: no difference\n", ends);
    return good;
  }

  // One problem ends the process at every evaluation; the others get done, its episodes are parked.
  bool Poison() {
    const TestDatabase test;
    MakeCollection(test.address());
    setenv("KEVIN_CHAOS_POISON", "1", 1);
    int deaths = 0;
    while (deaths < 500 && ExitOf(StartWorker(test.address(), Out(), 0, 3)) != 0) ++deaths;
    unsetenv("KEVIN_CHAOS_POISON");
    Database database = test.Look();
    const std::string parked =
        Dump(database, "SELECT spec || coalesce(error, '') FROM work_items WHERE state = 'parked'");
    const int64_t done = database.QueryInteger("SELECT count(*) FROM work_items WHERE state = 'done'");
    const int64_t poisoned = std::count(parked.begin(), parked.end(), '\n');
    std::istringstream lines(parked);
    bool all_told = true;
    for (std::string line; std::getline(lines, line);)
      all_told &= line.find("workers died on it") != line.npos;
    const int64_t bystanders = kProblems * kEpisodes - kEpisodes - done;
    fmt::print("poison: {} deaths, {} items parked with the reason, {} done; {} bystanders parked\n", deaths,
               poisoned, done, bystanders);
    return all_told && done + poisoned == kProblems * kEpisodes && poisoned >= kEpisodes && bystanders == 0;
  }

  fs::path Out() { return folder_.path() / fmt::format("out{}", ++outs_); }
  int Draw(int low, int high) { return std::uniform_int_distribution<>(low, high)(random_); }
  static double Since(Clock::time_point start) {
    return std::chrono::duration<double>(Clock::now() - start).count();
  }

  const Settings settings_;
  std::mt19937 random_;
  testing::TempFolder folder_;
  int outs_ = 0;
  std::string expected_;
};

int Main(int argc, char** argv) {
  if (argc == 6 && std::string(argv[1]) == "worker")
    return RunWorker(argv[2], argv[3], std::atof(argv[4]), std::atoi(argv[5]));
  Settings settings;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--kills") settings.kills = std::atoi(argv[i + 1]);
    if (name == "--workers") settings.workers = std::atoi(argv[i + 1]);
    if (name == "--seed") settings.seed = static_cast<unsigned>(std::atoi(argv[i + 1]));
  }
  return Chaos(settings).Run();
}

}  // namespace
}  // namespace kevin

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  try {
    return kevin::Main(argc, argv);
  } catch (const kevin::Error& error) {
    fmt::print(stderr, "chaos_test: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
