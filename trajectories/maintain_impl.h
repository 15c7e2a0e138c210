#pragma once
// What the sources behind maintain.h share.

#include <cstdint>
#include <filesystem>
#include <string>

#include "trajectories/database.h"

namespace kevin {

// Refuses, as Store::Open does, what is no database of ours.
Database OpenForMaintenance(const std::filesystem::path& path, Database::Access access);

int64_t FormatOf(Database& database);

// Rows of `table` (blobs or candidates) that nothing refers to.
int64_t CountUnused(Database& database, const std::string& table);
int64_t DeleteUnused(Database& database, const std::string& table);  // within a transaction; how many

}  // namespace kevin
