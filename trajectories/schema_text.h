#pragma once
// schema.sql as text: its parts, and the same for PostgreSQL. There STRICT and PRAGMA go, INTEGER is BIGINT, REAL is DOUBLE
// PRECISION, ANY and BLOB are BYTEA, text of tables is ordered by its bytes; a view that takes JSON apart has a text of its
// own. Pure; any thread.

#include <string>

namespace kevin {

extern const char kSchema[];  // the whole of schema.sql, zero-terminated

// The views, at its end; all of them are derived, so they can be made anew.
const char* ViewsOfSchema();

// From one "-- == NAME ==" to the next; `marker` is the whole first line.
std::string PartOfSchema(const char* marker);

// schema.sql for PostgreSQL: the same tables and views under the same names. Table kevin_format holds the format's number.
std::string PostgresSchema();

// Of a part: CREATE TABLE and ALTER TABLE; types alone.
std::string TablesOfPostgres(const std::string& tables);
std::string WithTypesOfPostgres(std::string sql);

std::string PostgresViews();  // all but turn_messages

// All matches of a regular expression are replaced.
std::string Replaced(const std::string& text, const char* pattern, const char* with);

}  // namespace kevin
