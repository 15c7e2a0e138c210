// bench_collect: gain by overlap. Runs the same episodes one after another and many at once, with a policy
// that answers after a fixed time. Prints episodes per hour, the share of time in which the device was held,
// and the ratio.
//
//   bench_collect --device cuda:0 --latency 1          on a GPU (or cpu)
//   bench_collect --device cuda:0 --device cuda:1 --episodes 64
//   bench_collect --device fake        a fake environment: compiles for 0.06 s, holds its device for 0.28 s

#include <fmt/format.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <mutex>
#include <thread>

#include "agent/machine.h"
#include "agent/records.h"
#include "agent/rollout/rollout.h"
#include "env/device_pool.h"
#include "env/error.h"
#include "env/graph_source.h"
#include "env/problem/text.h"
#include "env/process/spawn.h"
#include "policies/search/search_policy.h"
#include "tools/device_options.h"

namespace kevin {
namespace {

using Clock = std::chrono::steady_clock;
namespace fs = std::filesystem;

struct Options {
  std::vector<std::string> devices = {"auto"};
  DeviceOptions device;
  std::string problem = "level1/19";
  double latency_s = 1;
  int parallel = 16, turns = 4, episodes = 32, serial_episodes = 4;
};

void Sleep(double seconds) { std::this_thread::sleep_for(std::chrono::duration<double>(seconds)); }

// Answers like the search policy, after `latency_s`, with a text that no cache has.
class SlowPolicy : public Policy {
 public:
  explicit SlowPolicy(double latency_s) : latency_s_(latency_s) {}
  Completion Complete(const Request& request, const CancelToken* cancel, const OnText& on_text) override {
    Sleep(latency_s_);
    Completion completion = search_->Complete(request, cancel, on_text);
    const std::string fence = "```" + request.task.kind + "\n";
    const size_t at = completion.text.find(fence);
    if (at != std::string::npos) {
      completion.text.insert(at + fence.size(), fmt::format("// {} {} {}\n", run_, getpid(), ++count_));
    }
    return completion;
  }
  std::string Name() const override { return "bench"; }
  bool ReadsGraphs() const override { return true; }

 private:
  const double latency_s_;
  const std::unique_ptr<Policy> search_ = MakeSearchPolicy();
  const int64_t run_ = std::chrono::system_clock::now().time_since_epoch().count();
  std::atomic<int> count_{0};
};

class SleepingEnvironment : public Environment {
 public:
  Evaluation EvaluateShape(const Problem& problem, const Candidate& candidate,
                           const EvaluateOptions& options) override {
    Sleep(0.06);
    const std::lock_guard device(device_);
    Sleep(0.28);
    Evaluation evaluation;
    evaluation.outcome = Measured{};
    evaluation.candidate_hash = Sha256Hex(candidate.source);
    evaluation.key = EvaluationKey(problem, candidate, options);
    evaluation.workload.size = options.workload.size, evaluation.workload.inputs = options.workload.inputs,
    evaluation.workload.precision = "fp32";
    evaluation.device = facts_.device, evaluation.isolation = facts_.isolation;
    evaluation.compile_s = 0.06, evaluation.measure_s = evaluation.device_s = 0.28;
    return evaluation;
  }
  std::string EvaluationKey(const Problem& problem, const Candidate& candidate,
                            const EvaluateOptions& options) override {
    return Sha256Hex(candidate.source + problem.content_hash + options.workload.size);
  }
  std::string Graph(const Problem& problem, const std::string& size) override {
    return graphs_.Graph(problem, size);
  }
  const EnvironmentFacts& Facts() const override { return facts_; }

 private:
  const EnvironmentFacts facts_{"fake: sleeps", "full", {"cpp"}, "small", ""};
  std::mutex device_;
  GraphSource graphs_{ProgramDirectory(), CacheDirectory()};
};

std::unique_ptr<Environment> Start(const Options& options, size_t* count) {
  if (options.devices == std::vector<std::string>{"fake"}) {
    *count = 1;
    return std::make_unique<SleepingEnvironment>();
  }
  std::vector<std::unique_ptr<Environment>> environments;
  for (const std::string& device : ChooseDevices(options.devices, options.device, ""))
    environments.push_back(MakeEnvironment(EnvironmentOptionsFor(options.device, device)));
  *count = environments.size();
  if (*count == 1) return std::move(environments.front());
  return std::make_unique<DevicePool>(std::move(environments));
}

struct OverlapFigures {
  double seconds = 0, device_s = 0;
  int episodes = 0;
  int64_t turns = 0;
  double EpisodesPerHour() const { return episodes / seconds * 3600; }
};

// One collection in a database of its own.
OverlapFigures Collect(const Options& options, Environment& environment, const Problem& problem, int episodes,
                       int parallel) {
  std::string folder = (fs::temp_directory_path() / "kevin-bench-XXXXXX").string();
  if (mkdtemp(folder.data()) == nullptr) throw Error(ExitCode::kBroken, folder + ": cannot be made", "");
  CollectionSpec spec;
  spec.tasks = {{problem.id, problem.content_hash}};
  spec.policies = {"bench"};
  spec.episodes = episodes;
  spec.turns = options.turns;
  spec.kind = environment.Facts().kinds.front();
  OverlapFigures figures;
  figures.episodes = episodes;
  {
    Store store = Store::Open(fs::path(folder) / "bench.db", OpenMode::kCreate);
    WorkQueue queue(store);
    const auto opened =
        queue.Open(KeyOf(spec), ToJson(spec), EpisodesOf(spec), {ToRecord(problem)}, {}, true);
    SlowPolicy policy(options.latency_s);
    RolloutSources sources;
    sources.problem = [&](const EpisodeSpec&) -> const Problem& { return problem; };
    sources.policy = [&](const std::string&) -> Policy& { return policy; };
    RolloutOptions rollout;
    rollout.collection = opened.collection;
    rollout.worker_run = opened.worker_run;
    rollout.episode.workload.size = environment.Facts().default_size;
    rollout.episode.output = fs::path(folder) / "out";
    rollout.episode.machine = MachineLine(ReadMachine());
    rollout.episode.threads = ReadMachine().cores;
    rollout.parallel = parallel;
    RolloutHooks hooks;
    hooks.on_fault = [](const EpisodeSpec&, const std::string& error, bool) {
      fmt::print("fault: {}\n", error);
    };
    const auto start = Clock::now();
    RunRollout(store, environment, sources, rollout, hooks, nullptr, nullptr);
    figures.seconds = std::chrono::duration<double>(Clock::now() - start).count();
    const CollectionUsage usage = queue.Usage(opened.collection);
    figures.device_s = usage.device_s;
    figures.turns = usage.turns;
  }
  fs::remove_all(folder);
  return figures;
}

void PrintFigures(const char* what, const OverlapFigures& f, size_t devices) {
  fmt::print(
      "{:<22} {:4} episodes, {:4} turns in {:6.1f} s: {:6.0f} episodes/h, {:7.0f} turns/h, devices held "
      "{:3.0f} %\n",
      what, f.episodes, f.turns, f.seconds, f.EpisodesPerHour(),
      static_cast<double>(f.turns) / f.seconds * 3600,
      100 * f.device_s / (f.seconds * static_cast<double>(devices)));
}

int Main(int argc, char** argv) {
  Options options;
  CLI::App app{"Gain by overlapping generation, compiling and measuring"};
  AddDeviceOptions(&app, &options.device);
  app.remove_option(app.get_option("--device"));
  app.add_option("--device", options.devices, "auto, cpu, cuda:N, all, or fake; repeatable")
      ->allow_extra_args(false);
  app.add_option("--problem", options.problem, "Problem id; judged at its device's default size")
      ->capture_default_str();
  app.add_option("--latency", options.latency_s, "Seconds until the policy answers")->capture_default_str();
  app.add_option("--parallel", options.parallel, "Episodes at once")->capture_default_str();
  app.add_option("--episodes", options.episodes, "Of the overlapped part")->capture_default_str();
  app.add_option("--serial-episodes", options.serial_episodes, "Of the serial part")->capture_default_str();
  app.add_option("--turns", options.turns, "Of an episode")->capture_default_str();
  CLI11_PARSE(app, argc, argv);
  size_t devices = 1;
  const Problem problem = ProblemSet(ProblemSet::DefaultDirectory()).Find(options.problem);
  const std::unique_ptr<Environment> environment = Start(options, &devices);
  fmt::print("{} {}, {}; the policy answers after {:g} s; {} turns an episode\n", problem.id, problem.name,
             environment->Facts().device, options.latency_s, options.turns);
  Collect(options, *environment, problem, 1, 1);  // starts the processes that the first candidate needs
  const OverlapFigures serial = Collect(options, *environment, problem, options.serial_episodes, 1);
  PrintFigures("one after another", serial, devices);
  const OverlapFigures overlapped =
      Collect(options, *environment, problem, options.episodes, options.parallel);
  PrintFigures(fmt::format("{} at once", options.parallel).c_str(), overlapped, devices);
  fmt::print("ratio {:.2f}\n", overlapped.EpisodesPerHour() / serial.EpisodesPerHour());
  return 0;
}

}  // namespace
}  // namespace kevin

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  try {
    return kevin::Main(argc, argv);
  } catch (const kevin::Error& error) {
    fmt::print(stderr, "bench_collect: {}\n  {}\n", error.what(), error.next_step());
    return static_cast<int>(error.code());
  }
}
