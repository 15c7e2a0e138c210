#include "trajectories/catalog.h"

#include <fmt/format.h>

#include <map>
#include <string_view>

#include "env/error.h"
#include "trajectories/schema_text.h"

namespace kevin {
namespace {

std::vector<std::string> ParseTables() {
  constexpr std::string_view kCreate = "\nCREATE TABLE ";
  const std::string_view schema = kSchema;
  std::vector<std::string> tables;
  for (size_t at = schema.find(kCreate); at != std::string_view::npos; at = schema.find(kCreate, at + 1)) {
    const size_t name = at + kCreate.size();
    tables.emplace_back(schema.substr(name, schema.find(' ', name) - name));
  }
  return tables;
}

ColumnType TypeFromName(const std::string& name) {
  static const std::map<std::string, ColumnType> kTypes = {
      {"INTEGER", ColumnType::kInteger}, {"bigint", ColumnType::kInteger},
      {"REAL", ColumnType::kReal},       {"double precision", ColumnType::kReal},
      {"ANY", ColumnType::kBytes},       {"BLOB", ColumnType::kBytes},
      {"bytea", ColumnType::kBytes}};
  const auto found = kTypes.find(name);
  return found == kTypes.end() ? ColumnType::kText : found->second;
}

// Table, target, column (if one), condition that it refers, condition that the target is there.
constexpr char kSqliteReferences[] = R"(
SELECT s.name, f."table", CASE WHEN count(*) = 1 THEN max(f."from") END,
       group_concat('t."' || f."from" || '" IS NOT NULL', ' AND '),
       group_concat('r."' || f."to" || '" = t."' || f."from" || '"', ' AND ')
FROM sqlite_schema s JOIN pragma_foreign_key_list(s.name) f WHERE s.type = 'table'
GROUP BY s.name, f.id ORDER BY s.name, f.id)";

constexpr char kPostgresReferences[] = R"(
SELECT t.relname, r.relname, CASE WHEN cardinality(k.conkey) = 1 THEN max(a.attname) END,
       string_agg(format('t.%I IS NOT NULL', a.attname), ' AND '),
       string_agg(format('r.%I = t.%I', b.attname, a.attname), ' AND ')
FROM pg_constraint k JOIN pg_class t ON t.oid = k.conrelid JOIN pg_class r ON r.oid = k.confrelid
CROSS JOIN LATERAL unnest(k.conkey, k.confkey) AS pair(ours, theirs)
JOIN pg_attribute a ON a.attrelid = k.conrelid AND a.attnum = pair.ours
JOIN pg_attribute b ON b.attrelid = k.confrelid AND b.attnum = pair.theirs
WHERE k.contype = 'f' AND t.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
GROUP BY k.oid, t.relname, r.relname, k.conkey ORDER BY t.relname, k.oid)";

}  // namespace

const std::vector<std::string>& SchemaTables() {
  static const std::vector<std::string> kTables = ParseTables();
  return kTables;
}

std::vector<ColumnInfo> ColumnsOf(Database& database, const std::string& table) {
  Statement row = database.Prepare(
      database.dialect() == SqlDialect::kSqlite
          ? "SELECT name, type FROM pragma_table_info(?, 'main')"
          : "SELECT column_name, data_type FROM information_schema.columns "
            "WHERE table_schema = current_schema() AND table_name = ? ORDER BY ordinal_position");
  std::vector<ColumnInfo> columns;
  row.Bind(table);
  while (row.Step()) columns.push_back({row.Text(0), TypeFromName(row.Text(1))});
  return columns;
}

std::vector<Reference> ReferencesOf(Database& database) {
  Statement row =
      database.Prepare(database.dialect() == SqlDialect::kSqlite ? kSqliteReferences : kPostgresReferences);
  std::vector<Reference> references;
  while (row.Step()) {
    references.push_back({row.Text(0), row.Text(1), row.Text(2),
                          fmt::format("SELECT count(*) FROM {} t WHERE {} AND NOT EXISTS (SELECT 1 FROM {} r "
                                      "WHERE {})",
                                      row.Text(0), row.Text(3), row.Text(1), row.Text(4))});
  }
  return references;
}

std::string QuotedNames(const std::vector<ColumnInfo>& columns) {
  std::string text;
  for (const ColumnInfo& column : columns) text += (text.empty() ? "\"" : ", \"") + column.name + "\"";
  return text;
}

std::string MessageHashes(const Database& database) {
  return database.dialect() == SqlDialect::kSqlite
             ? "SELECT m.value ->> 'content' AS hash FROM turns t, json_each(t.messages) m"
             : "SELECT m.value ->> 'content' AS hash FROM turns t, jsonb_array_elements(t.messages::jsonb) "
               "AS m(value)";
}

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
  } catch (const Error&) {  // it only read; the earlier error is the one to report
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
