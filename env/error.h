#pragma once
// The one exception type. A candidate's error is an Outcome (environment.h), never an Error. An Error is a
// failure of the infrastructure or an invalid request. It is caught once, in main.
//
// Every folder may include this header: standard library only, no .cc.

#include <stdexcept>
#include <string>
#include <utility>

namespace kevin {

// The exit codes of `kevin`. Scripts rely on these values.
enum class ExitCode : int {
  kDone = 0,
  kBadRequest = 2,  // usage, unknown problem, bad file, unwritable, corrupt or newer database, missing key
  kMachine = 3,     // this machine lacks something: compiler, driver, GPU, namespaces
  kBroken = 4,   // a failure during the work: disk full, database or API unavailable; finished work is kept
  kSandbox = 5,  // a forbidden act succeeded in the sandbox self-test
  kInterrupted = 130  // closed cleanly after Ctrl-C
};

class Error : public std::runtime_error {
 public:
  // `what`: the thing and the reason ("kevin.db: database is newer (v4) than this program (v1)").
  // `next_step`: what the user can do; printed on its own line. May be empty.
  Error(ExitCode code, const std::string& what, std::string next_step = "")
      : std::runtime_error(what), code_(code), next_step_(std::move(next_step)) {}
  ExitCode code() const { return code_; }
  const std::string& next_step() const { return next_step_; }

 private:
  ExitCode code_;
  std::string next_step_;
};

}  // namespace kevin
