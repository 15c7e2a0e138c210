#pragma once
// A new database for one test, on the engine that the test program is linked for: the same cases run on both.

#include <memory>
#include <string>

#include "trajectories/database.h"
#include "trajectories/store.h"

namespace kevin {

class TestDatabase {
 public:
  TestDatabase();
  ~TestDatabase();
  TestDatabase(const TestDatabase&) = delete;
  TestDatabase& operator=(const TestDatabase&) = delete;

  const std::string& address() const { return address_; }  // for --db
  std::string name() const;                                // as messages and records call it
  Store Open(OpenMode mode) const { return Store::Open(address_, mode); }
  Database Look() const;  // behind the store's back

  // What becomes of a text column's value.
  static std::string AsTextIsKept(const std::string& text);

 private:
  struct Impl;
  std::string address_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace kevin
