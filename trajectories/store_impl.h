#pragma once
// Inside of Store, shared by its sources (store.cc: file, runs, episodes; turns.cc: turns, evaluations;
// requests.cc).

#include <algorithm>
#include <mutex>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "trajectories/sqlite.h"
#include "trajectories/store.h"

namespace kevin {

struct Store::Impl {
  Impl(Database opened, std::pair<uint64_t, uint64_t> file)
      : database(std::move(opened)), file_identity(file) {}

  // Also checks that the file is still the one at its path: writing to a deleted one would lose everything.
  Transaction BeginWrite();

  // Throws kBadRequest unless there is an episode with exactly this id.
  void RequireEpisode(const std::string& id);

  // Stores the bytes unless they are there already; returns their hash.
  std::string PutText(const std::string& text);
  std::optional<std::string> PutArray(const std::string& bytes);  // nullopt for an empty array
  std::string GetBlob(const std::string& hash);                   // "" for ""

  std::mutex mutex;
  Database database;
  std::pair<uint64_t, uint64_t> file_identity;  // device and inode
};

// "INSERT <verb> INTO table(a, b) VALUES (?, ?)" for a list of columns.
inline std::string InsertSql(std::string_view verb, std::string_view table, std::string_view columns) {
  std::string marks = "?";
  for (auto n = std::count(columns.begin(), columns.end(), ','); n > 0; --n) marks += ", ?";
  std::string sql(verb);
  return sql.append(" INTO ")
      .append(table)
      .append("(")
      .append(columns)
      .append(") VALUES (")
      .append(marks)
      .append(")");
}

// Reads the columns of the current row from left to right.
class RowReader {
 public:
  explicit RowReader(const Statement& statement) : statement_(statement) {}
  std::string Text() { return statement_.Text(column_++); }
  int64_t Integer() { return statement_.Integer(column_++); }
  int Int() { return static_cast<int>(Integer()); }
  bool Flag() { return Integer() != 0; }
  double Real() { return statement_.Real(column_++); }
  std::optional<double> OptionalReal() { return statement_.OptionalReal(column_++); }
  std::optional<int64_t> OptionalInteger() { return statement_.OptionalInteger(column_++); }
  std::optional<int> OptionalInt() {
    const auto value = OptionalInteger();
    return value ? std::optional(static_cast<int>(*value)) : std::nullopt;
  }

 private:
  const Statement& statement_;
  int column_ = 0;
};

inline std::optional<std::string> NullIfEmpty(const std::string& text) {
  return text.empty() ? std::nullopt : std::optional(text);
}

// Text from a model or a compiler may be no valid UTF-8; JSON must be.
inline std::string DumpJson(const nlohmann::json& json) {
  return json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

std::string UtcNow();  // "2026-11-21T09:40:12.345Z"

}  // namespace kevin
