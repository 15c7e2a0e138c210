#pragma once
// Shared by the tests of policies: short tasks, and the parts of a reply.

#include <cstdint>
#include <string>
#include <vector>

#include "policies/policy.h"
#include "tests/catch.h"

namespace kevin::test {

struct TensorShape {
  std::string name;
  std::vector<int64_t> shape;
};

// A task of kind cpp for `reference` ("def forward(x): ..."), with float32 inputs; the output is int64 when
// `index_output`.
inline Request MakeRequest(const std::string& reference, const std::vector<TensorShape>& inputs,
                           const std::vector<int64_t>& output, bool index_output = false) {
  Request request;
  Task& task = request.task;
  task.problem = "test/1";
  task.kind = "cpp";
  task.reference = reference;
  task.threads = 2;
  for (const TensorShape& input : inputs) {
    task.arguments.push_back({input.name, "input", "const float*", input.shape, {}});
  }
  task.arguments.push_back({"out", "output", index_output ? "long*" : "float*", output, {}});
  return request;
}

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
