#pragma once
// Imported problems are private: what a remote model gets of them is said first, and agreed to once for each
// destination. Options --yes and --no-source of `run`, `collect`, `eval` and `optimize`.

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "agent/policy_options.h"
#include "env/problem/problem.h"
#include "trajectories/records.h"

namespace CLI {
class App;
}

namespace kevin {

struct PrivacyOptions {
  bool yes = false;        // agreed, without a question
  bool no_source = false;  // the module's text stays here; the graph that was traced is sent
};

void AddPrivacyOptions(CLI::App* command, PrivacyOptions* options);

// Whether it was imported from a user's module.
bool IsPrivate(const Problem& problem);

// The same of a problem in a database, by its text: such records may hold what another user imported.
bool IsPrivate(const ProblemRecord& problem);

// What --memory leaves out for these policies: private problems, where a policy's server is not on this machine and was not
// agreed to (by --yes, or earlier for that destination). --no-source is no agreement for the problems of others. Empty where
// nothing is left out. Ask after RequireAgreement.
std::function<bool(const ProblemRecord&)> LeftOutOfMemory(const std::vector<std::string>& policies,
                                                          const PolicyOptions& options,
                                                          const PrivacyOptions& privacy);

// "memory FILE: 12 measured problems, 2 private ones left out (--yes sends them too)"
std::string MemoryLine(const std::string& database, size_t problems, size_t left_out);

// Before anything is sent. With no_source the sources are removed from the problems. A policy on this machine (search,
// local:, replay:, a server on a loopback address or a Unix socket) gets everything without a word. For another one, once for
// each destination: says what is sent to whom, and asks on a terminal. The answer is kept in AgreedDestinations().
// Throws Error(kBadRequest) where there is nobody to ask and neither option was given, and after a no.
void RequireAgreement(const std::vector<std::string>& policies, const PolicyOptions& options,
                      const std::vector<Problem*>& problems, const PrivacyOptions& privacy);

// $XDG_DATA_HOME/kevin/agreed-destinations: a base URL a line.
std::filesystem::path AgreedDestinations();

// Whether a server of this base URL runs on this machine.
bool IsOnThisMachine(const std::string& base_url);

}  // namespace kevin
