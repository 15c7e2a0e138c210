#pragma once
// Maintenance: check, compact and migrate a database. `database` is a SQLite file or a server's address. All throw as
// Store::Open does when it is not a database of Kevin's.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace kevin {

struct DatabaseFinding {
  std::string name;  // "file" or "server", "references", "texts", "verdicts", "unused", "rows", "format"
  bool ok = true;
  std::string found;  // a sentence
  std::string fix;    // the next step; mostly empty when ok
};

// Reads everything, changes nothing. `on_progress` gets the name of each check before it runs.
std::vector<DatabaseFinding> CheckDatabase(const std::filesystem::path& database,
                                           const std::function<void(const std::string&)>& on_progress);

struct CompactResult {
  int64_t bytes_before = 0, bytes_after = 0;
  int64_t texts = 0, candidates = 0;  // that nothing referred to, deleted
};
// Deletes what nothing refers to. A file shrinks: needs about as much free space as it has bytes, and
// Error(kBroken) while another process writes. A server keeps the space for what comes next (VACUUM ANALYZE),
// and others go on writing.
CompactResult CompactDatabase(const std::filesystem::path& database);

struct MigrateResult {
  int64_t from = 0, to = 0;      // formats; equal: nothing was done
  std::filesystem::path backup;  // a copy of the old file; empty: none was made
};
// Upgrades a database to this program's format. With `with_backup` a file is first copied to FILE.vN. A server's
// tables are not copied; Error(kBadRequest) while workers hold leases.
MigrateResult MigrateDatabase(const std::filesystem::path& database, bool with_backup);

}  // namespace kevin
