#include "tools/policy_options.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "env/error.h"

namespace kevin {
namespace {

constexpr int kDefaultAnswer = 16384;
constexpr int64_t kDefaultWindow = 32768;
constexpr int64_t kLeastPrompt = 1024;
constexpr const char* kGroup = "A language model's server";
constexpr const char* kSamplingGroup = "A language model's sampling";
constexpr const char* kLimitGroup = "A language model's limits and records";

void AddServerOptions(CLI::App* command, PolicyOptions* o, BudgetScope budget) {
  command->add_option("--base-url", o->base_url,
                      "As the vendor's SDK takes it (http://127.0.0.1:8000/v1), or unix:PATH");
  command->add_option("--key-file", o->key_file,
                      "A private file with the API key (default: the usual variables)");
  command->add_option("--key-variable", o->key_variable,
                      "The variable that holds the key: OPENROUTER_API_KEY");
  command->add_option("--ca-file", o->ca_file, "Certificates to trust in place of the system's");
  command
      ->add_option(budget == BudgetScope::kOfPolicy ? "--token-ids,--tokens" : "--token-ids", o->tokens,
                   "Ask for token ids and log-probabilities: through chat completions, or with token "
                   "prompts by /completions (vLLM) or /generate (SGLang)")
      ->check(CLI::IsMember({"off", "chat", "completions", "generate"}))
      ->capture_default_str();
  command->add_flag("--no-stream", o->no_stream, "Take answers whole instead of as they come");
  command->add_option("--request-json", o->request_json,
                      "A JSON object laid over every request; null removes a field");
}

void AddSamplingOptions(CLI::App* command, PolicyOptions* o) {
  command->add_option("--temperature", o->temperature, "Default: the server's")->check(CLI::Range(0.0, 2.0));
  command->add_option("--top-p", o->top_p, "Default: the server's")->check(CLI::Range(0.0, 1.0));
  command->add_option("--top-k", o->top_k, "Default: the server's")->check(CLI::PositiveNumber);
  command
      ->add_option("--max-tokens", o->max_tokens,
                   "Of an answer with its reasoning (default 16384, or half the window)")
      ->check(CLI::PositiveNumber);
  command->add_option("--stop", o->stop, "A text that ends the answer; repeatable")->allow_extra_args(false);
  command->add_option("--reasoning-effort", o->reasoning_effort,
                      "In the provider's words: low, medium, high");
  command->add_option("--thinking-tokens", o->thinking_tokens, "Anthropic: the most to think with")
      ->check(CLI::PositiveNumber);
  command
      ->add_option("--context", o->context,
                   "The model's window in tokens (default: the price table's, the server's, or 32768)")
      ->check(CLI::PositiveNumber);
}

void AddLimitOptions(CLI::App* command, PolicyOptions* o) {
  command->add_option("--retries", o->retries, "Of a request that fails in passing")
      ->check(CLI::Range(0, 1000))
      ->capture_default_str();
  command->add_option("--timeout", o->timeout_s, "Seconds for one answer")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  command->add_option("--stall-timeout", o->stall_s, "Seconds without anything new")
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
  command->add_option("--budget-tokens", o->budget_tokens, "... after this many tokens, in and out")
      ->check(CLI::PositiveNumber);
  command->add_option("--budget-seconds", o->budget_seconds, "... after this time")
      ->check(CLI::PositiveNumber);
}

void AddRecordOptions(CLI::App* command, PolicyOptions* o) {
  command->add_option("--prices", o->prices, "What tokens cost: a file in LiteLLM's JSON schema");
  command->add_flag("--record", o->record, "Keep the raw responses in the database");
  command->add_option("--response-cache", o->response_cache,
                      "A folder of answers: the same request is not paid for twice");
}

TokenMode TokenModeOf(const std::string& name) {
  if (name == "chat") return TokenMode::kChat;
  if (name == "completions") return TokenMode::kCompletions;
  return name == "generate" ? TokenMode::kGenerate : TokenMode::kNone;
}

}  // namespace

void AddPolicyOptions(CLI::App* command, PolicyOptions* options, BudgetScope budget) {
  const auto count_before = command->get_options().size();
  AddServerOptions(command, options, budget);
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

RemoteOptions RemoteOptionsFor(const std::string& spec, const PolicyOptions& o) {
  RemoteOptions remote;
  remote.endpoint = remote::ParseSpec(spec, o.base_url);
  if (!o.prices.empty()) remote.prices = remote::PriceTable::Read(o.prices);
  remote.key = remote::FindKey(remote.endpoint, o.key_file, o.key_variable);
  remote.ca_file = o.ca_file;
  remote.http.total_s = o.timeout_s;
  remote.http.stall_s = o.stall_s;
  remote.attempts = o.retries + 1;
  remote.rates = {o.requests_per_minute, o.tokens_per_minute, o.concurrent};
  remote.budget = {o.budget_usd, o.budget_seconds, o.budget_tokens};
  remote.shared_budget = o.shared_budget;
  remote.tokens = TokenModeOf(o.tokens);
  remote.stream = !o.no_stream;
  remote.record = o.record;
  remote.response_cache = o.response_cache;
  remote.extra = o.request_json;
  return remote;
}

WindowShare ShareWindow(const PolicyOptions& options, std::optional<int64_t> window,
                        std::optional<int64_t> max_answer) {
  const int64_t whole = options.context.value_or(window.value_or(kDefaultWindow));
  const int64_t most =
      std::min<int64_t>(std::min<int64_t>(kDefaultAnswer, whole / 2), max_answer.value_or(whole));
  WindowShare share;
  share.max_tokens = options.max_tokens.value_or(static_cast<int>(std::max<int64_t>(1, most)));
  share.prompt_tokens = whole - share.max_tokens;
  if (share.prompt_tokens >= kLeastPrompt || !options.max_tokens) return share;
  throw Error(ExitCode::kBadRequest,
              fmt::format("--max-tokens {} leaves no room for a prompt in a window of {} tokens",
                          share.max_tokens, whole),
              "give less, or the model's true window with --context");
}

Sampling SamplingFor(const PolicyOptions& options, int max_tokens) {
  Sampling sampling;
  sampling.temperature = options.temperature;
  sampling.top_p = options.top_p;
  sampling.top_k = options.top_k;
  sampling.max_tokens = max_tokens;
  sampling.stop = options.stop;
  sampling.reasoning_effort = options.reasoning_effort;
  sampling.thinking_tokens = options.thinking_tokens;
  return sampling;
}

}  // namespace kevin
