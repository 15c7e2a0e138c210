#include "agent/policy_options.h"

#include <fmt/format.h>

#include <algorithm>

#include "env/error.h"

namespace kevin {
namespace {

constexpr int kDefaultAnswer = 16384;
constexpr int64_t kDefaultWindow = 32768;
constexpr int64_t kLeastPrompt = 1024;

TokenMode TokenModeOf(const std::string& name) {
  if (name == "chat") return TokenMode::kChat;
  if (name == "completions") return TokenMode::kCompletions;
  return name == "generate" ? TokenMode::kGenerate : TokenMode::kNone;
}

}  // namespace

RemoteOptions RemoteOptionsFor(const std::string& spec, const PolicyOptions& o) {
  RemoteOptions remote;
  remote.endpoint = remote::ParseSpec(spec, o.base_url);
  if (!o.prices.empty()) remote.prices = remote::PriceTable::Read(o.prices);
  remote.key = remote::FindKey(remote.endpoint, o.key_file, o.key_variable);
  remote.ca_file = o.ca_file;
  remote.http.total_s = o.timeout_s;
  remote.http.stall_s = o.no_stream ? o.timeout_s : o.stall_s;  // a whole answer comes at its end
  remote.attempts = o.retries + 1;
  remote.rates = {o.requests_per_minute, o.tokens_per_minute, o.concurrent};
  remote.budget = {o.budget_usd, o.budget_seconds, o.budget_tokens};
  remote.shared_budget = o.shared_budget;
  remote.token_ids = TokenModeOf(o.token_ids);
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
              "give a smaller --max-tokens, or the model's real window with --context");
}

Sampling SamplingFor(const PolicyOptions& options, int max_tokens) {
  Sampling sampling;
  sampling.temperature = options.temperature;
  sampling.top_p = options.top_p;
  sampling.min_p = options.min_p;
  sampling.top_k = options.top_k;
  sampling.max_tokens = max_tokens;
  sampling.stop = options.stop;
  sampling.reasoning_effort = options.reasoning_effort;
  sampling.thinking_tokens = options.thinking_tokens;
  return sampling;
}

}  // namespace kevin
