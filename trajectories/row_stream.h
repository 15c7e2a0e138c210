#pragma once
// Reading more rows than fit in memory, all of one moment.

#include <string>

#include "trajectories/database.h"

namespace kevin {

// What is read while this lives is of one moment, also while others write.
class Snapshot {
 public:
  explicit Snapshot(Database& database);
  Snapshot(const Snapshot&) = delete;
  Snapshot& operator=(const Snapshot&) = delete;
  ~Snapshot();

 private:
  Database& database_;
};

// The rows of a SELECT one after the other; a server sends some hundred at a time. Lives within a transaction
// or a Snapshot; one at a time per Database.
class RowStream {
 public:
  RowStream(Database& database, const std::string& select);
  RowStream(const RowStream&) = delete;
  RowStream& operator=(const RowStream&) = delete;
  ~RowStream();

  bool Next();
  const Statement& row() const { return statement_; }

 private:
  Database& database_;
  const bool is_cursor_;
  Statement statement_;
};

}  // namespace kevin
