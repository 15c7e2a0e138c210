#include "trajectories/statement_batch.h"

#include <fmt/format.h>

#include <algorithm>

#include "trajectories/catalog.h"

namespace kevin {
namespace {

constexpr std::string_view kInsertInto = "INSERT INTO ", kValues = " VALUES (";

size_t PlaceOfTable(const std::string& table) {
  const std::vector<std::string>& tables = SchemaTables();
  return static_cast<size_t>(std::find(tables.begin(), tables.end(), table) - tables.begin());
}

}  // namespace

bool StatementBatch::IsInsert(std::string_view sql) {
  return sql.starts_with(kInsertInto) && sql.find(kValues) != std::string_view::npos;
}

std::string StatementBatch::Requiring(std::string_view statement, size_t rows) {
  return fmt::format("WITH required AS ({}) SELECT 1 / (count(*) = {})::int FROM required", statement, rows);
}

const StatementBatch::Shape& StatementBatch::ShapeOf(const std::string& sql) {
  const auto known = shapes_.find(sql);
  if (known != shapes_.end()) return known->second;
  Shape shape;
  const size_t table = kInsertInto.size(), row = sql.find(kValues) + kValues.size() - 1;
  const size_t end = sql.find(')', row) + 1;
  shape.table = PlaceOfTable(sql.substr(table, sql.find('(') - table));
  shape.head = sql.substr(0, row), shape.tail = sql.substr(end);
  shape.skips_conflicts = shape.tail.find("ON CONFLICT DO NOTHING") != std::string::npos;
  shape.between.emplace_back();
  for (size_t i = row; i < end; ++i) {
    if (sql[i] == '?') {
      shape.between.emplace_back();
    } else {
      shape.between.back() += sql[i];
    }
  }
  return shapes_.emplace(sql, std::move(shape)).first->second;
}

void StatementBatch::AddInsert(const std::string& sql, const std::vector<std::string>& literals,
                               bool needs_row) {
  const Shape& shape = ShapeOf(sql);
  std::string row = shape.between.front();
  for (size_t i = 0; i < literals.size(); ++i) row.append(literals[i]).append(shape.between[i + 1]);
  bytes_ += row.size();
  Rows& rows = inserts_[{shape.table, sql}];
  rows.shape = &shape, rows.needs_rows |= needs_row;
  rows.rows.push_back(std::move(row));
}

void StatementBatch::Add(const std::string& statement, BatchOrder order) {
  if (order == BatchOrder::kInOrder) CloseInserts();
  (order == BatchOrder::kInOrder ? closed_ : ahead_).append(statement).append(";\n");
  bytes_ += statement.size();
}

void StatementBatch::CloseInserts() {
  closed_ += ahead_;
  ahead_.clear();
  for (auto& [key, rows] : inserts_) {
    // Writers that meet on the same rows must come to them in the same order, or they wait for each other.
    if (rows.shape->skips_conflicts) std::sort(rows.rows.begin(), rows.rows.end());
    const std::string insert =
        fmt::format("{}{}{}", rows.shape->head, fmt::join(rows.rows, ", "), rows.shape->tail);
    closed_.append(rows.needs_rows ? Requiring(insert, rows.rows.size()) : insert).append(";\n");
  }
  inserts_.clear();
}

std::string StatementBatch::TakeText() {
  CloseInserts();
  bytes_ = 0;
  return std::exchange(closed_, {});
}

void StatementBatch::Clear() {
  closed_.clear(), ahead_.clear(), inserts_.clear();
  bytes_ = 0;
}

}  // namespace kevin
