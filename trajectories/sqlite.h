#pragma once
// The SQLite engine; sqlite.cc is the only place that includes sqlite3.h.

#include <filesystem>
#include <memory>

#include "trajectories/database.h"
#include "trajectories/engine.h"

namespace kevin {

// For ATTACH: the file, never to be written.
std::string ReadOnlyUri(const std::filesystem::path& path);

// Throws Error as database.h says. A writer waits up to `busy_timeout_ms` for others.
std::unique_ptr<DatabaseEngine> OpenSqlite(std::filesystem::path path, Database::Access access,
                                           int busy_timeout_ms);

}  // namespace kevin
