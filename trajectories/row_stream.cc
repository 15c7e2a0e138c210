#include "trajectories/row_stream.h"

#include "env/error.h"

namespace kevin {
namespace {

// A server would hand over the whole result at once.
Statement OpenCursor(Database& database, const std::string& select) {
  if (database.dialect() == SqlDialect::kSqlite) return database.Prepare(select);
  database.Execute(("DECLARE row_stream NO SCROLL CURSOR FOR " + select).c_str());
  return database.Prepare("FETCH 500 FROM row_stream");
}

}  // namespace

Snapshot::Snapshot(Database& database) : database_(database) {
  database_.Execute(database.dialect() == SqlDialect::kSqlite
                        ? "BEGIN"
                        : "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY");
}

Snapshot::~Snapshot() {
  try {
    database_.Execute("ROLLBACK");
  } catch (const Error&) {  // it only read; the error that brought us here is the one to report
  }
}

RowStream::RowStream(Database& database, const std::string& select)
    : database_(database),
      is_cursor_(database.dialect() == SqlDialect::kPostgres),
      statement_(OpenCursor(database, select)) {}

RowStream::~RowStream() {
  if (!is_cursor_) return;
  try {
    database_.Execute("CLOSE row_stream");
  } catch (const Error&) {  // the transaction failed, and the cursor went with it
  }
}

bool RowStream::Next() {
  if (statement_.Step()) return true;
  if (!is_cursor_) return false;
  statement_.Reset();
  return statement_.Step();
}

}  // namespace kevin
