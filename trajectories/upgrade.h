#pragma once
// Databases of older formats: brought up to schema.sql for writing, or read as if they had been.

#include "trajectories/database.h"

namespace kevin {

// In one transaction; nothing happens to a database that is up to date. Rows are not touched.
void UpgradeToNewest(Database& database);

// For a database that may only be read: temporary views of this connection add the newer columns, as unknown.
void ReadAsNewest(Database& database);

}  // namespace kevin
