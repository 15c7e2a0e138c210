// The program `kevin`: commands, and the one place where an Error is caught.

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <csignal>
#include <cstdio>
#include <new>
#include <sstream>

#include "agent/terminal.h"
#include "env/error.h"
#include "tools/command_line.h"
#include "tools/commands.h"

namespace {

constexpr const char* kExamples = R"(Examples:
  kevin optimize net.py:Block -o block.py           a faster drop-in for your own PyTorch module
  kevin run --problem level1/19 --turns 8           eight turns on one problem, live
  kevin collect --suite level1 --episodes 16        overnight, many at once, resumable
  kevin bench kernel.cpp --problem level1/19        judge a kernel of your own (kernel.cu: on the GPU)
  kevin problems                                    what there is to make faster
  kevin show                                        the episodes in kevin.db
  kevin export 01K9J4 --best -o kernel.cpp          take the best kernel away
  kevin report --html report.html                   what was solved and how fast, with intervals
  kevin doctor                                      what this machine has and lacks

kevin COMMAND --help lists the options of a command, with examples.)";

int Fail(kevin::ExitCode code, const std::string& what, const std::string& next_step) {
  std::fflush(stdout);
  kevin::PrintFormat(stderr, "kevin: {}\n", kevin::Indented(what));
  if (!next_step.empty()) kevin::PrintFormat(stderr, "  next: {}\n", kevin::Indented(next_step));
  return static_cast<int>(code);
}

int Main(int argc, char** argv) {
  CLI::App app{"Makes GPU and CPU kernels faster by trying: write, compile, verify, measure, reflect.",
               "kevin"};
  app.set_version_flag("--version", "kevin " KEVIN_VERSION, "Print the version");
  app.footer(kExamples);
  app.require_subcommand(0, 1);
  kevin::Action action;
  kevin::AddOptimizeCommand(app, &action);
  kevin::AddRunCommand(app, &action);
  kevin::AddPolicyCommand(app, &action);
  kevin::AddServeModelCommand(app, &action);
  kevin::AddCollectCommand(app, &action);
  kevin::AddEvalCommand(app, &action);
  kevin::AddTrainCommand(app, &action);
  kevin::AddBenchCommand(app, &action);
  kevin::AddProblemsCommand(app, &action);
  kevin::AddImportCommand(app, &action);
  kevin::AddBaselineCommand(app, &action);
  kevin::AddShowCommand(app, &action);
  kevin::AddExportCommand(app, &action);
  kevin::AddReportCommand(app, &action);
  kevin::AddAttributeCommand(app, &action);
  kevin::AddImportRecordsCommand(app, &action);
  kevin::AddDbCommand(app, &action);
  kevin::AddDoctorCommand(app, &action);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) throw kevin::UsageError(app, error);
    std::ostringstream out, err;
    app.exit(error, out, err);  // the help or the version
    kevin::Print(stdout, out.str());
    return 0;
  }
  if (action) {
    const int exit_code = action();
    kevin::RequireOutputWritten();
    return exit_code;
  }
  kevin::Print(stderr, app.help());
  return static_cast<int>(kevin::ExitCode::kBadRequest);
}

}  // namespace

int main(int argc, char** argv) {
  // A child or a reader that ends early shows as a failed write where it happens.
  std::signal(SIGPIPE, SIG_IGN);
  try {
    return Main(argc, argv);
  } catch (const kevin::Error& error) {
    return Fail(error.code(), error.what(), error.next_step());
  } catch (const std::bad_alloc&) {
    return Fail(kevin::ExitCode::kBroken, "out of memory", "close other programs or use --size small");
  } catch (const std::exception& error) {
    return Fail(kevin::ExitCode::kBroken, error.what(), "");
  }
}
