#pragma once
// SQLite as three RAII types; the only place that includes sqlite3.h is sqlite.cc. Every failure is thrown as
// Error: kBroken for a full disk, an I/O error or a lock held too long; kBadRequest for a file that is no
// database, is corrupt or cannot be opened or written. Not for concurrent use: one thread at a time per
// Database.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

struct sqlite3;
struct sqlite3_stmt;

namespace kevin {

class Statement;

// For ATTACH: the file, never to be written.
std::string ReadOnlyUri(const std::filesystem::path& path);

class Database {
 public:
  enum class Access { kReadOnly, kReadWrite, kCreate };
  Database(std::filesystem::path path, Access access, int busy_timeout_ms);
  Database(Database&& other) noexcept;
  Database& operator=(Database&& other) noexcept;
  ~Database();

  void Execute(const char* sql);            // any number of statements, results ignored
  Statement Prepare(std::string_view sql);  // exactly one
  int64_t QueryInteger(const char* sql);    // first column of the first row, which must exist
  std::string QueryText(const char* sql);
  bool InTransaction() const;
  int64_t Changes() const;  // rows that the last INSERT, UPDATE or DELETE touched
  // Write-ahead log, synchronous=FULL, foreign keys checked. kBadRequest if the file can only be read.
  void PrepareForWriting();
  const std::filesystem::path& path() const { return path_; }

 private:
  std::filesystem::path path_;
  int busy_timeout_ms_ = 0;
  sqlite3* handle_ = nullptr;
};

// Parameters are numbered from 1, columns from 0. Must not outlive its Database.
class Statement {
 public:
  Statement(sqlite3* database, std::filesystem::path path, std::string_view sql);
  Statement(Statement&& other) noexcept;
  Statement& operator=(Statement&&) = delete;
  ~Statement();

  // Binds all parameters, in order.
  template <typename... Values>
  Statement& Bind(const Values&... values) {
    int index = 0;
    (BindOne(++index, values), ...);
    return *this;
  }
  Statement& BindAll(const std::vector<std::string>& values);  // the same for a list
  bool Step();                                                 // true: a row is there
  void Run();                                                  // steps to the end, then Reset
  void Reset();                                                // ready for new values

  bool IsNull(int column) const;
  int64_t Integer(int column) const;
  double Real(int column) const;
  std::string Text(int column) const;  // bytes of TEXT or BLOB; NULL reads as empty
  std::optional<int64_t> OptionalInteger(int column) const;
  std::optional<double> OptionalReal(int column) const;

 private:
  void BindOne(int index, std::nullptr_t);
  void BindOne(int index, bool value);
  void BindOne(int index, int value);
  void BindOne(int index, int64_t value);
  void BindOne(int index, double value);
  void BindOne(int index, const char* value);
  void BindOne(int index, const std::string& value);
  void BindOne(int index, const std::vector<unsigned char>& value);  // BLOB
  template <typename Value>
  void BindOne(int index, const std::optional<Value>& value) {
    value ? BindOne(index, *value) : BindOne(index, nullptr);
  }

  std::filesystem::path path_;
  sqlite3* database_ = nullptr;
  sqlite3_stmt* handle_ = nullptr;
};

// BEGIN IMMEDIATE (so that it waits for other writers now and cannot fail on them later); rolled back unless
// committed.
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

}  // namespace kevin
