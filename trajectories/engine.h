#pragma once
// What database.h stands on: one connection to SQLite (sqlite.cc) or PostgreSQL (postgres.cc). SQL is written
// once, in what both understand: `?` or `?1` for parameters, INSERT ... ON CONFLICT, RETURNING. Failures are
// Errors as database.h says. One thread at a time per engine.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace kevin {

// Where a statement stands in a batch: after all that was added before it, or ahead of the inserts among
// them, with which it has nothing to do.
enum class BatchOrder { kInOrder, kAhead };

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
  // While a batch is open: takes the statement into it instead of running it. `needs_row`: a row must come of
  // it, or the batch fails. False: there is no batch, or this engine has none.
  virtual bool AddToBatch(BatchOrder, bool /*needs_row*/) { return false; }
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
  // Inside a transaction, where a round trip costs: from OpenBatch to CloseBatch, statements of which nothing
  // is read are sent together, in the order of statement_batch.h. Reading sends what was added before.
  // Returns false where every statement runs at once anyway (SQLite).
  virtual bool OpenBatch() { return false; }
  virtual void CloseBatch() {}  // throws NotTogether
};

// Thrown by a batch when a statement of it failed or did not give the row that it needs. To be rolled back
// and run again without a batch, which tells which one and why.
struct NotTogether {};

// Thrown by PostgreSQL when two transactions stood in each other's way. Nothing of the transaction is left;
// to do it again from its beginning is right.
struct TryAgain {};

// --- PostgreSQL (postgres.cc). Text that it cannot hold (NUL, broken UTF-8) is stored with U+FFFD in its place;
// bytes stay exact. ---

// "postgresql://..." or "postgres://...".
bool IsPostgresAddress(const std::string& address);

// Without what follows the user's name, for messages. A file's name stays as it is.
std::string WithoutPassword(const std::string& address);

// Throws Error(kBadRequest) when the server turns us away, Error(kBroken) when it cannot be reached.
std::unique_ptr<DatabaseEngine> OpenPostgres(const std::string& address);

}  // namespace kevin
