#include "tools/collection.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdlib>
#include <optional>
#include <set>

#include "agent/feedback.h"
#include "agent/json.h"
#include "agent/text.h"
#include "env/error.h"
#include "policies/local/serve/local_policy.h"
#include "tools/policies.h"
#include "tools/report/format.h"

namespace kevin {
namespace {

void ReadPrice(const std::string& text, Budget* budget) {
  const size_t slash = text.find('/');
  char* end = nullptr;
  budget->dollars_per_million_prompt = std::strtod(text.c_str(), &end);
  const bool first = slash != std::string::npos && end == text.c_str() + slash;
  if (first) budget->dollars_per_million_completion = std::strtod(text.c_str() + slash + 1, &end);
  if (first && *end == '\0') return;
  throw Error(ExitCode::kBadRequest, fmt::format("--price {}: not PROMPT/COMPLETION", text),
              "for example --price 2.5/10: dollars per million tokens");
}

}  // namespace

void AddCollectBudgetOptions(CLI::App* command, CollectBudget* budget) {
  Budget& limits = budget->limits;
  CLI::Option* hours = command->add_option("--hours", limits.hours, "Begin no turn after this time")
                           ->check(CLI::PositiveNumber);
  command->add_option("--budget-seconds", budget->seconds, "The same in seconds")
      ->check(CLI::PositiveNumber)
      ->excludes(hours);
  command
      ->add_option("--tokens,--budget-tokens", limits.tokens,
                   "The most tokens that the run may use, in and out")
      ->check(TokenBudgetError);
  command
      ->add_option("--dollars,--budget-usd", limits.dollars,
                   "The run may cost so much; needs --prices or --price")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--price", budget->price,
                   "Dollars per million tokens, PROMPT/COMPLETION: 2.5/10; in place of --prices")
      ->excludes(command->get_option("--prices"));
  command->add_option("--gpu-seconds", limits.device_s, "The run may hold devices for so long")
      ->check(CLI::PositiveNumber);
}

Budget BudgetFrom(const CollectBudget& budget, const PolicyOptions& model) {
  Budget limits = budget.limits;
  if (budget.seconds) limits.hours = *budget.seconds / 3600;
  if (!budget.price.empty()) ReadPrice(budget.price, &limits);
  limits.costs_are_known = !model.prices.empty();
  if (limits.dollars && budget.price.empty() && !limits.costs_are_known) {
    throw Error(ExitCode::kBadRequest, "--dollars: what tokens cost is not known",
                "say it with --prices FILE or --price 2.5/10");
  }
  return limits;
}

namespace {

bool IsModel(const std::string& name) { return remote::IsRemoteSpec(name) || local::IsLocalSpec(name); }

// The part of `options` that this policy, one of `names`, takes. Options that no policy takes stay, so that the
// first policy refuses them.
PolicyOptions OptionsFor(const std::string& name, const std::vector<std::string>& names,
                         const PolicyOptions& options) {
  PolicyOptions its = options;
  if (remote::IsRemoteSpec(name)) {
    its.base_url.clear();  // its name has it
  } else if (local::IsLocalSpec(name)) {
    if (std::none_of(names.begin(), names.end(), remote::IsRemoteSpec)) return its;
    its.base_url = its.key_file = its.key_variable = its.ca_file = "";
    its.token_ids = "off";
  } else if (std::any_of(names.begin(), names.end(), IsModel)) {
    its = {};
  }
  return its;
}

}  // namespace

std::vector<std::string> StoredPolicyNames(const std::vector<std::string>& names,
                                           const PolicyOptions& options) {
  std::vector<std::string> stored;
  for (const std::string& name : names) {
    stored.push_back(remote::IsRemoteSpec(name) ? remote::ParseSpec(name, options.base_url).Spec() : name);
  }
  return stored;
}

CollectPolicies::CollectPolicies(const CollectionSpec& spec, const PolicyOptions& options,
                                 const Budget& budget, Store& store, const std::string& owner) {
  PolicyOptions all = WithStoredSampling(options, spec.model_options, owner);
  if (budget.costs_are_known) all.budget_usd = budget.dollars;
  all.budget_tokens = budget.tokens;
  budget_ = std::make_shared<remote::Budget>(
      remote::BudgetOptions{all.budget_usd, std::nullopt, all.budget_tokens});
  all.shared_budget = budget_;
  for (const std::string& name : spec.policies) {
    ChosenPolicy chosen = MakePolicy(name, store, OptionsFor(name, spec.policies, all));
    if (IsModel(name)) windows_[name] = {chosen.sampling.max_tokens, chosen.prompt_token_budget};
    policies_[name] = std::move(chosen);
  }
  for (const auto& [name, window] : spec.windows) windows_[name] = window;
}

void CollectPolicies::GoOnWith(const CollectionSpec& stored, const CollectionSpec& asked,
                               const std::string& owner) {
  const std::string difference = SamplingDifference(stored.model_options, asked.model_options);
  if (!difference.empty()) {
    throw Error(
        ExitCode::kBadRequest,
        fmt::format("{} of the same request is unfinished and samples otherwise: {}", owner, difference),
        "give the same options to go on with it, or start another with --new-run");
  }
  for (const auto& [name, window] : stored.windows) windows_[name] = window;
}

void CollectPolicies::AddUsed(const CollectionUsage& usage) {
  budget_->Add(static_cast<int>(usage.turns), usage.prompt_tokens + usage.completion_tokens, usage.dollars);
}

Policy& CollectPolicies::Get(const std::string& name) const {
  const auto found = policies_.find(name);
  if (found != policies_.end()) return *found->second.policy;
  throw Error(ExitCode::kBadRequest, fmt::format("policy {}: not part of this run", name), "use --new-run");
}

PolicySettings CollectPolicies::SettingsOf(const std::string& name) const {
  const ChosenPolicy& chosen = policies_.at(name);
  PolicySettings settings{chosen.sampling, chosen.prompt_token_budget, chosen.asks_for_diff};
  if (const auto window = windows_.find(name); window != windows_.end()) {
    settings.sampling.max_tokens = window->second.max_tokens;
    settings.prompt_token_budget = window->second.prompt_tokens;
  }
  return settings;
}

namespace {

constexpr double kSecondsToKnowARate = 5;

// Figures derived from a status.
struct Derived {
  int64_t all = 0, ended = 0;
  int solved = 0;
  const ProblemResult* best = nullptr;
  std::optional<double> turns_per_hour, device_busy, seconds_left;
};

// Of the episodes that are not ended, if each makes all its turns. What those of other processes have made is known only
// as what is more than all turns of the episodes that are done.
double TurnsLeft(const RolloutStatus& status, const CollectTotals& totals) {
  const int64_t open = (status.counts.waiting + status.counts.leased) * totals.turns;
  int64_t made = 0;
  for (const RunningEpisode& episode : status.running) made += episode.stored;
  made = std::max(made, status.usage.turns - status.counts.done * totals.turns);
  return static_cast<double>(std::max<int64_t>(0, open - made));
}

Derived Derive(const RolloutStatus& status, const CollectTotals& totals) {
  Derived d;
  d.ended = status.counts.done + status.counts.parked;
  d.all = d.ended + status.counts.waiting + status.counts.leased;
  std::set<std::string> solved;
  for (const ProblemResult& result : status.results) {
    if (result.solved > 0) solved.insert(result.problem);
    const bool better =
        result.best_speedup && (d.best == nullptr || *result.best_speedup > *d.best->best_speedup);
    if (better) d.best = &result;
  }
  d.solved = static_cast<int>(solved.size());
  if (status.seconds < kSecondsToKnowARate) return d;
  d.device_busy = std::min(1.0, status.device_s / (status.seconds * std::max(1, totals.devices)));
  const auto made = static_cast<double>(status.usage.turns - totals.turns_at_start);
  if (made <= 0) return d;
  d.turns_per_hour = made / status.seconds * 3600;
  const double to_make = TurnsLeft(status, totals);
  d.seconds_left = to_make * status.seconds / made;
  return d;
}

}  // namespace

std::string DurationText(double seconds) {
  const auto whole = static_cast<int64_t>(seconds + 0.5);
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min", whole / 60);
  if (whole < 86400) return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
  return fmt::format("{} d {} h", whole / 86400, whole % 86400 / 3600);
}

std::string ProgressText(const RolloutStatus& status, const CollectTotals& totals, const Budget& budget) {
  const Derived d = Derive(status, totals);
  std::string text = fmt::format("{}/{} episodes, {} running", d.ended, d.all, status.running.size());
  const int64_t elsewhere = status.counts.leased - static_cast<int64_t>(status.running.size());
  if (elsewhere > 0) text += fmt::format(", {} elsewhere", elsewhere);
  if (status.counts.parked > 0) text += fmt::format(", {} parked", status.counts.parked);
  if (d.turns_per_hour) text += fmt::format(" | {:.0f} turns/h", *d.turns_per_hour);
  text += fmt::format(" | solved {}/{}", d.solved, totals.problems);
  if (d.best != nullptr) text += fmt::format(" | best {:.3g}x {}", *d.best->best_speedup, d.best->problem);
  if (d.device_busy) text += fmt::format(" | device busy {:.0f} %", *d.device_busy * 100);
  const double dollars = DollarsFor(budget, status.usage);
  if (dollars > 0) text += fmt::format(" | ${:.2f}", dollars);
  if (d.seconds_left) text += fmt::format(" | {} left", DurationText(*d.seconds_left));
  if (status.draining) text += " | finishing the turns in hand";
  return text;
}

Json ProgressEvent(const RolloutStatus& status, const CollectTotals& totals, const Budget& budget) {
  const Derived d = Derive(status, totals);
  return {{"event", "progress"},
          {"run", totals.run},
          {"waiting", status.counts.waiting},
          {"running", status.counts.leased},
          {"done", status.counts.done},
          {"parked", status.counts.parked},
          {"turns", status.usage.turns},
          {"turns_per_hour", OrNull(d.turns_per_hour)},
          {"solved", d.solved},
          {"problems", totals.problems},
          {"best_problem", d.best ? Json(d.best->problem) : Json()},
          {"best_speedup", d.best ? OrNull(d.best->best_speedup) : Json()},
          {"device_busy", OrNull(d.device_busy)},
          {"prompt_tokens", status.usage.prompt_tokens},
          {"completion_tokens", status.usage.completion_tokens},
          {"dollars", DollarsFor(budget, status.usage)},
          {"seconds", status.seconds},
          {"seconds_left", OrNull(d.seconds_left)}};
}

std::string EpisodeLine(const EpisodeRecord& e) {
  std::string best = "none correct";
  if (e.best_turn && e.best_speedup) {
    best = fmt::format(
        "best turn {} with {}", *e.best_turn,
        RatioText(*e.best_speedup, e.best_speedup_low.value_or(0), e.best_speedup_high.value_or(0)));
  } else if (e.best_turn) {
    best = fmt::format("best turn {}, not confirmed", *e.best_turn);
  }
  return fmt::format("{}  {}  {}  {}, {} correct, {}  {:.1f} s", e.id, e.problem, e.policy,
                     Counted(e.turns, "turn"), e.correct_turns, best, e.seconds);
}

std::string ResultTable(const std::vector<ProblemResult>& results) {
  std::vector<std::vector<std::string>> rows = {{"problem", "policy", "episodes", "solved", "best"}};
  for (const ProblemResult& r : results) {
    rows.push_back({r.problem, r.policy, std::to_string(r.episodes), std::to_string(r.solved),
                    r.best_speedup ? fmt::format("{:.3g}x", *r.best_speedup) : "-"});
  }
  return AlignedTable(rows);
}

Json FaultEvent(const EpisodeSpec& spec, const std::string& error, bool parked) {
  return {{"event", "fault"},      {"problem", spec.problem}, {"policy", spec.policy},
          {"number", spec.number}, {"error", error},          {"parked", parked}};
}

namespace {

// A line a reason: what was given up, and why.
std::string ParkedText(const std::vector<ProblemResult>& results, const std::vector<ParkedItem>& parked) {
  std::set<std::string> all;
  for (const ProblemResult& result : results) all.insert(result.problem);
  struct Reason {
    std::string error;
    std::vector<std::string> problems;
    int episodes = 0;
  };
  std::vector<Reason> reasons;
  for (const ParkedItem& item : parked) {
    const EpisodeSpec spec = EpisodeFromJson(item.spec);
    const std::string error =
        item.error.starts_with(spec.problem + ": ") ? item.error.substr(spec.problem.size() + 2) : item.error;
    auto found =
        std::find_if(reasons.begin(), reasons.end(), [&](const auto& r) { return r.error == error; });
    if (found == reasons.end()) found = reasons.insert(found, {error, {}, 0});
    ++found->episodes;
    std::vector<std::string>& problems = found->problems;
    if (std::find(problems.begin(), problems.end(), spec.problem) == problems.end())
      problems.push_back(spec.problem);
  }
  std::string text;
  for (const Reason& reason : reasons) {
    constexpr size_t kMostNamed = 8;
    std::vector<std::string> named = reason.problems;
    if (named.size() > kMostNamed) named.resize(kMostNamed);
    text += fmt::format("parked    {} of {} ({}{}), {}: {}\n", reason.problems.size(),
                        Counted(static_cast<int64_t>(all.size()), "problem"), fmt::join(named, ", "),
                        named.size() < reason.problems.size() ? ", ..." : "",
                        Counted(reason.episodes, "episode"), reason.error);
  }
  return text;
}

std::string LeftToText(const std::vector<std::string>& devices) {
  return fmt::format(
      "Stopped: the episodes that are left were begun on {}, and only a worker with the same device and number of threads "
      "goes on with them; start the same command there, or another run with --new-run\n",
      fmt::join(devices, " and on "));
}

}  // namespace

std::string EndText(const std::vector<ProblemResult>& results, const std::vector<ParkedItem>& parked,
                    const RolloutEnd& end) {
  std::string text = "\n" + ResultTable(results);
  text += ParkedText(results, parked);
  if (end.complete) return text;
  if (!end.left_to.empty()) return text + LeftToText(end.left_to);
  return text + (end.out_of.empty() ? "Stopped" : "The budget of " + end.out_of + " is used") +
         "; the same command continues the run\n";
}

Json ResultEvent(const ProblemResult& r) {
  return {{"event", "result"},
          {"problem", r.problem},
          {"policy", r.policy},
          {"episodes", r.episodes},
          {"done", r.done},
          {"solved", r.solved},
          {"best_speedup", OrNull(r.best_speedup)}};
}

}  // namespace kevin
