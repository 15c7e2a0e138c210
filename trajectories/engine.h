#pragma once
// What database.h stands on: one connection to SQLite (sqlite.cc) or PostgreSQL (postgres.cc). SQL is written
// once, in what both understand: `?` or `?1` for parameters, INSERT ... ON CONFLICT, RETURNING. Failures are
// Errors as database.h says. One thread at a time per engine.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace kevin {

class StatementEngine {
 public:
  virtual ~StatementEngine() = default;
  // Parameters count from 1, columns from 0. Binding after the last row starts anew.
  virtual void BindNull(int index) = 0;
  virtual void BindInteger(int index, int64_t value) = 0;
  virtual void BindReal(int index, double value) = 0;
  virtual void BindText(int index, std::string_view value) = 0;
  virtual void BindBytes(int index, std::string_view value) = 0;
  virtual bool Step() = 0;  // true: a row is there
  virtual void Reset() = 0;
  virtual bool IsNull(int column) const = 0;
  virtual int64_t Integer(int column) const = 0;
  virtual double Real(int column) const = 0;
  virtual std::string Text(int column) const = 0;
};

enum class SqlDialect { kSqlite, kPostgres };

class DatabaseEngine {
 public:
  virtual ~DatabaseEngine() = default;
  virtual SqlDialect dialect() const = 0;
  virtual void Execute(const char* sql) = 0;  // any number of statements
  virtual std::unique_ptr<StatementEngine> Prepare(std::string_view sql) = 0;
  virtual bool InTransaction() const = 0;
  virtual void Begin() = 0;  // waits for other writers now, where the engine has one writer
  virtual void PrepareForWriting() = 0;
};

// Thrown by PostgreSQL when two transactions stood in each other's way. Nothing of the transaction is left;
// to do it again from its beginning is right.
struct TryAgain {};

}  // namespace kevin
