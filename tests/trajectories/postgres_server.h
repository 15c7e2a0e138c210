#pragma once
// A PostgreSQL server of the test's own, from the system's programs: no port, only a socket in a folder that
// goes away. Started once per program, ended with it.

#include <string>

#include "env/error.h"
#include "tests/catch.h"
#include "trajectories/store.h"

namespace kevin {

class PostgresServer {
 public:
  // The server of this program. Prints "skipped: ..." and ends the program with code 0 where the system has
  // no PostgreSQL.
  static PostgresServer& Get();
  ~PostgresServer();
  PostgresServer(const PostgresServer&) = delete;
  PostgresServer& operator=(const PostgresServer&) = delete;

  // A new, empty database; returns its address.
  std::string NewDatabase();

  // An immediate stop, as by kill -9, and a start with what it left. (It runs without fsync: many small
  // databases are made here, and no power is cut.)
  void Crash();
  void Start();

 private:
  PostgresServer();

  std::string programs_, folder_;
  unsigned user_ = 0;
  int server_ = -1;  // process id
  int databases_ = 0;
};

// "code: reason" of the Error that opening throws, or "opened".
inline std::string OpenError(const std::string& address, OpenMode mode) {
  try {
    Store::Open(address, mode);
    return "opened";
  } catch (const Error& error) {
    CHECK_FALSE(error.next_step().empty());
    return std::to_string(static_cast<int>(error.code())) + ": " + error.what();
  }
}

inline bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace kevin
