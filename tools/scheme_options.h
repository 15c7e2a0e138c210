#pragma once
// The options that say how rewards are shared out over turns; `attribute` and `export` have them.

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
  std::optional<double> gamma, noise, cap, correct, speedup, format, compiled, log2_speedup, faster, wrong,
      strong;
};

// `options` must live as long as `command`.
void AddSchemeOptions(CLI::App* command, SchemeOptions* options);

// Throws Error(kBadRequest) for unknown names.
Scheme SchemeFrom(const SchemeOptions& options);

}  // namespace kevin
