#include "policies/local/serve/model_command.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <new>

#include "policies/local/serve/model_options.h"

namespace kevin {
namespace {

int Fail(ExitCode code, const std::string& what, const std::string& next_step) {
  fmt::print(stderr, "kevin-model: {}\n", what);
  if (!next_step.empty()) fmt::print(stderr, "  next: {}\n", next_step);
  return static_cast<int>(code);
}

}  // namespace

int ModelMain(int argc, char** argv, const local::ModelReader& read, const local::RunnerMaker& make) {
  CLI::App app{"Serves a language model from its folder, as OpenAI's API has it.", "kevin-model"};
  local::ProgramOptions options;
  AddModelOptions(&app, &options);
  app.add_flag("--private-socket", options.private_socket, "A Unix socket in a private folder");
  app.add_option("--ready-fd", options.ready_fd, "Gets a JSON line when requests are taken")
      ->capture_default_str();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? 0 : static_cast<int>(ExitCode::kBadRequest);
  }
  try {
    return local::RunModelProgram(options, read, make);
  } catch (const Error& error) {
    return Fail(error.code(), error.what(), error.next_step());
  } catch (const std::bad_alloc&) {
    return Fail(ExitCode::kMachine, "out of memory",
                "give less context (--max-context), or --quantization int8");
  } catch (const std::exception& error) {
    return Fail(ExitCode::kBroken, error.what(), "");
  }
}

}  // namespace kevin
