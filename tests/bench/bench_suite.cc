// bench_suite: evaluations an hour over whole suites. Many episodes at once, with a policy that answers at once from
// stored texts in the mix of a language model: correct, slow, incorrect, not compiling. Confirmations are included.
// Prints the rate of distinct candidates that got a fresh verdict, the outcomes, quantiles of eager's times, the width
// of the intervals and the share of time in which the device was held.
//
//   bench_suite --device cuda:0 --suite level1,level2 --parallel 16 --minutes 10
//
// The texts: the search policy's kernels (correct; slow: the same with each launch made twice), zeros as output
// (incorrect), a syntax error. A problem that the search policy cannot write has the last two only.

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <mutex>
#include <regex>
#include <set>

#include "agent/machine.h"
#include "agent/records.h"
#include "agent/rollout/rollout.h"
#include "env/error.h"
#include "env/problem/text.h"
#include "env/process/machine.h"
#include "tests/bench/bench_figures.h"
#include "tests/bench/bench_kernels.h"
#include "tools/device_options.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

struct Options {
  DeviceOptions device;
  std::string suite = "level1,level2";
  int parallel = 16, turns = 8, episodes = 4;
  double minutes = 10;
  uint64_t seed = 0;
};

// Shares of a language model's replies, in percent; what is left does not compile.
constexpr int kCorrect = 45, kSlow = 15, kIncorrect = 25;

std::string LaunchedTwice(const std::string& source) {
  static const std::regex kLaunch(R"(\n( *\w+(<[^<>;]*>)?<<<[^;]*>>>\([^;]*\);))");
  return std::regex_replace(source, kLaunch, "\n$1\n$1");
}

class ScriptedPolicy : public Policy {
 public:
  explicit ScriptedPolicy(const ProblemSet& problems) : problems_(problems) {}

  Completion Complete(const Request& request, const CancelToken*, const OnText&) override {
    const std::string id = request.task.problem;
    const int number = ++count_;
    const Texts& texts = TextsOf(id);
    // A hash, so that neither the order of turns nor that of problems decides.
    const auto draw =
        std::stoul(Sha256Hex(fmt::format("{} {} {}", run_, id, number)).substr(0, 8), nullptr, 16) % 100;
    std::string text = Variant(texts.incorrect, fmt::format("_{}_{}", run_, number));
    const int compiling = kCorrect + kSlow + kIncorrect;
    if (static_cast<int>(draw) >= compiling) {
      text = BrokenKernel(text);
    } else if (!texts.correct.empty() && static_cast<int>(draw) < kCorrect + kSlow) {
      const bool slow = static_cast<int>(draw) >= kCorrect;
      text =
          Variant(slow ? LaunchedTwice(texts.correct) : texts.correct, fmt::format("_{}_{}", run_, number));
    }
    Completion completion;
    completion.text =
        "A kernel.\n```cuda\n" + text + "\n```\nSummary: number " + std::to_string(number) + "\n";
    return completion;
  }
  std::string Name() const override { return "scripted"; }

 private:
  struct Texts {
    std::string correct, incorrect;  // correct: empty where the search policy has none
  };

  const Texts& TextsOf(const std::string& id) {
    const std::lock_guard lock(mutex_);
    const auto found = texts_.find(id);
    if (found != texts_.end()) return found->second;
    const Problem problem = problems_.Find(id);
    Texts texts{"", ZeroKernel(problem)};
    try {
      texts.correct = SearchKernel(problem);
    } catch (const Error&) {
    }
    return texts_.emplace(id, std::move(texts)).first->second;
  }

  const ProblemSet& problems_;
  const std::string run_ =
      fmt::format("{:x}{:x}", std::chrono::system_clock::now().time_since_epoch().count(), getpid());
  std::atomic<int> count_{0};
  std::mutex mutex_;
  std::map<std::string, Texts> texts_;
};

struct Tally {
  std::set<std::string> candidates;  // with a fresh verdict
  std::map<std::string, int> outcomes;
  std::map<std::string, int> problems;  // turns of each
  std::vector<double> reference_us, half_width, turn_s, held_s, wait_s, verify_s, measure_s, overhead_s;
  int cached = 0;

  void Add(const TurnRecord& turn, const EpisodeRecord& episode) {
    const EvaluationRecord& e = turn.evaluation;
    if (!e.cached_from.empty()) {
      ++cached;
      return;
    }
    ++problems[episode.problem];
    if (candidates.insert(e.candidate_hash).second) ++outcomes[e.outcome];
    turn_s.push_back(turn.seconds);
    overhead_s.push_back(turn.overhead_s);
    if (e.device_s) held_s.push_back(*e.device_s);
    if (e.reference_us) reference_us.push_back(*e.reference_us);
    if (!e.speedup) return;
    half_width.push_back(std::log(e.speedup->high / e.speedup->low) / 2);
    wait_s.push_back(e.wait_s);
    verify_s.push_back(e.verify_s);
    measure_s.push_back(e.measure_s);
  }
};

std::string Quantiles(const std::vector<double>& values, int digits) {
  return fmt::format("{:.{}f} / {:.{}f} / {:.{}f}", QuantileOf(values, 0.1), digits, QuantileOf(values, 0.5),
                     digits, QuantileOf(values, 0.9), digits);
}

void Print(const Options& options, const Tally& tally, const CollectionUsage& usage, double seconds,
           int faults) {
  std::string outcomes;
  for (const auto& [name, count] : tally.outcomes) outcomes += fmt::format(" {} {}", name, count);
  fmt::print("{} at once, {:.0f} s, {} problems\n", options.parallel, seconds, tally.problems.size());
  fmt::print("distinct candidates with a fresh verdict: {}, {:.0f} an hour; cached {}, errors {}\n",
             tally.candidates.size(), static_cast<double>(tally.candidates.size()) / seconds * 3600,
             tally.cached, faults);
  fmt::print("outcomes:{}; measured an hour {:.0f}\n", outcomes,
             tally.outcomes.count("measured") ? tally.outcomes.at("measured") / seconds * 3600 : 0.0);
  fmt::print("quantiles 10 / 50 / 90 %: eager {} us; half width of the 99 % interval {}\n",
             Quantiles(tally.reference_us, 0), Quantiles(tally.half_width, 4));
  fmt::print("turn {} s, device held {} s; of measured turns: waited {} s, verify {} s, measure {} s\n",
             Quantiles(tally.turn_s, 3), Quantiles(tally.held_s, 3), Quantiles(tally.wait_s, 3),
             Quantiles(tally.verify_s, 3), Quantiles(tally.measure_s, 3));
  double overhead_s = 0;
  for (const double value : tally.overhead_s) overhead_s += value;
  fmt::print("overhead of turns (sessions, storing) {} s, {:.0f} % of the time\n",
             Quantiles(tally.overhead_s, 3), 100 * overhead_s / seconds);
  fmt::print("device held for {:.0f} % of the time, confirmations included\n",
             100 * usage.device_s / seconds);
}

int Run(const Options& options) {
  const ProblemSet problems(ProblemSet::DefaultDirectory());
  std::string folder = (fs::temp_directory_path() / "kevin-bench-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) throw Error(ExitCode::kBroken, folder + ": cannot be made", "");
  const std::unique_ptr<Environment> environment =
      MakeEnvironment(EnvironmentOptionsFor(options.device, options.device.device));
  fmt::print("{}; suite {}\n", environment->Facts().device, options.suite);
  CollectionSpec spec;
  std::map<std::string, Problem> asked;
  std::vector<ProblemRecord> records;
  for (const std::string& id : ProblemsOfSuite(problems, ProblemSet::DefaultDirectory(), options.suite)) {
    Problem problem = problems.Find(id);
    spec.tasks.push_back({problem.id, problem.content_hash});
    records.push_back(ToRecord(problem));
    asked.emplace(problem.content_hash, std::move(problem));
  }
  spec.policies = {"scripted"};
  spec.episodes = options.episodes;
  spec.turns = options.turns;
  spec.seed = options.seed;
  spec.kind = environment->Facts().kinds.front();
  Tally tally;
  int faults = 0;
  {
    Store store = Store::Open(fs::path(folder) / "bench.db", OpenMode::kCreate);
    WorkQueue queue(store);
    const auto opened = queue.Open(KeyOf(spec), ToJson(spec), EpisodesOf(spec), records, {}, true);
    ScriptedPolicy policy(problems);
    RolloutSources sources;
    sources.problem = [&](const EpisodeSpec& episode) -> const Problem& {
      return asked.at(episode.problem_hash);
    };
    sources.policy = [&](const std::string&) -> Policy& { return policy; };
    RolloutOptions rollout;
    rollout.collection = opened.collection;
    rollout.worker_run = opened.worker_run;
    rollout.episode.workload.size = environment->Facts().default_size;
    rollout.episode.output = fs::path(folder) / "out";
    rollout.episode.machine = MachineLine(ReadMachine());
    rollout.episode.threads = ReadMachine().cores;
    rollout.parallel = options.parallel;
    rollout.budget.hours = options.minutes / 60;
    RolloutHooks hooks;
    hooks.on_turn = [&](const TurnRecord& turn, const EpisodeRecord& episode) { tally.Add(turn, episode); };
    hooks.on_fault = [&](const EpisodeSpec& episode, const std::string& error, bool) {
      ++faults;
      fmt::print("error: {}: {}\n", episode.problem, error);
    };
    const auto start = std::chrono::steady_clock::now();
    RunRollout(store, *environment, sources, rollout, hooks, nullptr, nullptr);
    Print(options, tally, queue.Usage(opened.collection), SecondsSince(start), faults);
  }
  fs::remove_all(folder);
  return tally.candidates.empty() ? 1 : 0;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"Evaluations an hour over whole suites"};
  AddDeviceOptions(&app, &options.device);
  app.add_option("--suite", options.suite, "Problems, as for kevin collect")->capture_default_str();
  app.add_option("--parallel", options.parallel, "Episodes at once")->capture_default_str();
  app.add_option("--minutes", options.minutes, "No turn begins after this time")->capture_default_str();
  app.add_option("--episodes", options.episodes, "Of each problem, at most")->capture_default_str();
  app.add_option("--turns", options.turns, "Of an episode")->capture_default_str();
  app.add_option("--seed", options.seed, "Of the episodes")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  return Run(options);
}

}  // namespace
}  // namespace kevin

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  try {
    return kevin::Main(argc, argv);
  } catch (const kevin::Error& error) {
    fmt::print(stderr, "bench_suite: {}\n  {}\n", error.what(), error.next_step());
    return static_cast<int>(error.code());
  }
}
