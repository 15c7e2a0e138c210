#pragma once
// The options of an attribution scheme (agent/attribution/attribution.h), for `attribute`, `export` and `train`.

#include <optional>
#include <string>

#include "agent/attribution/attribution.h"

namespace CLI {
class App;
}

namespace kevin {

struct SchemeOptions {
  std::string scheme = "kevin";
  std::string score, returns, advantage;  // parts in place of the scheme's; empty: its own
  std::optional<double> gamma, noise, cap, correct, speedup, format, compiled, log2_speedup, faster, wrong;
  std::optional<double> strong;  // removed: giving it is an error
};

// `options` must live as long as `command`.
void AddSchemeOptions(CLI::App* command, SchemeOptions* options);

// Throws Error(kBadRequest) for unknown names, and for removed ones with a replacement.
Scheme SchemeFrom(const SchemeOptions& options);

}  // namespace kevin
