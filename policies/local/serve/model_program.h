#pragma once
// What the program `kevin-model` does: loads a model and serves it until it is told to end.

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "policies/local/serve/make_runner.h"
#include "policies/local/serve/program_options.h"
#include "policies/local/serve/served_model.h"

namespace kevin::local {

// All that is in the folder beside the weights.
using ModelReader = std::function<ServedModel(const std::filesystem::path& folder)>;

// Ends on SIGINT and SIGTERM (returns 0; while it loads at once, with ExitCode::kInterrupted), or throws
// Error with what the model died of. Progress goes to stderr, a line each.
int RunModelProgram(const ProgramOptions& options, const ModelReader& read, const RunnerMaker& make);

}  // namespace kevin::local
