// bench_suite: evaluations an hour over whole suites. Many episodes at once, with a policy that answers at once from
// stored texts in the mix of a language model: correct, slow, incorrect, not compiling. Confirmations are included.
// Prints the rate of distinct candidates that got a fresh verdict, every --every seconds, and in the end the outcomes,
// quantiles of eager's times, the width of the intervals, the share of time in which the device was held, and the problems
// that held it longest. Problems come in random order (--seed).
//
//   bench_suite --device cuda:0 --suite level1,level2 --parallel 16 --minutes 10
//   bench_suite --device cpu --suite level1/19,level1/23 --parallel 2 --minutes 0.3
//
// At its time, at SIGTERM and at SIGINT turns in progress are broken off and not counted. What does not end then is
// left behind: the program ends within 5 s.
//
// The texts: the search policy's kernels (correct; slow: the same with each launch, on a CPU the whole, made twice),
// zeros as output (incorrect), a syntax error. A problem that the search policy cannot write has the last two only.

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <map>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>
#include <ranges>
#include <regex>
#include <set>
#include <thread>

#include "agent/machine.h"
#include "agent/records.h"
#include "agent/rollout/rollout.h"
#include "env/error.h"
#include "env/printable.h"
#include "env/problem/text.h"
#include "env/process/machine.h"
#include "tests/bench/bench_figures.h"
#include "tests/bench/bench_kernels.h"
#include "tests/support/search_text.h"
#include "tools/device_options.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

struct Options {
  DeviceOptions device;
  std::string suite = "level1,level2", diagnose = "best";
  int parallel = 16, turns = 8, episodes = 4;
  double minutes = 10, every_s = 15;
  uint64_t seed = 0;
};

// Shares of a language model's replies, in percent; what is left does not compile.
constexpr int kCorrect = 45, kSlow = 15, kIncorrect = 25;

std::string LaunchedTwice(const std::string& source) {
  static const std::regex kLaunch(R"(\n( *\w+(<[^<>;]*>)?<<<[^;]*>>>\([^;]*\);))");
  return std::regex_replace(source, kLaunch, "\n$1\n$1");
}

// --- The same texts in C++ ---

std::string CalledTwice(const Problem& problem, const std::string& source) {
  static const std::regex kName(R"(\blaunch\b)"), kArgument(R"((\w+)\s*[,)])");
  const std::string signature = LaunchSignature(problem, "cpp");
  const size_t open = signature.find('(');
  std::string arguments;
  for (std::sregex_iterator
           at(signature.begin() + static_cast<std::ptrdiff_t>(open), signature.end(), kArgument),
       end;
       at != end; ++at) {
    arguments += (arguments.empty() ? "" : ", ") + (*at)[1].str();
  }
  return fmt::format("{}\n{} {{\n  launch_once({});\n  launch_once({});\n}}\n",
                     std::regex_replace(source, kName, "launch_once"), signature, arguments, arguments);
}

std::string ZerosInCpp(const Problem& problem, const std::string& size) {
  std::string loops;
  for (const ConcreteTensor& output : AtFirstShape(problem, size).outputs)
    loops += fmt::format("  for (long i = 0; i < {}L; ++i) {}[i] = 0;\n", output.elements, output.spec.name);
  return fmt::format("{} {{\n{}}}\n", LaunchSignature(problem, "cpp"), loops);
}

class ScriptedPolicy : public Policy {
 public:
  ScriptedPolicy(const ProblemSet& problems, std::string kind, std::string size)
      : problems_(problems), kind_(std::move(kind)), size_(std::move(size)) {}

  Completion Complete(const Request& request, const CancelToken*, const OnText&) override {
    const std::string id = request.task.problem;
    const int number = ++count_;
    const Texts& texts = TextsOf(id);
    // A hash, so that neither the order of turns nor that of problems decides.
    const auto draw =
        std::stoul(Sha256Hex(fmt::format("{} {} {}", run_, id, number)).substr(0, 8), nullptr, 16) % 100;
    const std::string mark = fmt::format("_{}_{}", run_, number);
    std::string text = Marked(texts.incorrect, mark);
    const int compiling = kCorrect + kSlow + kIncorrect;
    if (static_cast<int>(draw) >= compiling) {
      text = IsCpp() ? "static float broken(float x) { return x + ; }\n" + text : BrokenKernel(text);
    } else if (!texts.correct.empty() && static_cast<int>(draw) < kCorrect + kSlow) {
      text = Marked(static_cast<int>(draw) >= kCorrect ? texts.slow : texts.correct, mark);
    }
    Completion completion;
    completion.text = fmt::format("A kernel.\n```{}\n{}\n```\nSummary: number {}\n", kind_, text, number);
    return completion;
  }
  std::string Name() const override { return "scripted"; }

  // Writes the texts of these problems, so that the turns replay stored ones.
  void Write(const std::vector<std::string>& ids) {
    std::atomic<size_t> next{0};
    std::vector<std::jthread> threads;
    for (int i = 0; i < ReadMachine().cores; ++i) {
      threads.emplace_back([&] {
        for (size_t at = next++; at < ids.size(); at = next++) TextsOf(ids[at]);
      });
    }
  }

 private:
  struct Texts {
    std::once_flag made;
    std::string correct, slow, incorrect;  // correct, slow: empty where the search policy has none
  };

  bool IsCpp() const { return kind_ == "cpp"; }
  std::string Marked(const std::string& text, const std::string& mark) const {
    return IsCpp() ? "// variant " + mark + "\n" + text : Variant(text, mark);
  }

  // Each problem has a lock of its own: the graph of a deep network takes seconds.
  const Texts& TextsOf(const std::string& id) {
    Texts* texts = nullptr;
    {
      const std::lock_guard lock(mutex_);
      texts = &texts_[id];
    }
    std::call_once(texts->made, [&] {
      const Problem problem = problems_.Find(id);
      texts->incorrect = IsCpp() ? ZerosInCpp(problem, size_) : ZeroKernel(problem);
      try {
        texts->correct = IsCpp() ? testing::SearchText(problem, size_, kind_) : SearchKernel(problem);
        texts->slow = IsCpp() ? CalledTwice(problem, texts->correct) : LaunchedTwice(texts->correct);
      } catch (const Error&) {
      }
    });
    return *texts;
  }

  const ProblemSet& problems_;
  const std::string kind_, size_;
  const std::string run_ =
      fmt::format("{:x}{:x}", std::chrono::system_clock::now().time_since_epoch().count(), getpid());
  std::atomic<int> count_{0};
  std::mutex mutex_;
  std::map<std::string, Texts> texts_;
};

struct Tally {
  std::set<std::string> candidates;  // with a fresh verdict
  std::map<std::string, int> outcomes;
  std::map<std::string, std::vector<double>> held_by_outcome_s;
  std::vector<std::string> unexpected;  // outcomes that no text of this program should get
  struct OfProblem {
    int turns = 0;
    double held_s = 0, reference_us = 0, candidate_us = 0;  // the latest times
  };
  std::map<std::string, OfProblem> problems;
  std::vector<double> reference_us, half_width, turn_s, held_s, wait_s, verify_s, measure_s, overhead_s,
      generate_s;
  int cached = 0;

  void Add(const TurnRecord& turn, const EpisodeRecord& episode) {
    const EvaluationRecord& e = turn.evaluation;
    if (!e.cached_from.empty()) {
      ++cached;
      return;
    }
    OfProblem& problem = problems[episode.problem];
    ++problem.turns;
    problem.held_s += e.device_s.value_or(0);
    if (e.reference_us) problem.reference_us = *e.reference_us;
    if (e.candidate_us) problem.candidate_us = *e.candidate_us;
    if (candidates.insert(e.candidate_hash).second) ++outcomes[e.outcome];
    turn_s.push_back(turn.seconds);
    overhead_s.push_back(turn.overhead_s);
    generate_s.push_back(turn.generate_s);
    if (e.device_s) held_s.push_back(*e.device_s), held_by_outcome_s[e.outcome].push_back(*e.device_s);
    if (e.outcome != "measured" && e.outcome != "wrong" && e.outcome != "compile_failed")
      unexpected.push_back(fmt::format("{}: {}: {}", episode.problem, e.outcome, e.reason));
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

// The problems whose turns held the device longest.
void PrintLongest(const Tally& tally) {
  constexpr size_t kShown = 16;
  std::vector<std::pair<std::string, Tally::OfProblem>> longest(tally.problems.begin(), tally.problems.end());
  std::sort(longest.begin(), longest.end(),
            [](const auto& a, const auto& b) { return a.second.held_s > b.second.held_s; });
  for (const auto& [id, of] : longest | std::views::take(kShown)) {
    fmt::print("{}: {} turns held the device for {:.1f} s; eager {:.0f} us, candidate {:.0f} us\n", id,
               of.turns, of.held_s, of.reference_us, of.candidate_us);
  }
}

// device_s: that the device was held, confirmations included; unknown where the run was left behind.
void PrintFinal(const Options& options, const Tally& tally, double seconds, std::optional<double> device_s,
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
  for (const auto& [name, values] : tally.held_by_outcome_s) {
    const double sum = std::accumulate(values.begin(), values.end(), 0.0);
    fmt::print("{} held the device {:.0f} % of the time, {} s each\n", name, 100 * sum / seconds,
               Quantiles(values, 3));
  }
  for (const std::string& one : tally.unexpected)
    fmt::print("unexpected: {}\n", Printable(one.substr(0, 300)));
  // What one after another takes of the device, and what the threads of episodes do beside it.
  const auto share = [&](const std::vector<double>& values) {
    return 100 * std::accumulate(values.begin(), values.end(), 0.0) / seconds;
  };
  fmt::print("of the time: turns held the device {:.0f} %, measured turns verify {:.0f} %, measure {:.0f} %",
             share(tally.held_s), share(tally.verify_s), share(tally.measure_s));
  if (device_s) {
    const double all = 100 * *device_s / seconds;
    fmt::print(", confirmations {:.0f} %, the device was held {:.0f} %", all - share(tally.held_s), all);
  }
  fmt::print("\n{} threads: generate {:.0f} %, wait {:.0f} %, overhead (sessions, storing) {:.0f} %, {} s\n",
             options.parallel, share(tally.generate_s), share(tally.wait_s), share(tally.overhead_s),
             Quantiles(tally.overhead_s, 3));
  PrintLongest(tally);
  std::fflush(stdout);
}

volatile sig_atomic_t asked_to_end = 0;

// What the run has given so far. A thread of its own prints it and ends the run in time: nothing that hangs elsewhere
// delays it.
class Watch {
 public:
  Watch(const Options& options, std::filesystem::path folder)
      : options_(options), folder_(std::move(folder)), thread_([this] { Look(); }) {}
  ~Watch() {
    ended_ = true;
    thread_.join();
  }

  void Begin() {
    begin_ = Clock::now();
    begun_ = true;
  }
  const CancelToken* stop() const { return &stop_; }
  void Add(const TurnRecord& turn, const EpisodeRecord& episode) {
    const std::lock_guard lock(mutex_);
    if (!stop_) tally_.Add(turn, episode);
  }
  void AddFault(const std::string& problem, const std::string& error) {
    const std::lock_guard lock(mutex_);
    ++faults_;
    fmt::print("error: {}: {}\n", problem, error);
  }
  // The exit code.
  int Finish(std::optional<double> device_s) {
    const std::lock_guard lock(mutex_);
    if (!is_final_)
      PrintFinal(options_, tally_, seconds_ > 0 ? seconds_ : SecondsSince(begin_), device_s, faults_);
    is_final_ = true;
    return asked_to_end ? static_cast<int>(ExitCode::kInterrupted) : tally_.candidates.empty() ? 1 : 0;
  }

 private:
  using Clock = std::chrono::steady_clock;
  static constexpr double kMostToStop_s = 4;

  void Look() {
    Clock::time_point printed = Clock::now(), stopping;
    while (!ended_) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      if (!stop_ && (asked_to_end || (begun_ && SecondsSince(begin_) >= options_.minutes * 60))) {
        const std::lock_guard lock(mutex_);
        stopping = Clock::now();
        seconds_ = begun_ ? SecondsSince(begin_) : 0;
        stop_ = true;
      }
      if (stop_ && !ended_ && SecondsSince(stopping) > kMostToStop_s) LeaveBehind();
      if (!stop_ && SecondsSince(printed) >= options_.every_s) {
        printed = Clock::now();
        PrintProgress();
      }
    }
  }

  void PrintProgress() {
    const std::lock_guard lock(mutex_);
    if (!begun_) return fmt::print("preparing\n");
    const double seconds = SecondsSince(begin_);
    const auto count = static_cast<double>(tally_.candidates.size());
    fmt::print(
        "{:.0f} s: {} verdicts, {:.0f} an hour; in the last {:.0f} s {:.0f} an hour; {} problems, errors {}\n",
        seconds, count, count / seconds * 3600, seconds - shown_s_,
        (count - shown_) / (seconds - shown_s_) * 3600, tally_.problems.size(), faults_);
    shown_ = count, shown_s_ = seconds;
  }

  // Child processes end with their threads.
  [[noreturn]] void LeaveBehind() {
    fmt::print("left behind what did not end in {:.0f} s\n", kMostToStop_s);
    const int code = Finish({});
    std::error_code ignored;
    std::filesystem::remove_all(folder_, ignored);
    _exit(code);
  }

  const Options& options_;
  const std::filesystem::path folder_;
  CancelToken stop_{false};
  std::atomic<bool> ended_{false}, begun_{false};
  Clock::time_point begin_ = Clock::now();  // set before begun_
  double seconds_ = 0;                      // until it was stopped
  double shown_ = 0, shown_s_ = 0;
  std::mutex mutex_;  // of the tally and of what is printed
  Tally tally_;
  int faults_ = 0;
  bool is_final_ = false;  // printed
  std::thread thread_;
};

int Run(const Options& options) {
  const ProblemSet problems(ProblemSet::DefaultDirectory());
  std::string folder = (fs::temp_directory_path() / "kevin-bench-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) throw Error(ExitCode::kBroken, folder + ": cannot be made", "");
  int code = 0;
  {
    Watch watch(options, folder);
    const std::unique_ptr<Environment> environment =
        MakeEnvironment(EnvironmentOptionsFor(options.device, options.device.device));
    fmt::print("{}; suite {}\n", environment->Facts().device, options.suite);
    CollectionSpec spec;
    std::map<std::string, Problem> asked;
    std::vector<std::string> ids;
    std::vector<ProblemRecord> records;
    // In random order, so that a part of the time has problems of the whole suite.
    std::vector<LeftOut> inadmissible;
    std::vector<std::string> suite =
        ProblemsOfSuite(problems, ProblemSet::DefaultDirectory(), options.suite, &inadmissible);
    std::shuffle(suite.begin(), suite.end(), std::mt19937_64(options.seed));
    for (const std::string& id : suite) {
      Problem problem = problems.Find(id);
      ids.push_back(problem.id);
      spec.tasks.push_back({problem.id, problem.content_hash});
      records.push_back(ToRecord(problem));
      asked.emplace(problem.content_hash, std::move(problem));
    }
    spec.policies = {"scripted"};
    spec.episodes = options.episodes;
    spec.turns = options.turns;
    spec.seed = options.seed;
    spec.kind = environment->Facts().kinds.front();
    const std::string size = environment->Facts().default_size;
    Store store = Store::Open(fs::path(folder) / "bench.db", OpenMode::kCreate);
    WorkQueue queue(store);
    const auto opened = queue.Open(KeyOf(spec), ToJson(spec), EpisodesOf(spec), records, {}, true);
    ScriptedPolicy policy(problems, spec.kind, size);
    policy.Write(ids);
    RolloutSources sources;
    sources.problem = [&](const EpisodeSpec& episode) -> const Problem& {
      return asked.at(episode.problem_hash);
    };
    sources.policy = [&](const std::string&) -> Policy& { return policy; };
    RolloutOptions rollout;
    rollout.collection = opened.collection;
    rollout.worker_run = opened.worker_run;
    rollout.episode.workload.size = size;
    rollout.episode.diagnose = DiagnoseTurnsNamed(options.diagnose);
    rollout.episode.output = fs::path(folder) / "out";
    rollout.episode.machine = MachineLine(ReadMachine());
    rollout.episode.threads = ReadMachine().cores;
    rollout.parallel = options.parallel;
    RolloutHooks hooks;
    hooks.on_turn = [&](const TurnRecord& turn, const EpisodeRecord& episode) { watch.Add(turn, episode); };
    hooks.on_fault = [&](const EpisodeSpec& episode, const std::string& error, bool) {
      watch.AddFault(episode.problem, error);
    };
    watch.Begin();
    RunRollout(store, *environment, sources, rollout, hooks, nullptr, watch.stop());
    code = watch.Finish(queue.Usage(opened.collection).device_s);
  }
  fs::remove_all(folder);
  return code;
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"Evaluations an hour over whole suites"};
  AddDeviceOptions(&app, &options.device);
  app.add_option("--suite", options.suite, "Problems, as for kevin collect")->capture_default_str();
  app.add_option("--parallel", options.parallel, "Episodes at once")->capture_default_str();
  app.add_option("--minutes", options.minutes, "It ends then; turns in progress are broken off")
      ->capture_default_str();
  app.add_option("--every", options.every_s, "Seconds between two lines of progress")->capture_default_str();
  app.add_option("--episodes", options.episodes, "Of each problem, at most")->capture_default_str();
  app.add_option("--turns", options.turns, "Of an episode")->capture_default_str();
  app.add_option("--seed", options.seed, "Of the episodes")->capture_default_str();
  AddDiagnoseOption(&app, &options.diagnose, "turns that lead or may");
  CLI11_PARSE(app, argc, argv);
  for (const int number : {SIGTERM, SIGINT}) signal(number, [](int) { asked_to_end = 1; });
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
