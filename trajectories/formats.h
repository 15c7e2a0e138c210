#pragma once
// The formats of the database: schema.sql as SQLite and PostgreSQL read it, and databases of older formats.
//
// A SQLite file is upgraded when it is opened for writing, after a copy of it was made beside it. A server's tables
// are upgraded only by `kevin db migrate`. Opening for reading never changes a database: temporary views of the
// connection add the newer columns.

#include <cstdint>
#include <filesystem>
#include <string>

#include "trajectories/database.h"

namespace kevin {

extern const char kSchema[];                // the whole of schema.sql, zero-terminated
constexpr int kApplicationId = 1264940654;  // "Kevn"; PRAGMA application_id
constexpr int kSchemaVersion = 10;          // PRAGMA user_version

// schema.sql for PostgreSQL: the same tables and views under the same names, made from the same text. STRICT and PRAGMA
// go, INTEGER is BIGINT, REAL is DOUBLE PRECISION, ANY and BLOB are BYTEA, text of tables is ordered by its bytes; a view
// that takes JSON apart has a text of its own. Table kevin_format holds the format's number.
std::string PostgresSchema();

int64_t FormatOf(Database& database);

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

// Fills the columns of format 4 in rows that an older format wrote; a repetition changes nothing. Within a transaction.
void MoveOutcomeFields(Database& database);

}  // namespace kevin
