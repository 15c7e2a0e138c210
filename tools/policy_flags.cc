#include "tools/policy_flags.h"

#include <CLI/CLI.hpp>
#include <algorithm>

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
  command->add_option("--budget-tokens,--tokens", o->budget_tokens, "... after this many tokens, in and out")
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

}  // namespace kevin
