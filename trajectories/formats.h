#pragma once
// The format of the database and databases of older formats. schema_text.h has schema.sql itself.
//
// A SQLite file is upgraded when it is opened for writing, after a copy of it was made beside it. A server's tables
// are upgraded only by `kevin db migrate`. Opening for reading never changes a database: temporary views of the
// connection add the newer columns.

#include <cstdint>
#include <filesystem>
#include <string>

#include "trajectories/database.h"

namespace kevin {

constexpr int kApplicationId = 1264940654;  // "Kevn"; PRAGMA application_id
constexpr int kSchemaVersion = 10;          // PRAGMA user_version

int64_t FormatOf(Database& database);

// In one transaction; nothing happens to a file that is up to date. With `with_backup` a copy of the old file is
// made first; returns its path (FILE.vN), empty if none was made. Throws Error(kBroken) when the disk is too full.
std::filesystem::path UpgradeFile(Database& database, bool with_backup);

// The same for a server's tables, without a backup. Throws Error(kBadRequest) while a worker holds a lease.
void UpgradeServer(Database& database);

// Throws Error(kBroken) unless `free_bytes` suffice to upgrade a file of `bytes`: as much again, and the copy.
void RequireSpaceForUpgrade(const std::filesystem::path& file, int64_t bytes, int64_t free_bytes,
                            bool with_backup);

// For a database that is only read. old_formats.cc.
void ReadAsNewest(Database& database, int64_t format);

// Fills the columns of format 4 in rows that an older format wrote; a repetition changes nothing. Within a transaction.
// outcome_fields.cc.
void MoveOutcomeFields(Database& database);

// The condition on rows of table turns of formats up to 7 that were sampled without top_k and min_p. `schema`: of the table
// episodes, with its dot; may be empty.
std::string SampledUnfiltered(const std::string& schema);

}  // namespace kevin
