#pragma once
// What commands that read records share: the run they mean, and the options of a scheme (returns, advantages).

#include <optional>
#include <string>
#include <vector>

#include "agent/attribution/attribution.h"
#include "trajectories/store.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace kevin {

// The full id of the run that `prefix`, its id or a unique beginning of it, names in `runs`. "latest" names
// the last one. Unknown or ambiguous: Error(kBadRequest) that names the nearest.
std::string FindRunId(const std::vector<RunFigures>& runs, const std::string& prefix,
                      const std::string& database);

// --accept-old-verdicts and --accept-shared-gpu: keep verdicts that trajectories/doubtful_verdicts.h leaves out. `group`:
// the options' heading in --help; empty: the usual one.
void AddAcceptedVerdicts(CLI::App* command, AcceptedVerdicts* accept, const std::string& group = "");

struct SchemeOptions {
  std::string scheme = "kevin";
  std::string score, returns, advantage;  // parts in place of the scheme's; empty: its own
  std::optional<double> tags, similarity, staged, overlong, overlong_cache;  // shaping terms
  std::optional<double> gamma, noise, cap, correct, speedup, format, compiled, log2_speedup, faster, wrong;
  std::optional<double> strong;  // removed: giving it is an error
};

// `options` must live as long as `command`.
void AddSchemeOptions(CLI::App* command, SchemeOptions* options);

// Throws Error(kBadRequest) for unknown names, and for removed ones with a replacement.
Scheme SchemeFrom(const SchemeOptions& options);

}  // namespace kevin
