#pragma once
// Statements of one transaction as one text, so that they take one round trip to the server instead of one
// each: rows for the same table become one INSERT. No connection in here; postgres.cc sends the text.
//
// Order: inserts go table by table in the order of schema.sql, where tables refer only to those above them,
// so that rows from many writes meet in one statement. What must see all that came before closes the row of
// inserts (kInOrder); what has nothing to do with them goes ahead (kAhead).

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "trajectories/engine.h"

namespace kevin {

class StatementBatch {
 public:
  // Whether AddInsert takes it: "INSERT INTO table(...) VALUES (?, ...)" and perhaps ON CONFLICT DO NOTHING
  // and RETURNING.
  static bool IsInsert(std::string_view sql);

  // `literals` are as SQL writes them, quoted. `needs_row`: the batch fails when the row is not inserted.
  void AddInsert(const std::string& sql, const std::vector<std::string>& literals, bool needs_row);

  // Any other statement, complete.
  void Add(const std::string& statement, BatchOrder order);

  bool empty() const { return bytes_ == 0; }
  size_t bytes() const { return bytes_; }  // about as many as the text will have
  std::string TakeText();                  // empty afterwards
  void Clear();

  // `statement` (with RETURNING, or a SELECT) as one that fails unless it gives exactly `rows` rows.
  static std::string Requiring(std::string_view statement, size_t rows);

 private:
  struct Shape {  // of an INSERT: what stands before, between and after the values
    std::string head, tail;
    std::vector<std::string> between;
    size_t table = 0;  // its place in schema.sql
    bool skips_conflicts = false;
  };
  struct Rows {
    const Shape* shape = nullptr;
    bool needs_rows = false;
    std::vector<std::string> rows;
  };
  using Inserts = std::map<std::pair<size_t, std::string>, Rows>;  // by table and SQL

  const Shape& ShapeOf(const std::string& sql);
  void CloseInserts();

  std::map<std::string, Shape> shapes_;
  std::string closed_;  // statements, in order
  std::string ahead_;
  Inserts inserts_;  // after `ahead_`
  size_t bytes_ = 0;
};

}  // namespace kevin
