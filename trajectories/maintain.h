#pragma once
// Looking after a SQLite database: is it whole, what takes up space, which format has it.

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace kevin {

struct DatabaseFinding {
  std::string name;  // "file", "references", "texts", "verdicts", "format"
  bool ok = true;
  std::string found;  // a sentence
  std::string fix;    // the next step; empty when ok
};

// Reads everything, changes nothing. `on_progress` gets the name of each check before it runs. Throws as
// Store::Open does when the file is no database of ours.
std::vector<DatabaseFinding> CheckDatabase(const std::filesystem::path& path,
                                           const std::function<void(const std::string&)>& on_progress);

struct CompactResult {
  int64_t bytes_before = 0, bytes_after = 0;
  int64_t texts = 0, candidates = 0;  // that nothing referred to, deleted
};
// Deletes what nothing refers to and gives free pages back to the disk. Needs about as much free space as the
// file has bytes. Error(kBroken) while another process writes.
CompactResult CompactDatabase(const std::filesystem::path& path);

struct MigrateResult {
  int64_t from = 0, to = 0;      // formats; equal: nothing was done
  std::filesystem::path backup;  // a copy of the old file; empty: none was made
};
// Brings the file to this program's format. With `with_backup` the old file is first copied to FILE.vN.
MigrateResult MigrateDatabase(const std::filesystem::path& path, bool with_backup);

}  // namespace kevin
