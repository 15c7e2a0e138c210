#pragma once
// Shared by the tests of policies: the parts of a reply, and attempts.

#include <string>

#include "policies/policy.h"
#include "tests/catch.h"

namespace kevin::test {

// The text between ```cpp (or ```cuda) and ```. Fails the test unless the reply has exactly one fenced block.
inline std::string SourceOf(const std::string& reply) {
  const bool is_cuda = reply.find("```cuda\n") != std::string::npos;
  const std::string open = is_cuda ? "```cuda\n" : "```cpp\n";
  const size_t start = reply.find(open);
  REQUIRE(start != std::string::npos);
  const size_t end = reply.find("```", start + open.size());
  REQUIRE(end != std::string::npos);
  REQUIRE(reply.find("```", end + 3) == std::string::npos);
  REQUIRE(reply.find("```") == start);
  return reply.substr(start + open.size(), end - start - open.size());
}

// The search policy's setting in the first line of `source`.
inline std::string SettingOf(const std::string& source) {
  const std::string mark = "// search: ";
  REQUIRE(source.rfind(mark, 0) == 0);
  return source.substr(mark.size(), source.find('\n') - mark.size());
}

inline void AddAttempt(Task& task, const std::string& source, const std::string& outcome, double speedup) {
  TaskAttempt attempt;
  attempt.source = source;
  attempt.outcome = outcome;
  if (outcome == "measured") attempt.speedup = speedup;
  task.attempts.push_back(attempt);
  ++task.turn;
}

}  // namespace kevin::test
