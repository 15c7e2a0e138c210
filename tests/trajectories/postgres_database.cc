#include "tests/trajectories/postgres_server.h"
#include "tests/trajectories/test_database.h"
#include "trajectories/engine.h"

namespace kevin {

struct TestDatabase::Impl {};

TestDatabase::TestDatabase() : address_(PostgresServer::Get().NewDatabase()) {}
TestDatabase::~TestDatabase() = default;

std::string TestDatabase::name() const { return WithoutPassword(address_); }
Database TestDatabase::Look() const { return Database(address_, OpenPostgres(address_)); }

// The only text of the cases that PostgreSQL cannot hold as it is.
std::string TestDatabase::AsTextIsKept(const std::string& text) {
  std::string kept;
  for (const char c : text) {
    const bool storable = c > 0;
    kept += storable ? std::string(1, c) : std::string("\xEF\xBF\xBD");
  }
  return kept;
}

}  // namespace kevin
