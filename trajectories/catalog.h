#pragma once
// Tables and columns, as schema.sql defines them and as a database of either engine has them; and reading more rows
// than fit in memory.

#include <string>
#include <vector>

#include "trajectories/database.h"

namespace kevin {

// In the order of schema.sql: a table refers only to itself and to those before it.
const std::vector<std::string>& SchemaTables();

enum class ColumnType { kText, kInteger, kReal, kBytes };

struct ColumnInfo {
  std::string name;
  ColumnType type = ColumnType::kText;
};

// None where there is no such table.
std::vector<ColumnInfo> ColumnsOf(Database& database, const std::string& table);

struct Reference {
  std::string table, target;
  std::string column;    // if it is one column, else empty
  std::string dangling;  // a query: the number of rows whose target is missing
};
std::vector<Reference> ReferencesOf(Database& database);

// "\"a\", \"b\""
std::string QuotedNames(const std::vector<ColumnInfo>& columns);

// A query for the hashes of all texts that turns were sent (turns.messages), one row a message.
std::string MessageHashes(const Database& database);

// A consistent view: all reads while this lives see the database as it was at one moment.
class Snapshot {
 public:
  explicit Snapshot(Database& database);
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;
  ~Snapshot();

 private:
  Database& database_;
};

// The rows of a SELECT one after the other; a server sends some hundred at a time. Lives within a transaction
// or a Snapshot; one at a time per Database.
class RowStream {
 public:
  RowStream(Database& database, const std::string& select);
  RowStream(const RowStream&) = delete;
  RowStream& operator=(const RowStream&) = delete;
  ~RowStream();

  bool Next();
  const Statement& row() const { return statement_; }

 private:
  Database& database_;
  const bool is_cursor_;
  Statement statement_;
};

}  // namespace kevin
