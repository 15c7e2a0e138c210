#include "trajectories/database.h"

#include "env/error.h"

namespace kevin {

Database::Database(std::filesystem::path path, Access access, int busy_timeout_ms)
    : path_(path), engine_(OpenSqlite(std::move(path), access, busy_timeout_ms)) {}

Database::Database(std::filesystem::path name, std::unique_ptr<DatabaseEngine> engine)
    : path_(std::move(name)), engine_(std::move(engine)) {}

void Database::Execute(const char* sql) { engine_->Execute(sql); }

Statement Database::Prepare(std::string_view sql) { return Statement(engine_->Prepare(sql)); }

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

Statement& Statement::BindAll(const std::vector<std::string>& values) {
  int index = 0;
  for (const std::string& value : values) BindOne(++index, value);
  return *this;
}

void Statement::Run() {
  if (engine_->AddToBatch(BatchOrder::kInOrder, false)) return;
  while (Step()) {
  }
  Reset();
}

bool Statement::RunForRow(BatchOrder order) {
  if (engine_->AddToBatch(order, true)) return true;
  const bool found = Step();
  Reset();
  return found;
}

std::optional<int64_t> Statement::OptionalInteger(int column) const {
  return IsNull(column) ? std::nullopt : std::optional(Integer(column));
}

std::optional<double> Statement::OptionalReal(int column) const {
  return IsNull(column) ? std::nullopt : std::optional(Real(column));
}

void Statement::BindOne(int index, const std::vector<unsigned char>& value) {
  engine_->BindBytes(index, {reinterpret_cast<const char*>(value.data()), value.size()});
}

Transaction::Transaction(Database& database) : database_(&database) { database.engine_->Begin(); }
Transaction::Transaction(Transaction&& other) noexcept : database_(std::exchange(other.database_, nullptr)) {}

Transaction::~Transaction() {
  // A full disk or a lost connection may have rolled back already.
  if (database_ == nullptr || !database_->InTransaction()) return;
  try {
    database_->Execute("ROLLBACK");
  } catch (const Error&) {  // the earlier error is the one to report
  }
}

void Transaction::Commit() {
  database_->Execute("COMMIT");
  database_ = nullptr;
}

}  // namespace kevin
