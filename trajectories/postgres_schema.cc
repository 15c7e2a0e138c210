#include "trajectories/postgres_schema.h"

#include <fmt/format.h>

#include <cstring>
#include <regex>
#include <sstream>

#include "trajectories/schema.h"

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

std::string Replaced(const std::string& text, const char* pattern, const char* with) {
  return std::regex_replace(text, std::regex(pattern), with);
}

// Without the statement that makes this view.
std::string WithoutView(const std::string& views, const std::string& name) {
  const size_t start = views.find("CREATE VIEW " + name + " AS");
  if (start == std::string::npos) return views;
  return views.substr(0, start) + views.substr(views.find(';', start) + 1);
}

}  // namespace

std::string PostgresSchema() {
  const char* const views_start = std::strstr(kSchema, "-- == VIEWS ==");
  std::string tables = WithoutComments(std::string(kSchema, views_start));
  tables = Replaced(tables, R"(\) STRICT(, WITHOUT ROWID)?;)", ");");
  tables = Replaced(tables, R"(\bTEXT\b)", "TEXT COLLATE \"C\"");
  std::string all = tables + WithoutView(WithoutComments(views_start), "turn_messages");
  all = Replaced(all, R"(\bINTEGER\b)", "BIGINT");
  all = Replaced(all, R"(\bREAL\b)", "DOUBLE PRECISION");
  all = Replaced(all, R"(\b(ANY|BLOB)\b)", "BYTEA");
  return all + fmt::format(kOwnTexts, kSchemaVersion);
}

}  // namespace kevin
