#include "agent/train/sampled_training.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>

#include "env/error.h"
#include "env/problem/problem.h"

namespace kevin {
namespace {

namespace fs = std::filesystem;

bool Names(const std::vector<std::string>& ids, const std::string& id) {
  return std::find(ids.begin(), ids.end(), id) != ids.end();
}

void RequireApart(const std::vector<std::string>& a, const std::vector<std::string>& b,
                  const std::string& what, const std::string& next) {
  std::vector<std::string> both;
  std::copy_if(a.begin(), a.end(), std::back_inserter(both),
               [&](const std::string& id) { return Names(b, id); });
  if (both.empty()) return;
  const size_t shown = std::min<size_t>(both.size(), 5);
  throw Error(ExitCode::kBadRequest,
              fmt::format("{} problems are {}: {}{}", both.size(), what,
                          fmt::join(both.begin(), both.begin() + static_cast<long>(shown), ", "),
                          both.size() > shown ? ", ..." : ""),
              next);
}

Json AskedFor(const SampledRequest& request, const OnlineSettings& settings, const TrainSuites& suites) {
  Json asked = {{"algorithm", request.algorithm}, {"seed", request.seed}, {"online", settings.online}};
  asked["eval_suite"] = suites.dev;
  if (settings.online) {
    asked["problems"] = suites.learnt, asked["problems_per_step"] = settings.problems_per_step;
    asked["samples"] = settings.samples, asked["turns"] = settings.turns;
    asked["database"] = request.database;
  }
  return asked;
}

std::string UtcNow() {
  const auto now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  std::tm parts{};
  gmtime_r(&now, &parts);
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec);
}

// Of each step and purpose another.
uint64_t SeedOf(uint64_t seed, int64_t step, uint64_t purpose) {
  return seed * 0x9E3779B97F4A7C15u + static_cast<uint64_t>(step) * 4 + purpose;
}

std::vector<std::string> IdsOf(const std::string& suite, std::vector<LeftOut>* left_out) {
  if (suite.empty()) return {};
  return ProblemsOfSuite(ProblemSet(), ProblemSet::DefaultDirectory(), suite, left_out);
}

// Without those on which wrong answers pass: a model would learn to give them.
std::vector<std::string> CountingIdsOfSuite(const std::string& suite) {
  std::vector<LeftOut> left_out;
  return IdsOf(suite, &left_out);
}

}  // namespace

std::vector<std::string> IdsOfSuite(const std::string& suite) { return IdsOf(suite, nullptr); }

TrainSuites::TrainSuites(const OnlineSettings& settings, const std::string& without)
    : learnt(CountingIdsOfSuite(settings.suite)),
      dev(CountingIdsOfSuite(settings.eval_suite)),
      test(CountingIdsOfSuite(settings.test_suite)) {
  const std::vector<std::string> left_out = IdsOfSuite(without);
  std::erase_if(learnt, [&](const std::string& id) { return Names(left_out, id); });
  if (settings.online && learnt.empty())
    throw Error(ExitCode::kBadRequest, "--suite and --without leave no problem to learn on");
  const std::string next = "leave them out of training with --without and the same suite";
  RequireApart(dev, learnt, "both learnt from and in --eval-suite", next);
  RequireApart(test, learnt, "both learnt from and in --test-suite", next);
  RequireApart(test, dev, "both in --eval-suite and in --test-suite",
               "what chooses the checkpoint cannot judge it: give suites that share nothing");
  if (!dev.empty()) RequireMetric(settings.best_by);
}

SampledTraining::SampledTraining(const SampledRequest& request, const OnlineSettings& settings,
                                 const TrainSuites& suites, TrainerProcess& trainer,
                                 const TrainerProcess::Opened& opened, Progress& progress,
                                 std::unique_ptr<Environment> judges)
    : request_(request),
      settings_(settings),
      suites_(suites),
      run_(request.output, opened.rank == 0, AskedFor(request, settings, suites)),
      rollouts_(settings, request.database, fs::path(request.output) / "kernels", run_, progress,
                std::move(judges)),
      policy_("online:" + fs::absolute(request.output).lexically_normal().string(), trainer, opened, settings,
              settings.sampler_device.empty() ? request.device : settings.sampler_device,
              rollouts_.facts().device) {
  trainer.NameRun(run_.id());
}

std::vector<std::string> SampledTraining::ProblemsOfStep(int64_t step) const {
  std::vector<std::string> chosen;
  const auto per_step = static_cast<size_t>(settings_.problems_per_step);
  for (const size_t i : UnitsOfStep(suites_.learnt.size(), per_step, step, request_.seed))
    chosen.push_back(suites_.learnt[i]);
  return chosen;
}

std::optional<std::string> SampledTraining::CollectStep(int64_t step, const CancelToken* drain,
                                                        const CancelToken* stop) {
  RolloutTerms terms;
  terms.name = fmt::format("step-{}", step), terms.what = fmt::format("step {}/{}", step, request_.steps);
  terms.problems = ProblemsOfStep(step);
  terms.episodes = settings_.samples, terms.turns = settings_.turns;
  terms.seed = SeedOf(request_.seed, step, 0);
  return rollouts_.Collect(terms, policy_, policy_.settings(), drain, stop);
}

std::optional<Json> SampledTraining::Evaluate(const EvaluationTerms& terms, const std::string& name,
                                              const std::vector<std::string>& problems,
                                              const CancelToken* drain, const CancelToken* stop) {
  RolloutTerms rollout;
  rollout.name = name, rollout.what = fmt::format("{} at step {}", terms.suite, terms.step);
  rollout.problems = problems, rollout.episodes = terms.episodes, rollout.turns = terms.turns;
  rollout.confirm = true;
  // Every evaluation draws alike, so that they differ by the model.
  rollout.seed = SeedOf(request_.seed, 0, terms.split == "test" ? 2 : 1);
  const auto run = rollouts_.Collect(rollout, policy_, policy_.settings(), drain, stop);
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
              fmt::format("the test suite {} was read on {}; a second look would choose by it",
                          record.at("suite").get<std::string>(), record.at("begun").get<std::string>()),
              fmt::format("its result is in {}/run.json; go on without --test-suite", request_.output));
}

std::optional<Json> SampledTraining::EvaluateTest(int64_t step, const CancelToken* drain,
                                                  const CancelToken* stop) {
  RequireUntested();
  nlohmann::json record = run_.Get("test");
  // Said before the first problem is read. A reading that was broken off goes on with the same turns.
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

}  // namespace kevin
