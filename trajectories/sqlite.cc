#include <fmt/format.h>
#include <sqlite3.h>

#include <chrono>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>
#include <vector>

#include "env/error.h"
#include "trajectories/database.h"

namespace kevin {
namespace {

[[noreturn]] void ThrowSqlite(sqlite3* handle, int code, const std::filesystem::path& path) {
  const std::string message = handle ? sqlite3_errmsg(handle) : sqlite3_errstr(code);
  const std::string file = path.string();
  switch (code & 0xff) {
    case SQLITE_FULL:
      throw Error(ExitCode::kBroken, fmt::format("{}: disk full; this change was not written", file),
                  "free some space and go on with --continue; what was stored before is whole");
    case SQLITE_IOERR:
      throw Error(
          ExitCode::kBroken,
          fmt::format("{}: the database cannot be read or written (disk full, over quota or failing): {}",
                      file, message),
          "check the disk's free space and quota; what was stored before is whole");
    case SQLITE_BUSY:
    case SQLITE_LOCKED:
      throw Error(ExitCode::kBroken, fmt::format("{}: another process keeps the database locked", file),
                  "look for a stopped kevin or sqlite3 on this file, or give another file with --db");
    case SQLITE_NOTADB:
      throw Error(ExitCode::kBadRequest, fmt::format("{}: not a database", file),
                  "give another file with --db; this one is left as it is");
    case SQLITE_CORRUPT:
      throw Error(ExitCode::kBadRequest, fmt::format("{}: the database is corrupt: {}", file, message),
                  fmt::format("give another file with --db, or save what can be read: "
                              "sqlite3 '{}' .recover | sqlite3 rescued.db",
                              file));
    case SQLITE_CANTOPEN:
    case SQLITE_PERM:
    case SQLITE_READONLY:
    case SQLITE_AUTH:
      throw Error(ExitCode::kBadRequest,
                  fmt::format("{}: cannot open or write the database: {}", file, message),
                  "check that its folder exists and is writable, or give another file with --db");
    default:
      throw Error(ExitCode::kBroken, fmt::format("{}: {}", file, message));
  }
}

void Check(sqlite3* handle, int code, const std::filesystem::path& path) {
  if (code != SQLITE_OK) ThrowSqlite(handle, code, path);
}

// Reading a WAL database takes a -shm file beside it, which a read-only folder cannot get. Without a -wal
// file nothing is pending and nobody writes, so the file may be read as it is.
bool MayReadAsImmutable(int code, const std::filesystem::path& path) {
  code &= 0xff;
  std::error_code ignored;
  return (code == SQLITE_CANTOPEN || code == SQLITE_READONLY) && std::filesystem::exists(path, ignored) &&
         !std::filesystem::exists(path.string() + "-wal", ignored);
}

std::string FileUri(const std::filesystem::path& path) {
  std::string uri = "file:";
  for (const unsigned char c : std::filesystem::absolute(path).string()) {
    const bool plain = c > ' ' && c < 127 && c != '%' && c != '?' && c != '#';
    uri += plain ? std::string(1, static_cast<char>(c)) : fmt::format("%{:02X}", c);
  }
  return uri;
}

int OpenFlags(Database::Access access) {
  switch (access) {
    case Database::Access::kReadOnly:
      return SQLITE_OPEN_READONLY;
    case Database::Access::kReadWrite:
      return SQLITE_OPEN_READWRITE | SQLITE_OPEN_URI;  // what is attached may be a URI
    case Database::Access::kCreate:
      return SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE | SQLITE_OPEN_URI;
  }
  return SQLITE_OPEN_READONLY;
}

// Statements that were prepared before and are at rest, by their text.
struct SqlHash {
  using is_transparent = void;
  size_t operator()(std::string_view sql) const { return std::hash<std::string_view>()(sql); }
};
using IdleStatements = std::unordered_map<std::string, std::vector<sqlite3_stmt*>, SqlHash, std::equal_to<>>;

class SqliteStatement final : public StatementEngine {
 public:
  SqliteStatement(sqlite3* database, const std::filesystem::path& path, std::string_view sql,
                  IdleStatements* idle)
      : path_(path), database_(database) {
    auto known = idle->find(sql);
    if (known == idle->end()) known = idle->emplace(sql, std::vector<sqlite3_stmt*>()).first;
    entry_ = &*known;
    if (!entry_->second.empty()) {
      handle_ = entry_->second.back();
      entry_->second.pop_back();
      return;
    }
    Check(database_,
          sqlite3_prepare_v2(database_, sql.data(), static_cast<int>(sql.size()), &handle_, nullptr), path_);
  }
  ~SqliteStatement() override {
    if (handle_ == nullptr) return;
    sqlite3_reset(handle_);
    sqlite3_clear_bindings(handle_);
    entry_->second.push_back(handle_);
  }
  SqliteStatement(const SqliteStatement&) = delete;
  SqliteStatement& operator=(const SqliteStatement&) = delete;

  void BindNull(int index) override { Check(database_, sqlite3_bind_null(handle_, index), path_); }
  void BindInteger(int index, int64_t value) override {
    Check(database_, sqlite3_bind_int64(handle_, index, value), path_);
  }
  void BindReal(int index, double value) override {
    Check(database_, sqlite3_bind_double(handle_, index, value), path_);
  }
  void BindText(int index, std::string_view value) override {
    Check(database_,
          sqlite3_bind_text(handle_, index, value.empty() ? "" : value.data(), static_cast<int>(value.size()),
                            SQLITE_TRANSIENT),
          path_);
  }
  void BindBytes(int index, std::string_view value) override {
    Check(database_, sqlite3_bind_blob64(handle_, index, value.data(), value.size(), SQLITE_TRANSIENT),
          path_);
  }
  bool Step() override {
    const int code = sqlite3_step(handle_);
    if (code == SQLITE_ROW) return true;
    if (code == SQLITE_DONE) return false;
    ThrowSqlite(database_, code, path_);
  }
  void Reset() override { sqlite3_reset(handle_); }
  bool IsNull(int column) const override { return sqlite3_column_type(handle_, column) == SQLITE_NULL; }
  int64_t Integer(int column) const override { return sqlite3_column_int64(handle_, column); }
  double Real(int column) const override { return sqlite3_column_double(handle_, column); }
  std::string Text(int column) const override {
    const void* const bytes = sqlite3_column_blob(handle_, column);  // first: the call that may convert
    const auto size = static_cast<size_t>(sqlite3_column_bytes(handle_, column));
    return bytes ? std::string(static_cast<const char*>(bytes), size) : std::string();
  }

 private:
  const std::filesystem::path& path_;
  sqlite3* database_;
  IdleStatements::value_type* entry_;  // stays where it is
  sqlite3_stmt* handle_ = nullptr;
};

class SqliteEngine final : public DatabaseEngine {
 public:
  SqliteEngine(std::filesystem::path path, Database::Access access, int busy_timeout_ms);
  ~SqliteEngine() override {
    for (auto& [sql, statements] : idle_) {
      for (sqlite3_stmt* statement : statements) sqlite3_finalize(statement);
    }
    sqlite3_close_v2(handle_);
  }
  SqliteEngine(const SqliteEngine&) = delete;
  SqliteEngine& operator=(const SqliteEngine&) = delete;

  SqlDialect dialect() const override { return SqlDialect::kSqlite; }
  void Execute(const char* sql) override {
    Check(handle_, sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr), path_);
  }
  std::unique_ptr<StatementEngine> Prepare(std::string_view sql) override {
    return std::make_unique<SqliteStatement>(handle_, path_, sql, &idle_);
  }
  bool InTransaction() const override { return sqlite3_get_autocommit(handle_) == 0; }
  void Begin() override { Execute("BEGIN IMMEDIATE"); }
  void PrepareForWriting() override;

 private:
  std::filesystem::path path_;
  int busy_timeout_ms_;
  sqlite3* handle_ = nullptr;
  IdleStatements idle_;
};

SqliteEngine::SqliteEngine(std::filesystem::path path, Database::Access access, int busy_timeout_ms)
    : path_(std::move(path)), busy_timeout_ms_(busy_timeout_ms) {
  const auto open = [&](const std::string& name, int flags) {
    sqlite3_close_v2(std::exchange(handle_, nullptr));
    int code = sqlite3_open_v2(name.c_str(), &handle_, flags | SQLITE_OPEN_NOMUTEX, nullptr);
    if (code != SQLITE_OK) return code;
    sqlite3_busy_timeout(handle_, busy_timeout_ms);
    return sqlite3_exec(handle_, "PRAGMA schema_version", nullptr, nullptr,
                        nullptr);  // really reads the file
  };
  const bool is_like_uri = path_.string().starts_with("file:");
  int code =
      open(is_like_uri ? std::filesystem::absolute(path_).string() : path_.string(), OpenFlags(access));
  if (code != SQLITE_OK && access == Database::Access::kReadOnly && MayReadAsImmutable(code, path_)) {
    code = open(FileUri(path_) + "?immutable=1", SQLITE_OPEN_READONLY | SQLITE_OPEN_URI);
  }
  if (code == SQLITE_OK) return;
  sqlite3* const failed = std::exchange(handle_, nullptr);
  const std::unique_ptr<sqlite3, decltype(&sqlite3_close_v2)> close(failed, sqlite3_close_v2);
  ThrowSqlite(failed, code, path_);
}

void SqliteEngine::PrepareForWriting() {
  if (sqlite3_db_readonly(handle_, "main") == 1) ThrowSqlite(nullptr, SQLITE_READONLY, path_);
  // The change to WAL wants the file alone and does not ask the busy handler.
  int code = SQLITE_BUSY;
  for (int waited_ms = 0; code == SQLITE_BUSY && waited_ms <= busy_timeout_ms_; waited_ms += 10) {
    if (waited_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    code = sqlite3_exec(handle_, "PRAGMA journal_mode = WAL", nullptr, nullptr, nullptr);
  }
  Check(handle_, code, path_);
  // Pages of indexes come back again and again; a checkpoint writes a page once however often it changed.
  Execute(
      "PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON; PRAGMA cache_size = -65536; PRAGMA temp_store = "
      "MEMORY; "
      "PRAGMA wal_autocheckpoint = 8000");
}

}  // namespace

std::unique_ptr<DatabaseEngine> OpenSqlite(std::filesystem::path path, Database::Access access,
                                           int busy_timeout_ms) {
  return std::make_unique<SqliteEngine>(std::move(path), access, busy_timeout_ms);
}

}  // namespace kevin
