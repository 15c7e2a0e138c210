#pragma once
// The subcommands of `kevin`. Each Add...Command registers its options on `app` and, when its subcommand is
// given, sets *action, which main runs inside its one try/catch. An action returns an ExitCode value.

#include <functional>
#include <string>

namespace CLI {
class App;
}

namespace kevin {

using Action = std::function<int()>;

void AddRunCommand(CLI::App& app, Action* action);         // one episode, live
void AddPolicyCommand(CLI::App& app, Action* action);      // check a language model's server
void AddServeModelCommand(CLI::App& app, Action* action);  // a language model from its folder
void AddCollectCommand(CLI::App& app, Action* action);     // many episodes, unattended
void AddEvalCommand(CLI::App& app, Action* action);        // the same, to judge a policy
void AddTrainCommand(CLI::App& app, Action* action);       // a local model, on the records
void AddBenchCommand(CLI::App& app, Action* action);       // judge a kernel file, or two against each other
void AddProblemsCommand(CLI::App& app, Action* action);    // list, show, admit
void AddOptimizeCommand(CLI::App& app, Action* action);    // from a module to a drop-in
void AddImportCommand(CLI::App& app, Action* action);      // problems from PyTorch modules
void AddBaselineCommand(CLI::App& app, Action* action);    // measure and store torch.compile beside eager
void AddDoctorCommand(CLI::App& app, Action* action);      // what this machine has
void AddShowCommand(CLI::App& app, Action* action);        // episodes and turns from the database
void AddExportCommand(CLI::App& app, Action* action);      // a kernel out of the database
void AddReportCommand(CLI::App& app, Action* action);      // what was solved, how fast, at what cost
void AddDbCommand(CLI::App& app, Action* action);          // check, compact, migrate, rejudge
void AddRejudgeCommand(CLI::App& app, Action* action);     // kevin db rejudge; `app` is db's
void AddImportRecordsCommand(CLI::App& app, Action* action);  // merge databases
void AddAttributeCommand(CLI::App& app, Action* action);      // returns and advantages of turns

// Prints `kevin report RUN`; `kevin eval` ends with it.
int ReportRun(const std::string& run, const std::string& database, bool json);

}  // namespace kevin
