#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>
#include <filesystem>
#include <memory>

#include "agent/events.h"
#include "agent/terminal.h"
#include "env/error.h"
#include "tools/commands.h"
#include "trajectories/engine.h"
#include "trajectories/maintain.h"
#include "trajectories/store.h"

namespace kevin {
namespace {

struct DbOptions {
  std::string database = "kevin.db";
  bool no_backup = false, json = false;
};

struct RecordImportOptions {
  std::vector<std::string> files;
  std::string database = "kevin.db";
  bool json = false;
};

constexpr const char* kDbExamples = R"(Examples:
  kevin db check                    check that kevin.db is intact; reads all of it, changes nothing
  kevin db compact                  give unused space back to the disk
  kevin db migrate                  bring a database of an older format up to date, with a copy of the old one
  kevin db rejudge kevin.db         evaluate again what was judged under rules from before a security fix
  kevin db check --db postgresql://kevin@db/kevin     the same for a server's (compact there: VACUUM ANALYZE))";

constexpr const char* kImportRecordExamples = R"(Examples:
  kevin import-records other.db                      what other.db has, into kevin.db
  kevin import-records night/*.db --db all.db        several into one; all.db is made if it is missing
  kevin import-records night.db --db postgresql://kevin@db/kevin       a file into a server's database
  kevin import-records postgresql://kevin@db/kevin --db copy.db        and out of it

Nothing is doubled: importing a file again changes nothing.)";

std::string Megabytes(int64_t bytes) { return fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6); }

int RunCheck(const DbOptions& options) {
  const auto findings = CheckDatabase(options.database, [&](const std::string& name) {
    if (!options.json) fmt::print(stderr, "checking {} ...\n", name);
  });
  bool all_ok = true;
  for (const DatabaseFinding& f : findings) {
    all_ok &= f.ok;
    if (options.json) {
      Print(stdout, ToLine({{"event", "check"},
                            {"database", WithoutPassword(options.database)},
                            {"name", f.name},
                            {"ok", f.ok},
                            {"found", f.found},
                            {"fix", f.fix.empty() ? Json(nullptr) : Json(f.fix)}}));
    } else {
      fmt::print("{:<4} {:<11} {}\n", f.ok ? "ok" : "BAD", f.name, f.found);
      if (!f.fix.empty()) fmt::print("{:<16} {}\n", "", f.fix);
    }
  }
  return static_cast<int>(all_ok ? ExitCode::kDone : ExitCode::kBadRequest);
}

int RunCompact(const DbOptions& options) {
  const CompactResult r = CompactDatabase(options.database);
  if (options.json) {
    Print(stdout, ToLine({{"event", "compact"},
                          {"database", WithoutPassword(options.database)},
                          {"bytes_before", r.bytes_before},
                          {"bytes_after", r.bytes_after},
                          {"texts", r.texts},
                          {"candidates", r.candidates}}));
  } else {
    fmt::print("{}: {} before, {} now; {} texts and {} kernels without a reference were removed\n",
               WithoutPassword(options.database), Megabytes(r.bytes_before), Megabytes(r.bytes_after),
               r.texts, r.candidates);
  }
  return static_cast<int>(ExitCode::kDone);
}

int RunMigrate(const DbOptions& options) {
  const MigrateResult r = MigrateDatabase(options.database, !options.no_backup);
  if (options.json) {
    Print(stdout, ToLine({{"event", "migrate"},
                          {"database", WithoutPassword(options.database)},
                          {"from", r.from},
                          {"to", r.to},
                          {"backup", r.backup.empty() ? Json(nullptr) : Json(r.backup.string())}}));
  } else if (r.from == r.to) {
    fmt::print("{}: has format {} already\n", WithoutPassword(options.database), r.to);
  } else {
    fmt::print("{}: from format {} to {}{}\n", WithoutPassword(options.database), r.from, r.to,
               r.backup.empty() ? "" : "; the old file is " + r.backup.string());
  }
  return static_cast<int>(ExitCode::kDone);
}

int RunImport(const RecordImportOptions& options) {
  for (const std::string& file : options.files)
    Store::Open(file, OpenMode::kRead);  // fails before anything is written
  Store store = Store::Open(options.database, OpenMode::kCreate);
  for (const std::string& file : options.files) {
    const MergeResult r = store.Import(file);
    if (options.json) {
      Print(stdout, ToLine({{"event", "import"},
                            {"file", WithoutPassword(file)},
                            {"database", WithoutPassword(options.database)},
                            {"runs", r.runs},
                            {"episodes", r.episodes},
                            {"turns", r.turns},
                            {"evaluations", r.evaluations},
                            {"continued", r.continued},
                            {"conflicts", r.conflicts}}));
      continue;
    }
    fmt::print("{}: {} new runs, {} episodes, {} turns, {} evaluations; {} episodes went on there\n",
               WithoutPassword(file), r.runs, r.episodes, r.turns, r.evaluations, r.continued);
    if (!r.conflicts.empty())
      fmt::print(stderr, "{}: {} episodes went on differently in both and stay as they are in {}: {}\n",
                 WithoutPassword(file), r.conflicts.size(), WithoutPassword(options.database),
                 fmt::join(r.conflicts, ", "));
  }
  return static_cast<int>(ExitCode::kDone);
}

void AddPart(CLI::App* parent, const char* name, const char* help, const std::shared_ptr<DbOptions>& options,
             int (*run)(const DbOptions&), Action* action) {
  CLI::App* command = parent->add_subcommand(name, help);
  command->add_option("--db", options->database, "The database")->capture_default_str();
  command->add_flag("--json", options->json, "One JSON object a line");
  if (std::string(name) == "migrate")
    command->add_flag("--no-backup", options->no_backup, "Do not keep a copy of the old file");
  command->callback([options, action, run] { *action = [options, run] { return run(*options); }; });
}

}  // namespace

void AddDbCommand(CLI::App& app, Action* action) {
  auto options = std::make_shared<DbOptions>();
  CLI::App* command = app.add_subcommand("db", "Look after a database: check, compact, migrate, rejudge");
  command->footer(kDbExamples);
  command->require_subcommand(1);
  AddPart(command, "check", "Is everything whole?", options, &RunCheck, action);
  AddPart(command, "compact", "Give unused space back", options, &RunCompact, action);
  AddPart(command, "migrate", "Bring an older format up to date", options, &RunMigrate, action);
  AddRejudgeCommand(*command, action);
}

void AddImportRecordsCommand(CLI::App& app, Action* action) {
  auto options = std::make_shared<RecordImportOptions>();
  CLI::App* command = app.add_subcommand("import-records", "Merge databases, without duplicates");
  command->footer(kImportRecordExamples);
  command->add_option("file", options->files, "Databases to read")->required();
  command->add_option("--db", options->database, "The database to write; made if missing")
      ->capture_default_str();
  command->add_flag("--json", options->json, "One JSON object a line");
  command->callback([options, action] { *action = [options] { return RunImport(*options); }; });
}

}  // namespace kevin
