#include "trajectories/sqlite.h"

#include <fmt/format.h>
#include <sqlite3.h>

#include <chrono>
#include <memory>
#include <thread>
#include <utility>

#include "env/error.h"

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
// file nothing is pending and nobody writes, so the file may be read as it lies.
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

}  // namespace

std::string ReadOnlyUri(const std::filesystem::path& path) { return FileUri(path) + "?mode=ro"; }

Database::Database(std::filesystem::path path, Access access, int busy_timeout_ms)
    : path_(std::move(path)), busy_timeout_ms_(busy_timeout_ms) {
  const auto open = [&](const std::string& name, int flags) {
    sqlite3_close_v2(std::exchange(handle_, nullptr));
    int code = sqlite3_open_v2(name.c_str(), &handle_, flags, nullptr);
    if (code != SQLITE_OK) return code;
    sqlite3_busy_timeout(handle_, busy_timeout_ms);
    return sqlite3_exec(handle_, "PRAGMA schema_version", nullptr, nullptr,
                        nullptr);  // really reads the file
  };
  const bool is_like_uri = path_.string().starts_with("file:");
  int code =
      open(is_like_uri ? std::filesystem::absolute(path_).string() : path_.string(), OpenFlags(access));
  if (code != SQLITE_OK && access == Access::kReadOnly && MayReadAsImmutable(code, path_)) {
    code = open(FileUri(path_) + "?immutable=1", SQLITE_OPEN_READONLY | SQLITE_OPEN_URI);
  }
  if (code == SQLITE_OK) return;
  sqlite3* const failed = std::exchange(handle_, nullptr);
  const std::unique_ptr<sqlite3, decltype(&sqlite3_close_v2)> close(failed, sqlite3_close_v2);
  ThrowSqlite(failed, code, path_);
}

Database::Database(Database&& other) noexcept
    : path_(std::move(other.path_)),
      busy_timeout_ms_(other.busy_timeout_ms_),
      handle_(std::exchange(other.handle_, nullptr)) {}

Database& Database::operator=(Database&& other) noexcept {
  std::swap(path_, other.path_);
  std::swap(busy_timeout_ms_, other.busy_timeout_ms_);
  std::swap(handle_, other.handle_);
  return *this;
}

Database::~Database() { sqlite3_close_v2(handle_); }

void Database::Execute(const char* sql) {
  Check(handle_, sqlite3_exec(handle_, sql, nullptr, nullptr, nullptr), path_);
}

Statement Database::Prepare(std::string_view sql) { return Statement(handle_, path_, sql); }

int64_t Database::QueryInteger(const char* sql) {
  Statement statement = Prepare(sql);
  statement.Step();
  return statement.Integer(0);
}

std::string Database::QueryText(const char* sql) {
  Statement statement = Prepare(sql);
  statement.Step();
  return statement.Text(0);
}

int64_t Database::Changes() const { return sqlite3_changes64(handle_); }

bool Database::InTransaction() const { return sqlite3_get_autocommit(handle_) == 0; }

void Database::PrepareForWriting() {
  if (sqlite3_db_readonly(handle_, "main") == 1) ThrowSqlite(nullptr, SQLITE_READONLY, path_);
  // The change to WAL wants the file alone and does not ask the busy handler.
  int code = SQLITE_BUSY;
  for (int waited_ms = 0; code == SQLITE_BUSY && waited_ms <= busy_timeout_ms_; waited_ms += 10) {
    if (waited_ms > 0) std::this_thread::sleep_for(std::chrono::milliseconds(10));
    code = sqlite3_exec(handle_, "PRAGMA journal_mode = WAL", nullptr, nullptr, nullptr);
  }
  Check(handle_, code, path_);
  Execute("PRAGMA synchronous = FULL; PRAGMA foreign_keys = ON");
}

Statement::Statement(sqlite3* database, std::filesystem::path path, std::string_view sql)
    : path_(std::move(path)), database_(database) {
  Check(database_, sqlite3_prepare_v2(database_, sql.data(), static_cast<int>(sql.size()), &handle_, nullptr),
        path_);
}

Statement::Statement(Statement&& other) noexcept
    : path_(std::move(other.path_)),
      database_(other.database_),
      handle_(std::exchange(other.handle_, nullptr)) {}

Statement::~Statement() { sqlite3_finalize(handle_); }

Statement& Statement::BindAll(const std::vector<std::string>& values) {
  int index = 0;
  for (const std::string& value : values) BindOne(++index, value);
  return *this;
}

bool Statement::Step() {
  const int code = sqlite3_step(handle_);
  if (code == SQLITE_ROW) return true;
  if (code == SQLITE_DONE) return false;
  ThrowSqlite(database_, code, path_);
}

void Statement::Run() {
  while (Step()) {
  }
  Reset();
}

void Statement::Reset() { sqlite3_reset(handle_); }

bool Statement::IsNull(int column) const { return sqlite3_column_type(handle_, column) == SQLITE_NULL; }
int64_t Statement::Integer(int column) const { return sqlite3_column_int64(handle_, column); }
double Statement::Real(int column) const { return sqlite3_column_double(handle_, column); }

std::string Statement::Text(int column) const {
  const void* const bytes = sqlite3_column_blob(handle_, column);  // first: the call that may convert
  const auto size = static_cast<size_t>(sqlite3_column_bytes(handle_, column));
  return bytes ? std::string(static_cast<const char*>(bytes), size) : std::string();
}

std::optional<int64_t> Statement::OptionalInteger(int column) const {
  return IsNull(column) ? std::nullopt : std::optional(Integer(column));
}

std::optional<double> Statement::OptionalReal(int column) const {
  return IsNull(column) ? std::nullopt : std::optional(Real(column));
}

void Statement::BindOne(int index, std::nullptr_t) {
  Check(database_, sqlite3_bind_null(handle_, index), path_);
}
void Statement::BindOne(int index, bool value) { BindOne(index, int64_t{value}); }
void Statement::BindOne(int index, int value) { BindOne(index, int64_t{value}); }

void Statement::BindOne(int index, int64_t value) {
  Check(database_, sqlite3_bind_int64(handle_, index, value), path_);
}

void Statement::BindOne(int index, double value) {
  Check(database_, sqlite3_bind_double(handle_, index, value), path_);
}

void Statement::BindOne(int index, const char* value) { BindOne(index, std::string(value)); }

void Statement::BindOne(int index, const std::string& value) {
  Check(database_,
        sqlite3_bind_text(handle_, index, value.data(), static_cast<int>(value.size()), SQLITE_TRANSIENT),
        path_);
}

void Statement::BindOne(int index, const std::vector<unsigned char>& value) {
  Check(database_, sqlite3_bind_blob64(handle_, index, value.data(), value.size(), SQLITE_TRANSIENT), path_);
}

Transaction::Transaction(Database& database) : database_(&database) { database.Execute("BEGIN IMMEDIATE"); }
Transaction::Transaction(Transaction&& other) noexcept : database_(std::exchange(other.database_, nullptr)) {}

Transaction::~Transaction() {
  if (database_ == nullptr || !database_->InTransaction())
    return;  // a full disk may have rolled back already
  try {
    database_->Execute("ROLLBACK");
  } catch (const Error&) {  // the error that brought us here is the one to report
  }
}

void Transaction::Commit() {
  database_->Execute("COMMIT");
  database_ = nullptr;
}

}  // namespace kevin
