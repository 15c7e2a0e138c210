#include "trajectories/schema_text.h"

#include <fmt/format.h>

#include <cstring>
#include <regex>
#include <sstream>
#include <utility>

#include "trajectories/formats.h"

namespace kevin {
namespace {

// Bytes that are no UTF-8 are shown escaped.
constexpr char kOwnTexts[] = R"(
CREATE TABLE kevin_format (version BIGINT NOT NULL);
INSERT INTO kevin_format VALUES ({});
CREATE FUNCTION kevin_text(bytes BYTEA) RETURNS TEXT LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
  RETURN convert_from(bytes, 'UTF8');
EXCEPTION WHEN OTHERS THEN
  RETURN encode(bytes, 'escape');
END $$;
CREATE VIEW turn_messages AS
SELECT t.episode, t.turn, m.place - 1 AS position, m.value ->> 'role' AS role, kevin_text(b.body) AS content
FROM turns t CROSS JOIN LATERAL jsonb_array_elements(t.messages::jsonb) WITH ORDINALITY AS m(value, place)
JOIN blobs b ON b.hash = m.value ->> 'content';
)";

std::string WithoutComments(const std::string& sql) {
  std::istringstream lines(sql);
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    if (line.starts_with("PRAGMA")) continue;
    text += line.substr(0, line.find("--")) + "\n";
  }
  return text;
}

// Without the statement that makes this view.
std::string WithoutView(const std::string& views, const std::string& name) {
  const size_t start = views.find("CREATE VIEW " + name + " AS");
  if (start == std::string::npos) return views;
  return views.substr(0, start) + views.substr(views.find(';', start) + 1);
}
}  // namespace

const char* ViewsOfSchema() { return std::strstr(kSchema, "-- == VIEWS =="); }

std::string PartOfSchema(const char* marker) {
  const char* const start = std::strstr(kSchema, marker);
  return std::string(start, std::strstr(start + std::strlen(marker), "-- == "));
}

std::string Replaced(const std::string& text, const char* pattern, const char* with) {
  return std::regex_replace(text, std::regex(pattern), with);
}

std::string WithTypesOfPostgres(std::string sql) {
  sql = Replaced(sql, R"(\bINTEGER\b)", "BIGINT");
  sql = Replaced(sql, R"(\bREAL\b)", "DOUBLE PRECISION");
  return Replaced(sql, R"(\b(ANY|BLOB)\b)", "BYTEA");
}

std::string TablesOfPostgres(const std::string& tables) {
  std::string sql = Replaced(WithoutComments(tables), R"(\) STRICT(, WITHOUT ROWID)?;)", ");");
  sql = Replaced(sql, R"(\bTEXT\b)", "TEXT COLLATE \"C\"");
  return WithTypesOfPostgres(std::move(sql));
}
std::string PostgresViews() {
  return WithTypesOfPostgres(WithoutView(WithoutComments(ViewsOfSchema()), "turn_messages"));
}

std::string PostgresSchema() {
  const char* const views_start = ViewsOfSchema();
  return TablesOfPostgres(std::string(kSchema, views_start)) + PostgresViews() +
         fmt::format(kOwnTexts, kSchemaVersion);
}

}  // namespace kevin
