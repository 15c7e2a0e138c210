#pragma once
// Databases of older formats: upgraded to schema.sql for writing, or read as they are.
//
// A SQLite file is upgraded when it is opened for writing, after a copy of it was made beside it. A server's tables
// are upgraded only by `kevin db migrate`. Opening for reading never changes a database: temporary views of the
// connection add the newer columns.

#include <cstdint>
#include <filesystem>

#include "trajectories/database.h"

namespace kevin {

// In one transaction; nothing happens to a file that is up to date. With `with_backup` a copy of the old file is
// made first; returns its path (FILE.vN), empty if none was made. Throws Error(kBroken) when the disk is too full.
std::filesystem::path UpgradeFile(Database& database, bool with_backup);

// The same for a server's tables, without a backup. Throws Error(kBadRequest) while a worker holds a lease.
void UpgradeServer(Database& database);

// Throws Error(kBroken) unless `free_bytes` suffice to upgrade a file of `bytes`: as much again, and the copy.
void RequireSpaceForUpgrade(const std::filesystem::path& file, int64_t bytes, int64_t free_bytes,
                            bool with_backup);

// For a database that is only read.
void ReadAsNewest(Database& database, int64_t format);

// Fills the columns of format 4 in rows that an older format wrote. Within a transaction.
void MoveOutcomeFields(Database& database);

}  // namespace kevin
