#pragma once
// One connection to SQLite (sqlite.cc) or PostgreSQL (postgres.cc), for database.h. SQL is written once, in the
// dialect that both understand: `?` or `?1` for parameters, INSERT ... ON CONFLICT, RETURNING. Failures are Errors as
// database.h says. One thread at a time per engine.

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace kevin {

// The place of a statement in a batch: after all that was added before it, or ahead of the inserts among them, on
// which it does not depend.
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

// Thrown by a batch when one of its statements failed or did not give the row that it needs. The caller rolls back and
// runs the statements without a batch, to find which one and why.
struct NotTogether {};

// Thrown by PostgreSQL when two transactions conflict. Nothing of the transaction is left; the caller runs it again
// from its beginning.
struct TryAgain {};

// --- PostgreSQL (postgres.cc). Text that it cannot hold (NUL, broken UTF-8) is stored with U+FFFD in its place;
// bytes stay exact. ---

// "postgresql://..." or "postgres://...".
bool IsPostgresAddress(const std::string& address);

// The address without its password, for messages. The name of a file is not changed.
std::string WithoutPassword(const std::string& address);

// Throws Error(kBadRequest) when the server refuses the user or the database, Error(kBroken) when it is unreachable.
std::unique_ptr<DatabaseEngine> OpenPostgres(const std::string& address);

}  // namespace kevin
