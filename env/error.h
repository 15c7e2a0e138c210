#pragma once
// The one exception type. A bad kernel is never an Error (it is an Outcome, see environment.h); an Error is
// broken infrastructure or a wrong request, thrown where it is met and caught once, in main.
//
// This header is the only one that every folder may include: std only, no .cc.

#include <stdexcept>
#include <string>
#include <utility>

namespace kevin {

// What `kevin` exits with. Scripts rely on these values.
enum class ExitCode : int {
  kDone = 0,
  kBadRequest = 2,    // usage, unknown problem, bad file, unwritable, corrupt or newer database, missing key
  kMachine = 3,       // this machine lacks something: compiler, driver, GPU, namespaces
  kBroken = 4,        // something broke on the way: disk full, database gone, API dead; what was done is kept
  kSandbox = 5,       // a forbidden act succeeded in the sandbox self-test
  kInterrupted = 130  // closed cleanly after Ctrl-C
};

class Error : public std::runtime_error {
 public:
  // `what`: the thing and the reason ("kevin.db: database is newer (v4) than this program (v1)").
  // `next_step`: what the person can do now; printed on its own line. May be empty.
  Error(ExitCode code, const std::string& what, std::string next_step = "")
      : std::runtime_error(what), code_(code), next_step_(std::move(next_step)) {}
  ExitCode code() const { return code_; }
  const std::string& next_step() const { return next_step_; }

 private:
  ExitCode code_;
  std::string next_step_;
};

}  // namespace kevin
