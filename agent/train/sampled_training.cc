#include "agent/train/sampled_training.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numeric>

#include "agent/json.h"
#include "agent/report/report.h"
#include "env/error.h"
#include "env/problem/problem.h"

namespace kevin {
namespace fs = std::filesystem;
namespace {

constexpr int64_t kLeastPrompt = 1024;                   // tokens
constexpr uint64_t kSeedOfRefill = 0xD1342543DE82EF95u;  // odd: the rounds of a step have seeds of their own

void RequireDisjoint(const std::vector<std::string>& a, const std::vector<std::string>& b,
                     const std::string& what, const std::string& next) {
  const std::vector<std::string> both = CommonIds(a, b);
  if (both.empty()) return;
  throw Error(ExitCode::kBadRequest,
              fmt::format("{} problems are {}: {}", both.size(), what, ShortList(both)), next);
}

Json AskedFor(const SampledRequest& request, const OnlineSettings& settings, const TrainSuites& suites) {
  Json asked = {{"algorithm", request.algorithm}, {"seed", request.seed}, {"online", settings.online}};
  asked["eval_suite"] = suites.dev;
  if (settings.online) {
    asked["problems"] = suites.learnt, asked["problems_per_step"] = settings.problems_per_step;
    asked["samples"] = settings.samples, asked["turns"] = settings.turns;
    asked["database"] = request.database;
    // Left out where it is the default, so that runs of an earlier program continue.
    if (!settings.kind.empty()) asked["kind"] = settings.kind;
    if (settings.rules != "kevin") asked["rules"] = settings.rules;
    if (settings.prompts != "kevin") asked["prompts"] = settings.prompts;
    if (settings.diagnose != "best") asked["diagnose"] = settings.diagnose;
  }
  return asked;
}

SolveRates RatesIn(const RunFile& run) {
  const nlohmann::json rates = run.Get("solve_rates");
  return rates.is_null() ? SolveRates{} : rates.get<SolveRates>();
}

std::string UtcNow() {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

// A seed for each step and purpose.
uint64_t SeedOf(uint64_t seed, int64_t step, uint64_t purpose) {
  return seed * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(step) * 4 + purpose;
}

std::vector<std::string> IdsOf(const std::string& suite, std::vector<LeftOut>* left_out) {
  if (suite.empty()) return {};
  return ProblemsOfSuite(ProblemSet(), ProblemSet::DefaultDirectory(), suite, left_out);
}

// Without inadmissible problems, on which incorrect kernels pass: a model would learn to write those.
std::vector<std::string> CountingIdsOfSuite(const std::string& suite) {
  std::vector<LeftOut> left_out;
  return IdsOf(suite, &left_out);
}

Json IntervalJson(const Interval& interval) {
  return {{"value", OrNull(interval.value)}, {"low", OrNull(interval.low)}, {"high", OrNull(interval.high)}};
}

Json CellJson(const BudgetCell& cell) {
  return {{"turns", cell.turns},           {"episodes", cell.episodes},
          {"best", OrNull(cell.best)},     {"best_low", OrNull(cell.best_interval.low)},
          {"solved", OrNull(cell.solved)}, {"best_high", OrNull(cell.best_interval.high)},
          {"problems", cell.problems}};
}

Json FindCell(const std::vector<BudgetCell>& cells, int turns, int episodes) {
  const auto found = std::find_if(cells.begin(), cells.end(), [&](const BudgetCell& cell) {
    return cell.turns == turns && cell.episodes == episodes;
  });
  return found == cells.end() ? Json(nullptr) : CellJson(*found);
}

std::string Best(const Json& cell) {
  return cell.is_null() || cell.at("best").is_null() ? "unknown"
                                                     : fmt::format("{:.3g}x", cell.at("best").get<double>());
}

// The largest power of two up to n: the budgets of the table.
int PowerBelow(int n) {
  int power = 1;
  while (2 * power <= n) power *= 2;
  return power;
}

}  // namespace

std::vector<std::string> IdsOfSuite(const std::string& suite) { return IdsOf(suite, nullptr); }

TrainSuites::TrainSuites(const OnlineSettings& settings, const std::string& without)
    : learnt(CountingIdsOfSuite(settings.suite)),
      dev(CountingIdsOfSuite(settings.eval_suite)),
      test(CountingIdsOfSuite(settings.test_suite)) {
  const std::vector<std::string> left_out = IdsOfSuite(without);
  std::erase_if(learnt,
                [&](const std::string& id) { return std::ranges::find(left_out, id) != left_out.end(); });
  if (settings.online && learnt.empty())
    throw Error(ExitCode::kBadRequest, "--suite and --without leave no problem to learn on");
  const std::string next = "leave them out of training with --without and the same suite";
  RequireDisjoint(dev, learnt, "both learnt from and in --eval-suite", next);
  RequireDisjoint(test, learnt, "both learnt from and in --test-suite", next);
  RequireDisjoint(
      test, dev, "both in --eval-suite and in --test-suite",
      "the suite that chooses the checkpoint cannot judge it: give suites without common problems");
  if (!dev.empty()) RequireMetric(settings.best_by);
}

SampledTraining::SampledTraining(const SampledRequest& request, const OnlineSettings& settings,
                                 const TrainSuites& suites, TrainerProcess& trainer,
                                 const TrainerProcess::Opened& opened, Progress& progress,
                                 std::unique_ptr<Environment> judges)
    : request_(request),
      settings_(settings),
      suites_(suites),
      run_(request.output, opened.rank == 0, AskedFor(request, settings, suites),
           [&trainer] {
             if (const auto failure = trainer.PermanentFailure()) throw Error(*failure);
           }),
      rollouts_(settings, request.database, fs::path(request.output) / "kernels", run_, progress,
                std::move(judges), [&trainer] { return trainer.PermanentFailure(); }) {
  const std::string name = PolicyNameOfRun(request.output);
  if (!settings.sampler.empty()) {
    auto served = std::make_unique<ServedSampler>(name, run_.id(), settings, request.model,
                                                  fs::path(request.output) / "sampler", opened.rank == 0,
                                                  settings.context > 0 ? settings.context : request.context);
    settings_of_policy_ = served->settings(), served_ = served.get();
    policy_ = std::move(served);
  } else {
    auto trained = std::make_unique<TrainedPolicy>(
        name, trainer, opened, settings,
        settings.sampler_device.empty() ? request.device : settings.sampler_device, request.locks);
    settings_of_policy_ = trained->settings();
    policy_ = std::move(trained);
  }
  if (served_ == nullptr) trainer.NameRun(run_.id());
  if (!settings_.schedule.empty()) SettingsWithCap(settings_.schedule.Largest());
}

PolicySettings SampledTraining::SettingsWithCap(int max_tokens) const {
  PolicySettings settings = settings_of_policy_;
  const int64_t window = settings.sampling.max_tokens + settings.prompt_token_budget;
  settings.sampling.max_tokens = max_tokens, settings.prompt_token_budget = window - max_tokens;
  if (settings.prompt_token_budget >= kLeastPrompt) return settings;
  throw Error(ExitCode::kBadRequest,
              fmt::format("--max-tokens-schedule: {} tokens leave no room for a prompt in a context of {}",
                          max_tokens, window),
              "give smaller caps, or a longer --context");
}

std::optional<std::vector<std::string>> SampledTraining::ProblemsOfStep(int64_t step,
                                                                        const CancelToken* drain) {
  std::vector<std::string> chosen;
  const auto per_step = static_cast<size_t>(settings_.problems_per_step);
  if (settings_.curriculum) {
    const auto draw = [&] {
      return DrawProblems(suites_.learnt, RatesIn(run_), per_step, request_.seed,
                          static_cast<uint64_t>(step));
    };
    return run_.Chosen(fmt::format("step-{}", step), draw, [&] { return rollouts_.IsOver(drain); });
  }
  for (const size_t i : UnitsOfStep(suites_.learnt.size(), per_step, step, request_.seed))
    chosen.push_back(suites_.learnt[i]);
  return chosen;
}

std::optional<std::string> SampledTraining::CollectProblems(int64_t step, int refill,
                                                            const std::vector<std::string>& problems,
                                                            const CancelToken* drain, const CancelToken* stop,
                                                            TurnTimes* times) {
  const std::string round = refill > 0 ? fmt::format("-refill-{}", refill) : "";
  RolloutTerms terms;
  terms.name = fmt::format("step-{}{}", step, round);
  terms.what = fmt::format("step {}/{}{}", step, request_.steps, round);
  terms.problems = problems;
  terms.episodes = settings_.samples, terms.turns = settings_.turns;
  terms.seed = SeedOf(request_.seed, step, 0) + static_cast<uint64_t>(refill) * kSeedOfRefill;
  const PolicySettings settings =
      settings_.schedule.empty() ? settings_of_policy_ : SettingsWithCap(settings_.schedule.At(step));
  return rollouts_.Collect(terms, *policy_, settings, drain, stop, times);
}

LearnTurns SampledTraining::TurnsOf(const std::vector<std::string>& runs) const {
  LearnRequest request;
  request.sources = {{request_.database, runs}};
  request.scheme = request_.scheme;
  request.accept = {true, true};
  request.may_be_empty = true;  // where all episodes are parked
  return LearnTurns(request);
}

void SampledTraining::NoteSolveRates(const std::vector<std::string>& runs) {
  if (!settings_.curriculum || !run_.leads()) return;
  nlohmann::json rates = run_.Get("solve_rates");
  for (const auto& [problem, rate] : SolveRatesOf(TurnsOf(runs))) rates[problem] = rate;
  run_.Set("solve_rates", rates);
}

std::optional<std::vector<std::string>> SampledTraining::CollectStep(int64_t step, const CancelToken* drain,
                                                                     const CancelToken* stop) {
  const std::optional<std::vector<std::string>> first = ProblemsOfStep(step, drain);
  if (!first) return std::nullopt;
  std::vector<std::string> used = *first, round = *first, runs;
  TurnTimes times;
  for (int refill = 0; !round.empty(); ++refill) {
    const auto run = CollectProblems(step, refill, round, drain, stop, &times);
    if (!run) return std::nullopt;
    runs.push_back(*run);
    if (refill >= settings_.refills) break;
    const auto draw = [&] {
      const LearnTurns turns = TurnsOf({*run});
      const auto replaced = static_cast<size_t>(FlatTasks(turns) + ParkedTasks(round, turns));
      std::vector<std::string> others;
      std::ranges::copy_if(suites_.learnt, std::back_inserter(others),
                           [&](const std::string& id) { return std::ranges::find(used, id) == used.end(); });
      return DrawProblems(others, settings_.curriculum ? RatesIn(run_) : SolveRates{}, replaced,
                          request_.seed, SeedOf(1, step, static_cast<uint64_t>(refill) + 1));
    };
    auto further = run_.Chosen(fmt::format("step-{}-refill-{}", step, refill + 1), draw,
                               [&] { return rollouts_.IsOver(drain); });
    if (!further) return std::nullopt;
    round = std::move(*further);
    used.insert(used.end(), round.begin(), round.end());
  }
  NoteSolveRates(runs);
  if (run_.leads()) times.parked_tasks = ParkedTasks(used, TurnsOf(runs));
  const std::lock_guard lock(mutex_);
  times_[step] = times;
  return runs;
}

TurnTimes SampledTraining::TakeTimes(int64_t step) {
  const std::lock_guard lock(mutex_);
  const auto found = times_.extract(step);
  return found.empty() ? TurnTimes{} : found.mapped();
}

std::optional<Json> SampledTraining::Evaluate(const EvaluationTerms& terms, const std::string& name,
                                              const std::vector<std::string>& problems,
                                              const CancelToken* drain, const CancelToken* stop) {
  RolloutTerms rollout;
  rollout.name = name, rollout.what = fmt::format("{} at step {}", terms.suite, terms.step);
  rollout.problems = problems, rollout.episodes = terms.episodes, rollout.turns = terms.turns;
  rollout.confirm = true;
  const PolicySettings settings =
      settings_.schedule.empty() ? settings_of_policy_ : SettingsWithCap(settings_.schedule.Largest());
  // All evaluations have the same seed, so that they differ by the model alone.
  rollout.seed = SeedOf(request_.seed, 0, terms.split == "test" ? 2 : 1);
  TurnTimes ignored;
  const auto run = rollouts_.Collect(rollout, *policy_, settings, drain, stop, &ignored);
  if (!run) return std::nullopt;
  return EvaluationEvent(rollouts_.store(), *run, terms);
}

std::optional<Json> SampledTraining::EvaluateDev(int64_t step, const CancelToken* drain,
                                                 const CancelToken* stop) {
  const EvaluationTerms terms{
      step, settings_.eval_suite, "dev", settings_.eval_samples, settings_.eval_turns, settings_.best_by};
  return Evaluate(terms, fmt::format("evaluation-{}", step), suites_.dev, drain, stop);
}

bool SampledTraining::IsBest(const Json& event) const {
  const nlohmann::json best = run_.Get("best");
  if (event.at("value").is_null()) return false;
  return best.is_null() || event.at("value").get<double>() > best.at("value").get<double>();
}

void SampledTraining::SetBest(const Json& event, const std::string& folder) {
  run_.Set("best", {{"step", event.at("step")},
                    {"suite", event.at("suite")},
                    {"metric", event.at("best_by")},
                    {"value", event.at("value")},
                    {"run", event.at("run")},
                    {"checkpoint", folder}});
}

std::optional<std::string> SampledTraining::BestCheckpoint() const {
  const nlohmann::json best = run_.Get("best");
  if (best.is_null()) return std::nullopt;
  return (fs::path(request_.output) / "best").string();
}

int64_t SampledTraining::BestStep() const { return run_.Get("best").at("step"); }

void SampledTraining::RequireUntested() const {
  const nlohmann::json record = run_.Get("test");
  if (record.is_null() || !record.contains("metrics")) return;
  throw Error(ExitCode::kBadRequest,
              fmt::format("the test suite {} was read on {}; a second reading would turn it into a dev suite",
                          record.at("suite").get<std::string>(), record.at("begun").get<std::string>()),
              fmt::format("its result is in {}/run.json; continue without --test-suite", request_.output));
}

std::optional<Json> SampledTraining::EvaluateTest(int64_t step, const CancelToken* drain,
                                                  const CancelToken* stop) {
  RequireUntested();
  nlohmann::json record = run_.Get("test");
  // Recorded before the first problem is read. An interrupted reading continues with the same turns.
  if (record.is_null()) record = {{"suite", settings_.test_suite}, {"step", step}, {"begun", UtcNow()}};
  run_.Set("test", record);
  const EvaluationTerms terms{
      step, settings_.test_suite, "test", settings_.eval_samples, settings_.eval_turns, settings_.best_by};
  const auto event = Evaluate(terms, "test", suites_.test, drain, stop);
  if (!event) return std::nullopt;
  record["run"] = event->at("run"), record["metrics"] = event->at("metrics"), record["ended"] = UtcNow();
  run_.Set("test", record);
  return event;
}

void RequireMetric(const std::string& name) {
  std::string known;
  for (const MetricSpec& spec : MetricList({1})) {
    if (!spec.higher_is_better) continue;
    if (spec.name == name) return;
    known += (known.empty() ? "" : ", ") + spec.name;
  }
  throw Error(ExitCode::kBadRequest, "--best-by " + name + ": no such metric", "there are: " + known);
}

Json EvaluationEvent(Store& store, const std::string& run, const EvaluationTerms& terms) {
  const Figures figures = store.LoadFigures({run});
  std::vector<size_t> episodes(figures.episodes.size());
  std::iota(episodes.begin(), episodes.end(), size_t{0});
  const Report report = MakeReport({MakeSide(terms.suite, figures, episodes)}, {});
  const SideReport& side = report.sides.front();
  const int budget = PowerBelow(std::min(terms.episodes, terms.turns));
  Json event = {{"event", "evaluation_step"},
                {"step", terms.step},
                {"suite", terms.suite},
                {"split", terms.split},
                {"run", run},
                {"problems", side.side.problems.size()},
                {"episodes", terms.episodes},
                {"turns", terms.turns},
                {"budget", budget},
                {"serial", FindCell(side.budgets, budget, 1)},
                {"parallel", FindCell(side.budgets, 1, budget)},
                {"budgets", Json::array()},
                {"metrics", Json::object()}};
  for (const BudgetCell& cell : side.budgets) event["budgets"].push_back(CellJson(cell));
  for (size_t i = 0; i < report.specs.size(); ++i)
    event["metrics"][report.specs[i].name] = IntervalJson(side.groups.front().metrics[i]);
  event["best_by"] = terms.best_by;
  event["value"] = event["metrics"].at(terms.best_by).at("value");
  return event;
}

std::string EvaluationLine(const Json& e) {
  const auto metric = [&](const char* name) {
    const Json& value = e.at("metrics").at(name).at("value");
    return value.is_null() ? 0.0 : value.get<double>();
  };
  const auto problems = e.at("problems").get<double>();
  return fmt::format(
      "{}  step {}  {}: solved {:.0f}/{:.0f}, mean speed-up {:.3g}x; {} kernels a problem: "
      "one after the other {}, side by side {}",
      e.at("split") == "test" ? "test      " : "evaluation", e.at("step").get<int64_t>(),
      e.at("suite").get<std::string>(), metric("solved_best") * problems, problems, metric("mean_avg"),
      e.at("budget").get<int>(), Best(e.at("serial")), Best(e.at("parallel")));
}

}  // namespace kevin
