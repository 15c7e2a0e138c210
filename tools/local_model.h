#pragma once
// `local:DIR` on a command line.

#include <filesystem>
#include <memory>
#include <string>

#include "agent/policy_options.h"
#include "policies/local/serve/local_policy.h"

namespace kevin {

// The program, where it was built. Throws Error(kMachine) where it is not.
std::filesystem::path ModelProgram();

// Loads the model, with its progress on stderr. Throws Error(kBadRequest) also for options that are for
// servers of others (--base-url, --key-file, --token-ids).
std::unique_ptr<local::LocalPolicy> StartLocalPolicy(const std::string& spec, const PolicyOptions& options);

}  // namespace kevin
