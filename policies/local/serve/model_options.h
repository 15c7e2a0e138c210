#pragma once
// The options that `kevin serve-model` and `kevin-model` have in common.

#include "policies/local/serve/program_options.h"

namespace CLI {
class App;
}

namespace kevin {

void AddModelOptions(CLI::App* command, local::ProgramOptions* options);

}  // namespace kevin
