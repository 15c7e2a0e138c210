#pragma once
// START HERE for remote policies: a Policy that asks a server. OpenAI chat completions (and every server that
// speaks them), OpenAI Responses, Anthropic Messages; token ids and log-probabilities where the server has
// them.
//
// One Complete sends one request, and again (with growing pauses, or as long as the server asks) when the
// server is overloaded, does not answer or breaks off. It does not send again what a server refuses, nor past
// a budget. Every request is reported through Request::on_attempt, because every one may cost money.
//
// Errors of Complete: BudgetReached; PromptTooLong; Error kBadRequest when the request itself is refused
// (key, model, a parameter); Error kBroken when no answer can be had. Once a key or an account is refused, or
// the server counts as dead, it is PolicyGone, and later calls fail at once.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "policies/policy.h"
#include "policies/remote/endpoint.h"
#include "policies/remote/http_client.h"
#include "policies/remote/limits.h"
#include "policies/remote/prices.h"

namespace kevin {

enum class TokenMode {
  kNone,
  kChat,         // chat completions with logprobs, and return_token_ids (vLLM, SGLang)
  kCompletions,  // the server's /tokenize makes the prompt's ids, /completions takes them (vLLM)
  kGenerate      // the same with SGLang's /generate
};

struct RemoteOptions {
  remote::Endpoint endpoint;
  std::string key;  // empty: none is sent
  std::string ca_file;
  remote::HttpLimits http;
  int attempts = 9;             // of one Complete
  double first_delay_s = 0.5;   // before the second attempt; then it doubles
  double longest_wait_s = 600;  // a server that asks for more than this is given up
  remote::Rates rates;
  remote::OutageOptions outage;
  remote::BudgetOptions budget;
  std::shared_ptr<remote::Budget> shared_budget;  // with the same limits, of several policies; null: its own
  remote::PriceTable prices;
  TokenMode tokens = TokenMode::kNone;
  bool stream = true;
  bool record = false;                   // attempts carry raw responses
  std::filesystem::path response_cache;  // empty: none
  std::string extra;                     // a JSON object laid over every body; empty: none
};

class RemotePolicy : public Policy {
 public:
  // Throws Error(kBadRequest) when the format cannot say what `sampling` asks for. Nothing is sent.
  virtual void RequireSampling(const Sampling& sampling) const = 0;
  // How many tokens prompt and answer may have together: from the price table, else from the server's list of
  // models when it is not the vendor's own. nullopt: neither knows.
  virtual std::optional<int64_t> FindWindow() = 0;
  virtual const remote::Price* FindPrice() const = 0;  // null: unknown
};

// Throws Error(kBadRequest) when the options contradict each other: a budget in dollars without a price,
// extra fields that are no JSON object. Nothing is sent.
std::unique_ptr<RemotePolicy> MakeRemotePolicy(RemoteOptions options);

}  // namespace kevin
