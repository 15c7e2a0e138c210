#pragma once
// Policies on a command line: their options, `--policy NAME` to a policy, and the options that a run stores so
// that every process samples in the same way.

#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "agent/policy_options.h"
#include "policies/local/serve/local_policy.h"
#include "policies/policy.h"
#include "trajectories/store.h"

namespace CLI {
class App;
}

namespace kevin {

struct ChosenPolicy {
  std::unique_ptr<Policy> policy;
  std::optional<int> turns;  // the number of its answers; none: no limit
  // For EpisodeOptions: sampling, and the longest prompt in tokens.
  Sampling sampling = {};
  int64_t prompt_token_budget = 8192;
  bool asks_for_diff = false;  // --edit-format diff
};

// "search", "replay:EPISODE" with an episode in `store`, or a model's spec (remote::ParseSpec,
// local::LocalSpec). Throws Error(kBadRequest) for any other name, and for options that the policy does
// not take. Spends no money; asks a server without prices for the length of its window. A local model is loaded
// here, with its progress on stderr, and lives as long as the calling thread.
ChosenPolicy MakePolicy(const std::string& name, Store& store, const PolicyOptions& options = {});
// The same without a store: any but replay.
ChosenPolicy MakePolicy(const std::string& name, const PolicyOptions& options);

// --- The options ---

// kOfCommand: the command has its own limits on money, tokens and time.
enum class BudgetScope { kOfPolicy, kOfCommand };

// The check of --tokens, a budget in every command: why `text` is not one, or "". The modes of --token-ids, which
// --tokens once took, are answered with that option.
std::string TokenBudgetError(const std::string& text);

// Uses the command's parse_complete_callback to set first_given.
void AddPolicyOptions(CLI::App* command, PolicyOptions* options, BudgetScope budget = BudgetScope::kOfPolicy);

// --- The options that decide what a model answers. A run stores them as a JSON object, so that every process
// samples in the same way. Server, key, prices, rates and records belong to each process. ---

// The given ones, by their names on the command line without dashes: {"temperature": 0.7}.
std::string SamplingJson(const PolicyOptions& options);

// The difference of two: "--temperature is 0.7 there and 0.9 here"; empty: none.
std::string SamplingDifference(const std::string& there, const std::string& here);

// `options` completed by `stored`. Throws Error(kBadRequest) where they contradict each other; `owner`, for the
// message, is the owner of `stored`: "run 01K9J4".
PolicyOptions WithStoredSampling(PolicyOptions options, const std::string& stored, const std::string& owner);

// --- A local model ---

// kevin-model. Throws Error(kMachine) where it was not built.
std::filesystem::path ModelProgram();

// Loads the model, with its progress on stderr. Throws Error(kBadRequest) also for the options of
// remote servers (--base-url, --key-file, --token-ids).
std::unique_ptr<local::LocalPolicy> StartLocalPolicy(const std::string& spec, const PolicyOptions& options);

}  // namespace kevin
