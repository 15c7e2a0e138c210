#include "tools/local_model.h"

#include <fmt/format.h>

#include "agent/machine.h"
#include "agent/terminal.h"
#include "env/error.h"
#include "env/process/spawn.h"

namespace kevin {
namespace {

void RefuseServerOptions(const PolicyOptions& options) {
  const std::pair<const char*, bool> given[] = {{"--base-url", !options.base_url.empty()},
                                                {"--key-file", !options.key_file.empty()},
                                                {"--key-variable", !options.key_variable.empty()},
                                                {"--ca-file", !options.ca_file.empty()},
                                                {"--token-ids", options.token_ids != "off"}};
  for (const auto& [name, is_given] : given) {
    if (!is_given) continue;
    throw Error(ExitCode::kBadRequest,
                fmt::format("{} is for servers of others; local:DIR starts its own", name),
                "leave it out, or use kevin serve-model and --policy openai:NAME --base-url ...");
  }
}

// What of the options holds for any server; where it is comes later.
RemoteOptions ClientOptions(const PolicyOptions& options) {
  return RemoteOptionsFor("openai:local@unix:/later", options);
}

}  // namespace

std::filesystem::path ModelProgram() { return RequireProgram(ProgramDirectory(), "kevin-model"); }

std::unique_ptr<local::LocalPolicy> StartLocalPolicy(const std::string& spec, const PolicyOptions& options) {
  RefuseServerOptions(options);
  const local::LocalSpec local = local::ParseLocalSpec(spec);
  const RemoteOptions client = ClientOptions(options);
  Progress progress(stderr);
  progress.Phase(fmt::format("starting {}", local.Text()));
  auto policy = std::make_unique<local::LocalPolicy>(
      local, ModelProgram(), client, [&progress](const std::string& line) { progress.Line(line); });
  progress.Phase("");
  return policy;
}

}  // namespace kevin
