#pragma once
// A database as three RAII types, on either engine (engine.h). Every failure is thrown as Error: kBroken for a full
// disk, an I/O error, a lost connection or a lock held too long; kBadRequest for a file that is not a database, is
// corrupt or cannot be opened or written. One thread at a time per Database.

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trajectories/engine.h"

namespace kevin {

class Statement;

class Database {
 public:
  enum class Access { kReadOnly, kReadWrite, kCreate };
  // A SQLite file.
  Database(std::filesystem::path path, Access access, int busy_timeout_ms);
  // `name` is for messages and path(): the file, or the address without its password.
  Database(std::filesystem::path name, std::unique_ptr<DatabaseEngine> engine);

  void Execute(const char* sql);            // any number of statements, results ignored
  Statement Prepare(std::string_view sql);  // exactly one
  int64_t QueryInteger(const char* sql);    // first column of the first row, which must exist
  std::string QueryText(const char* sql);
  bool InTransaction() const { return engine_->InTransaction(); }
  // SQLite: write-ahead log, synchronous=FULL, foreign keys checked. kBadRequest if it can only be read.
  void PrepareForWriting() { engine_->PrepareForWriting(); }
  // Statements of which nothing is read, sent together; see engine.h. False: there are no batches here.
  bool OpenBatch() { return engine_->OpenBatch(); }
  void CloseBatch() { engine_->CloseBatch(); }
  SqlDialect dialect() const { return engine_->dialect(); }
  const std::filesystem::path& path() const { return path_; }

 private:
  friend class Transaction;
  std::filesystem::path path_;
  std::unique_ptr<DatabaseEngine> engine_;
};

// Parameters are numbered from 1, columns from 0. Must not outlive its Database.
class Statement {
 public:
  explicit Statement(std::unique_ptr<StatementEngine> engine) : engine_(std::move(engine)) {}

  // Binds all parameters, in order.
  template <typename... Values>
  Statement& Bind(const Values&... values) {
    int index = 0;
    (BindOne(++index, values), ...);
    return *this;
  }
  Statement& BindAll(const std::vector<std::string>& values);  // the same for a list
  template <typename Value>
  void BindAt(int index, const Value& value) {
    BindOne(index, value);
  }
  bool Step() { return engine_->Step(); }  // true: a row is there
  void Run();                              // steps to the end, then Reset
  // The same, and whether there was a row. In a batch the answer is always true: one without fails as a
  // whole.
  bool RunForRow(BatchOrder order = BatchOrder::kInOrder);
  void Reset() { engine_->Reset(); }  // ready for new values

  bool IsNull(int column) const { return engine_->IsNull(column); }
  int64_t Integer(int column) const { return engine_->Integer(column); }
  double Real(int column) const { return engine_->Real(column); }
  std::string Text(int column) const { return engine_->Text(column); }  // also of bytes; NULL reads as empty
  std::optional<int64_t> OptionalInteger(int column) const;
  std::optional<double> OptionalReal(int column) const;

 private:
  void BindOne(int index, std::nullptr_t) { engine_->BindNull(index); }
  void BindOne(int index, bool value) { engine_->BindInteger(index, value ? 1 : 0); }
  void BindOne(int index, int value) { engine_->BindInteger(index, value); }
  void BindOne(int index, int64_t value) { engine_->BindInteger(index, value); }
  void BindOne(int index, double value) { engine_->BindReal(index, value); }
  void BindOne(int index, const char* value) { engine_->BindText(index, value); }
  void BindOne(int index, const std::string& value) { engine_->BindText(index, value); }
  void BindOne(int index, const std::vector<unsigned char>& value);  // bytes
  template <typename Value>
  void BindOne(int index, const std::optional<Value>& value) {
    value ? BindOne(index, *value) : BindOne(index, nullptr);
  }

  std::unique_ptr<StatementEngine> engine_;
};

// Waits for other writers when it begins, so that it cannot fail on them later. Rolled back unless committed.
class Transaction {
 public:
  explicit Transaction(Database& database);
  Transaction(Transaction&& other) noexcept;
  Transaction& operator=(Transaction&&) = delete;
  ~Transaction();
  void Commit();

 private:
  Database* database_;  // null once committed or moved from
};

// The SQLite engine; sqlite.cc is the only place that includes sqlite3.h.
// Throws Error as this header says. A writer waits up to `busy_timeout_ms` for others.
std::unique_ptr<DatabaseEngine> OpenSqlite(std::filesystem::path path, Database::Access access,
                                           int busy_timeout_ms);

}  // namespace kevin
