#pragma once
// The options of commands that ask a language model, into PolicyOptions.

#include "agent/policy_options.h"

namespace CLI {
class App;
}

namespace kevin {

// kOfCommand: the command has limits of its own on money, tokens (--tokens too) and time.
enum class BudgetScope { kOfPolicy, kOfCommand };

// Takes the command's parse_complete_callback for first_given.
void AddPolicyOptions(CLI::App* command, PolicyOptions* options, BudgetScope budget = BudgetScope::kOfPolicy);

}  // namespace kevin
