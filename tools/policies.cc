#include "tools/policies.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>
#include <vector>

#include "agent/machine.h"
#include "agent/terminal.h"
#include "env/error.h"
#include "env/process/spawn.h"
#include "policies/local/files/model_config.h"
#include "policies/replay/replay_policy.h"
#include "policies/search/search_policy.h"

namespace kevin {
namespace {

constexpr const char* kGroup = "A language model's server";
constexpr const char* kSamplingGroup = "A language model's sampling";
constexpr const char* kLimitGroup = "A language model's limits and records";

void AddServerOptions(CLI::App* command, PolicyOptions* o) {
  command->add_option("--base-url", o->base_url,
                      "As the vendor's SDK takes it (http://127.0.0.1:8000/v1), or unix:PATH");
  command->add_option("--key-file", o->key_file,
                      "A private file with the API key (default: the usual variables)");
  command->add_option("--key-variable", o->key_variable,
                      "The variable that holds the key: OPENROUTER_API_KEY");
  command->add_option("--ca-file", o->ca_file, "Certificates to trust in place of the system's");
  command
      ->add_option("--token-ids", o->token_ids,
                   "Ask for token ids and log-probabilities: through chat completions, or with token "
                   "prompts by /completions (vLLM) or /generate (SGLang)")
      ->check(CLI::IsMember({"off", "chat", "completions", "generate"}))
      ->capture_default_str();
  command->add_flag("--no-stream", o->no_stream, "Take answers whole instead of as they come");
  command->add_option("--request-json", o->request_json,
                      "A JSON object whose fields replace those of every request; null removes a field");
}

void AddSamplingOptions(CLI::App* command, PolicyOptions* o) {
  command->add_option("--temperature", o->temperature, "Default: the server's; with --token-ids 1")
      ->check(CLI::Range(0.0, 2.0));
  command->add_option("--top-p", o->top_p, "Default: the server's; with --token-ids 1")
      ->check(CLI::Range(0.0, 1.0));
  command->add_option("--top-k", o->top_k, "0: all tokens. Default: the server's; with --token-ids 0")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--min-p", o->min_p, "Default: the server's; with --token-ids 0")
      ->check(CLI::Range(0.0, 1.0));
  command
      ->add_option("--max-tokens", o->max_tokens,
                   "The most tokens of an answer with its reasoning (default 16384, or half the window)")
      ->check(CLI::PositiveNumber);
  command->add_option("--stop", o->stop, "A text that ends the answer; repeatable")->allow_extra_args(false);
  command->add_option("--reasoning-effort", o->reasoning_effort,
                      "In the provider's words: low, medium, high");
  command->add_option("--thinking-tokens", o->thinking_tokens, "Anthropic: the most to think with")
      ->check(CLI::PositiveNumber);
  command
      ->add_option(
          "--edit-format", o->edit_format,
          "What a later turn is asked for: the whole file, or a diff against the latest kernel (default whole; "
          "either is understood)")
      ->check(CLI::IsMember({"whole", "diff"}));
  command
      ->add_option("--context", o->context,
                   "The model's window in tokens (default: the price table's, the server's, or 32768)")
      ->check(CLI::PositiveNumber);
}

void AddLimitOptions(CLI::App* command, PolicyOptions* o) {
  command->add_option("--retries", o->retries, "Retries of a request after a transient error")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  command->add_option("--timeout", o->timeout_s, "Seconds for one answer")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command
      ->add_option("--stall-timeout", o->stall_s,
                   "Seconds without anything new; of answers that come whole --timeout alone counts")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--rpm", o->requests_per_minute, "Requests per minute; 0: no limit")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--tpm", o->tokens_per_minute, "Tokens per minute; 0: no limit")
      ->check(CLI::NonNegativeNumber);
  command->add_option("--concurrent", o->concurrent, "Requests at once; 0: no limit")
      ->check(CLI::NonNegativeNumber);
}

void AddBudgetOptions(CLI::App* command, PolicyOptions* o) {
  command->add_option("--budget-usd", o->budget_usd, "Ask for nothing more after this much money")
      ->check(CLI::PositiveNumber);
  command->add_option("--tokens,--budget-tokens", o->budget_tokens, "... after this many tokens, in and out")
      ->check(TokenBudgetError);
  command->add_option("--budget-seconds", o->budget_seconds, "... after this time")
      ->check(CLI::PositiveNumber);
}

void AddRecordOptions(CLI::App* command, PolicyOptions* o) {
  command->add_option("--prices", o->prices, "What tokens cost: a file in LiteLLM's JSON schema");
  command->add_flag("--record", o->record, "Keep the raw responses in the database");
  command->add_option("--response-cache", o->response_cache,
                      "A folder of answers: the same request is not paid for twice");
}

}  // namespace

std::string TokenBudgetError(const std::string& text) {
  for (const char* mode : {"off", "chat", "completions", "generate"}) {
    if (text == mode) return "is a budget, not a mode; write --token-ids " + text;
  }
  return CLI::PositiveNumber(text);
}

void AddPolicyOptions(CLI::App* command, PolicyOptions* options, BudgetScope budget) {
  const auto count_before = command->get_options().size();
  AddServerOptions(command, options);
  const auto count_server = command->get_options().size();
  AddSamplingOptions(command, options);
  const auto count_sampling = command->get_options().size();
  AddLimitOptions(command, options);
  if (budget == BudgetScope::kOfPolicy) AddBudgetOptions(command, options);
  AddRecordOptions(command, options);
  const std::vector<CLI::Option*> all = command->get_options();
  for (size_t i = count_before; i < all.size(); ++i)
    all[i]->group(i < count_server ? kGroup : i < count_sampling ? kSamplingGroup : kLimitGroup);
  command->parse_complete_callback([all, count_before, options] {
    const auto given = std::find_if(all.begin() + static_cast<ptrdiff_t>(count_before), all.end(),
                                    [](const CLI::Option* option) { return option->count() > 0; });
    if (given != all.end()) options->first_given = (*given)->get_name();
  });
}

namespace {

ChosenPolicy MakeReplay(const std::string& prefix, Store& store) {
  const EpisodeRecord episode = store.FindEpisode(prefix);
  std::vector<std::string> replies;
  for (const TurnRecord& turn : store.LoadTurns(episode.id)) {
    if (turn.turn > 0) replies.push_back(turn.reply);
  }
  if (replies.empty()) {
    throw Error(ExitCode::kBadRequest, fmt::format("episode {}: it has no turns to replay", episode.id),
                "kevin show lists the episodes");
  }
  const int turns = static_cast<int>(replies.size());
  ChosenPolicy chosen;
  chosen.policy = MakeReplayPolicy("replay:" + episode.id, std::move(replies));
  chosen.turns = turns;
  return chosen;
}

// The sampling for `client`, which asks the server.
ChosenPolicy Sampled(RemotePolicy& client, const PolicyOptions& options) {
  const auto window = options.context ? options.context : client.FindWindow();
  const remote::Price* price = client.FindPrice();
  const WindowShare share =
      ShareWindow(options, window, price == nullptr ? std::nullopt : price->max_output_tokens);
  ChosenPolicy chosen;
  chosen.sampling = SamplingFor(options, share.max_tokens);
  chosen.prompt_token_budget = share.prompt_tokens;
  chosen.asks_for_diff = options.edit_format == "diff";
  client.RequireSampling(chosen.sampling);
  return chosen;
}

ChosenPolicy MakeRemote(const std::string& spec, const PolicyOptions& options) {
  std::unique_ptr<RemotePolicy> policy = MakeRemotePolicy(RemoteOptionsFor(spec, options));
  ChosenPolicy chosen = Sampled(*policy, options);
  policy->RequireLogprobsOf(chosen.sampling);
  chosen.policy = std::move(policy);
  return chosen;
}

// What is not given is as the model's folder says, and stated with each request, so that records have it.
PolicyOptions WithDefaultsOf(const local::LocalSpec& spec, PolicyOptions options) {
  const local::GenerationDefaults of = local::ReadModelConfig(spec.folder).generation;
  const auto fill = [](auto* option, const auto& value, auto otherwise) {
    if (!*option) *option = value.value_or(otherwise);
  };
  fill(&options.temperature, of.temperature, 1.0f), fill(&options.top_p, of.top_p, 1.0f);
  fill(&options.min_p, of.min_p, 0.0f), fill(&options.top_k, of.top_k, 0);
  return options;
}

ChosenPolicy MakeLocal(const std::string& spec, const PolicyOptions& options) {
  std::unique_ptr<local::LocalPolicy> policy = StartLocalPolicy(spec, options);
  ChosenPolicy chosen = Sampled(policy->client(), WithDefaultsOf(local::ParseLocalSpec(spec), options));
  chosen.policy = std::move(policy);
  return chosen;
}

}  // namespace

ChosenPolicy MakePolicy(const std::string& name, Store& store, const PolicyOptions& options) {
  constexpr std::string_view kReplay = "replay:";
  if (name.starts_with(kReplay) && options.first_given.empty())
    return MakeReplay(name.substr(kReplay.size()), store);
  return MakePolicy(name, options);
}

ChosenPolicy MakePolicy(const std::string& name, const PolicyOptions& options) {
  if (remote::IsRemoteSpec(name)) return MakeRemote(name, options);
  if (local::IsLocalSpec(name)) return MakeLocal(name, options);
  if (!options.first_given.empty()) {
    throw Error(
        ExitCode::kBadRequest,
        fmt::format("{} is for language models; the policy is {}", options.first_given, name),
        "omit it, or use --policy openai:MODEL, openai-responses:MODEL, anthropic:MODEL or local:DIR");
  }
  if (name == "search") {
    ChosenPolicy chosen;
    chosen.policy = MakeSearchPolicy();
    return chosen;
  }
  throw Error(ExitCode::kBadRequest, fmt::format("policy \"{}\": no such policy", name),
              "use --policy search, openai:MODEL, openai-responses:MODEL, anthropic:MODEL, local:DIR, or "
              "replay:EPISODE to re-run a stored episode");
}

namespace {

void RefuseServerOptions(const PolicyOptions& options) {
  const std::pair<const char*, bool> given[] = {{"--base-url", !options.base_url.empty()},
                                                {"--key-file", !options.key_file.empty()},
                                                {"--key-variable", !options.key_variable.empty()},
                                                {"--ca-file", !options.ca_file.empty()},
                                                {"--token-ids", options.token_ids != "off"}};
  for (const auto& [name, is_given] : given) {
    if (!is_given) continue;
    throw Error(ExitCode::kBadRequest,
                fmt::format("{} is for remote servers; local:DIR starts its own", name),
                "leave it out, or use kevin serve-model and --policy openai:NAME --base-url ...");
  }
}

// The options that hold for every server; its address comes later.
RemoteOptions ClientOptions(const PolicyOptions& options) {
  return RemoteOptionsFor("openai:local@unix:/later", options);
}

}  // namespace

std::filesystem::path ModelProgram() { return RequireProgram(ProgramDirectory(), "kevin-model"); }

std::unique_ptr<local::LocalPolicy> StartLocalPolicy(const std::string& spec, const PolicyOptions& options) {
  RefuseServerOptions(options);
  const local::LocalSpec local = local::ParseLocalSpec(spec);
  const RemoteOptions client = ClientOptions(options);
  Progress progress(stderr);
  progress.Phase(fmt::format("starting {}", local.Text()));
  auto policy = std::make_unique<local::LocalPolicy>(
      local, ModelProgram(), client, [&progress](const std::string& line) { progress.Line(line); });
  progress.Phase("");
  return policy;
}

namespace {

// One table, read and written: `act(name, member)` for every option.
template <typename Options, typename Act>
void ForEach(Options& o, const Act& act) {
  act("token-ids", o.token_ids);
  act("request-json", o.request_json);
  act("temperature", o.temperature);
  act("top-p", o.top_p);
  act("top-k", o.top_k);
  act("min-p", o.min_p);
  act("max-tokens", o.max_tokens);
  act("stop", o.stop);
  act("reasoning-effort", o.reasoning_effort);
  act("thinking-tokens", o.thinking_tokens);
  act("context", o.context);
  act("edit-format", o.edit_format);
}

template <typename Value>
void Put(nlohmann::json* all, const char* name, const std::optional<Value>& value) {
  if (value) (*all)[name] = *value;
}
template <typename Value>
void Put(nlohmann::json* all, const char* name, const Value& value) {
  const nlohmann::json json = value;
  if (!value.empty() && json != nlohmann::json("off") && json != nlohmann::json("whole"))
    (*all)[name] = value;
}

template <typename Value>
void Take(const nlohmann::json& value, std::optional<Value>* to) {
  *to = value.get<Value>();
}
template <typename Value>
void Take(const nlohmann::json& value, Value* to) {
  *to = value.get<Value>();
}

std::string ValueText(const nlohmann::json& all, const std::string& name) {
  return all.contains(name) ? all.at(name).dump() : "not given";
}

std::string SamplingDifference(const nlohmann::json& there, const nlohmann::json& here,
                               const std::set<std::string>& names) {
  std::vector<std::string> parts;
  for (const std::string& name : names) {
    const std::string theirs = ValueText(there, name), ours = ValueText(here, name);
    if (theirs != ours) parts.push_back(fmt::format("--{} is {} there and {} here", name, theirs, ours));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

std::set<std::string> NamesIn(const nlohmann::json& all) {
  std::set<std::string> names;
  for (const auto& [name, value] : all.items()) names.insert(name);
  return names;
}

}  // namespace

std::string SamplingJson(const PolicyOptions& options) {
  nlohmann::json all = nlohmann::json::object();
  ForEach(options, [&](const char* name, const auto& value) { Put(&all, name, value); });
  return all.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string SamplingDifference(const std::string& there, const std::string& here) {
  const nlohmann::json theirs = nlohmann::json::parse(there), ours = nlohmann::json::parse(here);
  std::set<std::string> names = NamesIn(theirs);
  names.merge(NamesIn(ours));
  return SamplingDifference(theirs, ours, names);
}

PolicyOptions WithStoredSampling(PolicyOptions options, const std::string& stored, const std::string& owner) {
  const nlohmann::json theirs = nlohmann::json::parse(stored),
                       ours = nlohmann::json::parse(SamplingJson(options));
  if (const std::string difference = SamplingDifference(theirs, ours, NamesIn(ours)); !difference.empty()) {
    throw Error(ExitCode::kBadRequest, fmt::format("{} samples otherwise: {}", owner, difference),
                "leave these options out: they are stored with it");
  }
  ForEach(options, [&](const char* name, auto& value) {
    if (theirs.contains(name)) Take(theirs.at(name), &value);
  });
  return options;
}

}  // namespace kevin
