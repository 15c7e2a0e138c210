#include "agent/train/rollouts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <stop_token>
#include <thread>

#include "agent/journal.h"
#include "agent/machine.h"
#include "agent/policy_options.h"
#include "agent/records.h"
#include "agent/train/model_text.h"
#include "agent/train/served_sampler.h"
#include "env/error.h"
#include "env/problem/problem.h"
#include "policies/local/serve/local_policy.h"
#include "trajectories/work_queue.h"

namespace kevin {
namespace {

constexpr int kParallelOnCpu = 8, kParallelOnGpu = 64;
constexpr auto kQueueCheck = std::chrono::milliseconds(100);
constexpr auto kLeaderLimit = std::chrono::minutes(30);  // for rank 0 to begin a collection

}  // namespace

PolicyOptions OnlinePolicyOptions(const OnlineSettings& settings, int64_t context) {
  PolicyOptions options;
  options.temperature = settings.temperature;
  // The whole distribution, whatever the model's folder advises: the trainer does not model filters, and a
  // token that is never drawn cannot be learnt.
  options.top_p = 1, options.top_k = 0, options.min_p = 0;
  if (settings.max_tokens > 0) options.max_tokens = settings.max_tokens;
  options.context = context;
  options.timeout_s = 86400, options.stall_s = 3600;  // answers pause while the model learns
  return options;
}

Rollouts::Rollouts(const OnlineSettings& settings, const std::string& database, std::filesystem::path kernels,
                   RunFile& run, Progress& progress, std::unique_ptr<Environment> judges,
                   std::function<std::optional<Error>()> failure)
    : settings_(settings),
      kernels_(std::move(kernels)),
      run_(run),
      progress_(progress),
      store_(Store::Open(database, OpenMode::kCreate)),
      environment_(std::move(judges)),
      failure_(std::move(failure)) {
  const EpisodeOutput writable(kernels_);
}

Workload Rollouts::Asked() const {
  Workload workload;
  workload.size = settings_.size.empty() ? facts().default_size : settings_.size;
  workload.rules = settings_.rules;
  return workload;
}

std::optional<Rollouts::Entered> Rollouts::Enter(const RolloutTerms& terms, const std::string& policy,
                                                 std::map<std::string, Problem>* problems,
                                                 const CancelToken* drain) {
  CollectionSpec spec;
  std::vector<ProblemRecord> records;
  const ProblemSet all;
  for (const std::string& id : terms.problems) {
    Problem problem = all.Find(id);
    spec.tasks.push_back({problem.id, problem.content_hash});
    records.push_back(ToRecord(problem));
    problems->emplace(problem.content_hash, std::move(problem));
  }
  spec.policies = {policy};
  spec.episodes = terms.episodes, spec.turns = terms.turns, spec.seed = terms.seed;
  spec.kind = kind();
  spec.prompts = settings_.prompts, spec.diagnose = settings_.diagnose;
  spec.workload = Asked();
  spec.purpose = fmt::format("{} of training {}", terms.name, run_.id());
  const RunRecord process{{}, CommandLine(), KEVIN_VERSION, MachineJson(ReadMachine()), {}, {}};
  WorkQueue queue(store_);
  auto known = run_.Collection(terms.name);
  const auto end = std::chrono::steady_clock::now() + kLeaderLimit;
  while (!known && !run_.leads()) {
    if (std::chrono::steady_clock::now() > end)
      throw Error(ExitCode::kBroken, "rank 0 has not begun " + terms.what,
                  "start all ranks again with --resume");
    if (*drain) return std::nullopt;
    std::this_thread::sleep_for(kQueueCheck);
    known = run_.Collection(terms.name);
  }
  if (known) return Entered{*known, queue.Join(*known, process)};
  const auto opened = queue.Open(KeyOf(spec), ToJson(spec), EpisodesOf(spec), records, process, false);
  run_.SetCollection(terms.name, opened.collection);
  return Entered{opened.collection, opened.worker_run};
}

namespace {

// The user's wishes, and a failure that ends a collection whatever it waits for.
class CollectionWatch {
 public:
  CollectionWatch(const std::function<std::optional<Error>()>& failure, const CancelToken* asked_to_drain,
                  const CancelToken* asked_to_stop)
      : thread_([this, failure, asked_to_drain, asked_to_stop](const std::stop_token& end) {
          while (!end.stop_requested()) {
            if (asked_to_drain != nullptr && *asked_to_drain) drain_ = true;
            if (asked_to_stop != nullptr && *asked_to_stop) stop_ = true;
            if (!failure_ && (failure_ = failure())) drain_ = stop_ = true;
            std::unique_lock lock(mutex_);
            wake_.wait_for(lock, end, kQueueCheck, [] { return false; });
          }
        }) {}

  const CancelToken* drain() const { return &drain_; }
  const CancelToken* stop() const { return &stop_; }
  // Throws the failure.
  void End() {
    thread_.request_stop(), thread_.join();
    if (failure_) throw Error(*failure_);
  }

 private:
  CancelToken drain_{false}, stop_{false};
  std::optional<Error> failure_;
  std::mutex mutex_;
  std::condition_variable_any wake_;
  std::jthread thread_;  // last: it uses the rest
};

}  // namespace

bool Rollouts::IsOver(const CancelToken* drain) const {
  if (const auto failure = failure_()) throw Error(*failure);
  return *drain;
}

std::optional<std::string> Rollouts::Collect(const RolloutTerms& terms, Policy& policy,
                                             const PolicySettings& settings, const CancelToken* drain,
                                             const CancelToken* stop, TurnTimes* times) {
  CollectionWatch watch(failure_, drain, stop);
  const auto run = CollectWatched(terms, policy, settings, watch.drain(), watch.stop(), times);
  watch.End();
  return run;
}

std::optional<std::string> Rollouts::CollectWatched(const RolloutTerms& terms, Policy& policy,
                                                    const PolicySettings& settings, const CancelToken* drain,
                                                    const CancelToken* stop, TurnTimes* times) {
  std::map<std::string, Problem> problems;  // by content hash
  const std::optional<Entered> entered = Enter(terms, policy.Name(), &problems, drain);
  if (!entered) return std::nullopt;
  RolloutOptions options;
  options.collection = entered->collection, options.worker_run = entered->worker_run;
  options.devices_of_others = devices_of_others_;
  const bool on_gpu = facts().device.starts_with("cuda");
  options.parallel = settings_.parallel > 0 ? settings_.parallel : on_gpu ? kParallelOnGpu : kParallelOnCpu;
  const MachineFacts machine = ReadMachine();
  options.episode.kind = kind(), options.episode.prompts = settings_.prompts;
  options.episode.workload = Asked();
  options.episode.output = kernels_, options.episode.confirm = terms.confirm;
  options.episode.diagnose = DiagnoseTurnsNamed(settings_.diagnose), options.episode.diagnose_last = false;
  options.episode.machine = MachineLine(machine);
  options.episode.threads = settings_.threads > 0 ? settings_.threads : machine.cores;
  RolloutSources sources;
  sources.problem = [&](const EpisodeSpec& spec) -> const Problem& {
    const auto found = problems.find(spec.problem_hash);
    if (found != problems.end()) return found->second;
    throw Error(ExitCode::kBadRequest, spec.problem + " has changed since the step began",
                "put the problem's file back, or train into another --out");
  };
  BusyTime answering, judging;
  TimedPolicy timed_policy(policy, answering);
  TimedEnvironment timed_environment(*environment_, judging);
  sources.policy = [&](const std::string&) -> Policy& { return timed_policy; };
  sources.settings = [&](const std::string&) { return settings; };
  const RolloutEnd end = RunRollout(store_, timed_environment, sources, options, Hooks(terms), drain, stop);
  times->generate_s += answering.Seconds(), times->judge_s += judging.Seconds();
  store_.FinishRun(entered->worker_run);
  if (!end.complete && !end.left_to.empty()) {
    throw Error(
        ExitCode::kMachine,
        fmt::format("{}: the episodes that are left were begun on {}, and {}", terms.what,
                    fmt::join(end.left_to, " and "), JudgesText()),
        "go on with --resume on a machine with the same device and number of threads, or train into another --out");
  }
  if (!end.complete) return std::nullopt;
  return entered->collection;
}

std::string Rollouts::JudgesText() const {
  const std::string own = DeviceModel(facts().device);
  std::set<std::string> all(devices_of_others_.begin(), devices_of_others_.end());
  all.insert(own);
  return all.size() == 1 ? "this judge is " + own
                         : fmt::format("the ranks judge on {}", fmt::join(all, " and "));
}

RolloutHooks Rollouts::Hooks(const RolloutTerms& terms) {
  RolloutHooks hooks;
  hooks.on_progress = [this, terms](const RolloutStatus& status) {
    const QueueCounts& counts = status.counts;
    progress_.Status(fmt::format("{}: {}/{} episodes, {} running, {:.0f} s", terms.what, counts.done,
                                 counts.waiting + counts.leased + counts.done + counts.parked,
                                 status.running.size(), status.seconds));
  };
  hooks.on_fault = [this, terms](const EpisodeSpec& spec, const std::string& error, bool parked) {
    progress_.Line(fmt::format("{}: {} episode {}: {}: {}", terms.what, spec.problem, spec.number,
                               parked ? "parked" : "turn discarded, will be made again", error));
  };
  return hooks;
}

TrainedPolicy::TrainedPolicy(std::string name, TrainerProcess& trainer, const TrainerProcess::Opened& opened,
                             const OnlineSettings& settings, std::string device,
                             std::vector<std::string> locks)
    : name_(std::move(name)),
      model_(opened.model),
      device_(std::move(device)),
      locks_(std::move(locks)),
      trainer_(trainer) {
  const PolicyOptions options = OnlinePolicyOptions(settings, opened.context);
  client_ = MakeRemotePolicy(local::LocalClientOptions(
      opened.model, opened.url, RemoteOptionsFor("openai:" + opened.model + "@" + opened.url, options)));
  const WindowShare share = ShareWindow(options, opened.context, std::nullopt);
  settings_ = {SamplingFor(options, share.max_tokens), share.prompt_tokens};
}

void TrainedPolicy::RequireTrainer() const {
  if (const auto failure = trainer_.PermanentFailure())
    throw PolicyUnavailable(failure->code(), failure->what(), failure->next_step());
}

Completion TrainedPolicy::Complete(const Request& request, const CancelToken* cancel, const OnText& on_text) {
  Request asked = request;
  // A server that is gone is not asked again, with growing delays, for minutes.
  asked.on_attempt = [&](const RequestAttempt& attempt) {
    if (request.on_attempt) request.on_attempt(attempt);
    if (attempt.outcome == "failed") RequireTrainer();
  };
  Completion completion;
  try {
    completion = client_->Complete(asked, cancel, on_text);
  } catch (const PromptTooLong&) {
    throw;
  } catch (const PolicyUnavailable&) {
    throw;
  } catch (const Error&) {
    RequireTrainer();
    throw;
  }
  completion.model = VersionedModel(model_, completion.identity.weights_version.value_or(0));
  return completion;
}

}  // namespace kevin
