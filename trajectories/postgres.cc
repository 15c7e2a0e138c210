#include <fmt/format.h>

#include <map>
#include <optional>
#include <pqxx/pqxx>
#include <utility>
#include <vector>

#include "env/error.h"
#include "trajectories/engine.h"
#include "trajectories/statement_batch.h"

namespace kevin {
namespace {

constexpr unsigned kByteaType = 17;
constexpr size_t kMostBatchBytes = 8 << 20;  // then it is sent, and goes on
constexpr char kReplacement[] = "\xEF\xBF\xBD";

// How many bytes the UTF-8 character at `at` has; 0: there is none.
size_t CharacterLength(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) {
    return static_cast<unsigned char>(at + i < text.size() ? text[at + i] : 0);
  };
  const unsigned char first = byte(0);
  if (first < 0x80) return first == 0 ? 0 : 1;
  const size_t length = first >= 0xF5 ? 0 : first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC2 ? 2 : 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) return 0;
  }
  const bool too_long = (first == 0xE0 && byte(1) < 0xA0) || (first == 0xF0 && byte(1) < 0x90);
  const bool surrogate = first == 0xED && byte(1) >= 0xA0;
  const bool too_large = first == 0xF4 && byte(1) >= 0x90;
  return too_long || surrogate || too_large ? 0 : length;
}

std::string StorableText(std::string_view text) {
  std::string clean;
  clean.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const size_t length = CharacterLength(text, at);
    if (length == 0) {
      clean += kReplacement;
      ++at;
    } else {
      clean.append(text, at, length);
      at += length;
    }
  }
  return clean;
}

std::string HexOfBytes(std::string_view bytes) {
  constexpr char kDigits[] = "0123456789abcdef";
  std::string hex = "\\x";
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

int HexDigit(char c) { return c <= '9' ? c - '0' : c - 'a' + 10; }

std::string BytesOfHex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 2; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(HexDigit(hex[i]) * 16 + HexDigit(hex[i + 1]));
  }
  return bytes;
}

// `?` and `?3` become `$1` and `$3`.
std::string Numbered(std::string_view sql) {
  std::string numbered;
  int next = 0;
  bool quoted = false;
  for (size_t i = 0; i < sql.size(); ++i) {
    quoted ^= sql[i] == '\'';
    if (sql[i] != '?' || quoted) {
      numbered += sql[i];
      continue;
    }
    numbered += '$';
    const bool has_number = i + 1 < sql.size() && sql[i + 1] >= '0' && sql[i + 1] <= '9';
    if (!has_number) numbered += std::to_string(++next);
  }
  return numbered;
}

class PostgresEngine final : public DatabaseEngine {
 public:
  explicit PostgresEngine(std::string address)
      : address_(std::move(address)), name_(WithoutPassword(address_)) {
    Connect();
  }

  SqlDialect dialect() const override { return SqlDialect::kPostgres; }
  void Execute(const char* sql) override {
    const std::string_view text = sql;
    const bool ends = text.starts_with("COMMIT") || text == "ROLLBACK";
    if (!connection_) Connect();
    if (text == "ROLLBACK") batch_.Clear();
    SendBatch();
    Guarded([&] { pqxx::nontransaction(*connection_).exec(sql); });
    if (ends) in_transaction_ = in_batch_ = false;
  }
  std::unique_ptr<StatementEngine> Prepare(std::string_view sql) override;
  bool InTransaction() const override { return in_transaction_; }
  void Begin() override {
    Execute("BEGIN");
    in_transaction_ = true;
  }
  void PrepareForWriting() override {}
  bool OpenBatch() override { return in_batch_ = true; }
  void CloseBatch() override {
    SendBatch();
    in_batch_ = false;
  }

  bool in_batch() const { return in_batch_; }

  void AddToBatch(const std::string& sql, const std::vector<const char*>& values, BatchOrder order,
                  bool needs_row) {
    std::vector<std::string> literals;
    for (const char* value : values)
      literals.push_back(value ? "'" + connection_->esc(std::string(value)) + "'" : "NULL");
    if (StatementBatch::IsInsert(sql)) {
      batch_.AddInsert(sql, literals, needs_row);
    } else if (literals.empty()) {
      batch_.Add(needs_row ? StatementBatch::Requiring(sql, 1) : sql, order);
    } else {
      const std::string name = NameInText(needs_row ? StatementBatch::Requiring(sql, 1) : sql);
      batch_.Add(fmt::format("EXECUTE {}({})", name, fmt::join(literals, ", ")), order);
    }
    if (batch_.bytes() > kMostBatchBytes) SendBatch();
  }

  pqxx::result Run(const std::string& sql, const std::vector<const char*>& values) {
    if (!connection_) Connect();
    SendBatch();
    pqxx::result rows;
    Guarded([&] {
      auto known = prepared_.find(sql);
      if (known == prepared_.end()) {
        const std::string name = fmt::format("kevin{}", prepared_.size());
        connection_->prepare(name, Numbered(sql));
        known = prepared_.emplace(sql, name).first;
      }
      pqxx::nontransaction connection(*connection_);
      rows = connection.exec_prepared(known->second, pqxx::prepare::make_dynamic_params(values));
    });
    return rows;
  }

 private:
  void SendBatch() {
    if (batch_.empty()) return;
    Guarded([&] {
      try {
        pqxx::nontransaction(*connection_).exec(batch_.TakeText());
      } catch (const pqxx::sql_error& error) {
        // A missing row, or one that breaks a rule of the tables.
        if (error.sqlstate().starts_with("22") || error.sqlstate().starts_with("23")) throw NotTogether{};
        throw;
      }
    });
  }

  // The name by which a batch's text calls the statement; PREPARE takes a round trip, once a connection.
  const std::string& NameInText(const std::string& sql) {
    const auto known = named_.find(sql);
    if (known != named_.end()) return known->second;
    const std::string name = fmt::format("batched{}", named_.size());
    Guarded([&] {
      pqxx::nontransaction(*connection_).exec(fmt::format("PREPARE {} AS {}", name, Numbered(sql)));
    });
    return named_.emplace(sql, name).first->second;
  }

  void Connect() {
    try {
      connection_ = std::make_unique<pqxx::connection>(address_);
      prepared_.clear();
      named_.clear();
      pqxx::nontransaction(*connection_)
          .exec(
              "SET client_encoding = 'UTF8'; SET synchronous_commit = on; SET lock_timeout = '30s'; "
              "SET client_min_messages = 'warning'");
    } catch (const std::exception& error) {
      connection_.reset();
      const std::string what = error.what();
      const bool turned_away = what.find("authentication") != std::string::npos ||
                               what.find("does not exist") != std::string::npos ||
                               what.find("no pg_hba.conf entry") != std::string::npos;
      throw Error(turned_away ? ExitCode::kBadRequest : ExitCode::kBroken,
                  fmt::format("{}: {}", name_, what.substr(0, what.find_last_not_of('\n') + 1)),
                  turned_away ? "check user, password and database in --db (createdb makes one)"
                              : "check that the server runs and can be reached; what was stored is kept");
    }
  }

  // Runs `work`, with this engine's errors for pqxx's.
  template <typename Work>
  void Guarded(const Work& work) {
    try {
      work();
    } catch (const pqxx::broken_connection& error) {
      Lost(error.what());
    } catch (const pqxx::deadlock_detected&) {
      throw TryAgain{};
    } catch (const pqxx::serialization_failure&) {
      throw TryAgain{};
    } catch (const pqxx::sql_error& error) {
      const std::string state = error.sqlstate();
      if (!connection_->is_open() || state.starts_with("57P")) Lost(error.what());
      if (state == "53100") {
        throw Error(ExitCode::kBroken, fmt::format("{}: disk full; this change was not written", name_),
                    "free some space on the server; what was stored before is whole");
      }
      if (state == "55P03") {
        throw Error(ExitCode::kBroken, fmt::format("{}: another process keeps the database locked", name_),
                    "look for an idle transaction in pg_stat_activity");
      }
      const bool refused = state == "42501" || state == "25006";
      throw Error(refused ? ExitCode::kBadRequest : ExitCode::kBroken,
                  fmt::format("{}: {}", name_, error.what()),
                  refused ? "give this user the right to write there" : "");
    } catch (const pqxx::failure& error) {
      if (!connection_->is_open()) Lost(error.what());
      throw Error(ExitCode::kBroken, fmt::format("{}: {}", name_, error.what()), "");
    }
  }

  // The next transaction connects anew.
  [[noreturn]] void Lost(const std::string& what) {
    in_transaction_ = in_batch_ = false;
    batch_.Clear();
    connection_.reset();
    throw Error(ExitCode::kBroken, fmt::format("{}: the connection was lost: {}", name_, what),
                "start the same command again; what was stored before is whole");
  }

  const std::string address_, name_;
  std::unique_ptr<pqxx::connection> connection_;
  std::map<std::string, std::string> prepared_;  // SQL to name
  std::map<std::string, std::string> named_;     // the same for those that batches call
  StatementBatch batch_;
  bool in_transaction_ = false, in_batch_ = false;
};

class PostgresStatement final : public StatementEngine {
 public:
  PostgresStatement(PostgresEngine& engine, std::string_view sql) : engine_(engine), sql_(sql) {}

  void BindNull(int index) override { Slot(index).reset(); }
  void BindInteger(int index, int64_t value) override { Slot(index) = std::to_string(value); }
  void BindReal(int index, double value) override { Slot(index) = fmt::format("{}", value); }
  void BindText(int index, std::string_view value) override { Slot(index) = StorableText(value); }
  void BindBytes(int index, std::string_view value) override { Slot(index) = HexOfBytes(value); }
  bool AddToBatch(BatchOrder order, bool needs_row) override {
    if (!engine_.in_batch()) return false;
    engine_.AddToBatch(sql_, Values(), order, needs_row);
    return true;
  }
  bool Step() override {
    if (!ran_) {
      rows_ = engine_.Run(sql_, Values());
      ran_ = true;
      row_ = -1;
    }
    return ++row_ < static_cast<int>(rows_.size());
  }
  void Reset() override {
    ran_ = false;
    rows_.clear();
  }
  bool IsNull(int column) const override { return Field(column).is_null(); }
  int64_t Integer(int column) const override { return IsNull(column) ? 0 : Field(column).as<int64_t>(); }
  double Real(int column) const override { return IsNull(column) ? 0 : Field(column).as<double>(); }
  std::string Text(int column) const override {
    if (IsNull(column)) return "";
    const std::string_view text(Field(column).c_str(), Field(column).size());
    return rows_.column_type(column) == kByteaType ? BytesOfHex(text) : std::string(text);
  }

 private:
  std::optional<std::string>& Slot(int index) {
    if (ran_) Reset();
    if (values_.size() < static_cast<size_t>(index)) values_.resize(static_cast<size_t>(index));
    return values_[static_cast<size_t>(index) - 1];
  }
  std::vector<const char*> Values() const {
    std::vector<const char*> values;
    for (const auto& value : values_) values.push_back(value ? value->c_str() : nullptr);
    return values;
  }
  pqxx::field Field(int column) const { return rows_[row_][column]; }

  PostgresEngine& engine_;
  const std::string sql_;
  std::vector<std::optional<std::string>> values_;
  pqxx::result rows_;
  bool ran_ = false;
  int row_ = -1;
};

std::unique_ptr<StatementEngine> PostgresEngine::Prepare(std::string_view sql) {
  return std::make_unique<PostgresStatement>(*this, sql);
}

}  // namespace

bool IsPostgresAddress(const std::string& address) {
  return address.starts_with("postgresql://") || address.starts_with("postgres://");
}

std::string WithoutPassword(const std::string& address) {
  if (!IsPostgresAddress(address)) return address;
  const size_t start = address.find("://") + 3, at = address.find('@', start);
  const size_t colon = address.find(':', start);
  if (at == std::string::npos || colon == std::string::npos || colon > at) return address;
  return address.substr(0, colon) + address.substr(at);
}

std::unique_ptr<DatabaseEngine> OpenPostgres(const std::string& address) {
  return std::make_unique<PostgresEngine>(address);
}

}  // namespace kevin
