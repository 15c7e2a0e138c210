#pragma once
// schema.sql as PostgreSQL reads it: the same tables and views under the same names, made from the same text,
// so that the two cannot drift apart. What differs: STRICT and PRAGMA go, INTEGER is BIGINT, REAL is DOUBLE
// PRECISION, ANY and BLOB are BYTEA, text of tables is ordered by its bytes, and a view that takes JSON apart
// has a text of its own (postgres_schema.cc). Table kevin_format holds the format's number.

#include <string>

namespace kevin {

std::string PostgresSchema();

}  // namespace kevin
