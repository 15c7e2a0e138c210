#pragma once
// The options of commands that ask a language model, into PolicyOptions.

#include <string>

#include "agent/policy_options.h"

namespace CLI {
class App;
}

namespace kevin {

// kOfCommand: the command has limits of its own on money, tokens and time.
enum class BudgetScope { kOfPolicy, kOfCommand };

// Takes the command's parse_complete_callback for first_given.
void AddPolicyOptions(CLI::App* command, PolicyOptions* options, BudgetScope budget = BudgetScope::kOfPolicy);

// The check of --tokens, a budget in every command: why `text` is not one, or "". The modes of --token-ids, which
// --tokens once took, are answered with that option.
std::string TokenBudgetError(const std::string& text);

}  // namespace kevin
