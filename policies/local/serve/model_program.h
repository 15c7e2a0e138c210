#pragma once
// What the program `kevin-model` does: loads a model and serves it until it is told to end.

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "policies/local/serve/http_server.h"
#include "policies/local/serve/make_runner.h"
#include "policies/local/serve/served_model.h"

namespace kevin::local {

struct ProgramOptions {
  RunnerOptions runner;
  HttpServerOptions http;
  std::string name;             // of the model; empty: the folder's
  bool private_socket = false;  // a Unix socket in a folder of its own, both removed at the end
  int ready_fd = 1;             // gets one JSON line when requests are taken, see ModelProcess
  uint64_t seed = 0;            // of requests that have none
};

// All that is in the folder beside the weights.
using ModelReader = std::function<ServedModel(const std::filesystem::path& folder)>;

// Ends on SIGINT and SIGTERM (returns 0), or throws Error with what the model died of. Progress goes to
// stderr, a line each.
int RunModelProgram(const ProgramOptions& options, const ModelReader& read, const RunnerMaker& make);

}  // namespace kevin::local
