#pragma once
// The PostgreSQL engine; postgres.cc is the only place that includes pqxx.
//
// Text that PostgreSQL cannot hold (NUL, broken UTF-8) is stored with U+FFFD in its place; bytes stay exact.

#include <memory>
#include <string>

#include "trajectories/engine.h"

namespace kevin {

// "postgresql://..." or "postgres://...".
bool IsPostgresAddress(const std::string& address);

// Without what follows the user's name, for messages. A file's name stays as it is.
std::string WithoutPassword(const std::string& address);

// Throws Error(kBadRequest) when the server turns us away, Error(kBroken) when it cannot be reached.
std::unique_ptr<DatabaseEngine> OpenPostgres(const std::string& address);

}  // namespace kevin
