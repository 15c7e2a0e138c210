#pragma once
// What tables and columns there are, by the document (schema.sql) and in a database of either engine.

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
  std::string dangling;  // a query: how many rows refer to what is not there
};
std::vector<Reference> ReferencesOf(Database& database);

// "\"a\", \"b\""
std::string QuotedNames(const std::vector<ColumnInfo>& columns);

// A query for the hashes of all texts that turns were sent (turns.messages), one row a message.
std::string MessageHashes(const Database& database);

}  // namespace kevin
