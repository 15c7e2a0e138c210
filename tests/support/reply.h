#pragma once
// What the tests of policies share: tasks written in a line, and the parts of a reply.

#include <cstdint>
#include <string>
#include <vector>

#include "policies/policy.h"

namespace kevin::test {

struct TensorShape {
  std::string name;
  std::vector<int64_t> shape;
};

// A cpp task for `reference` ("def forward(x): ..."), float32 in; the output is int64 when `index_output`.
Request MakeRequest(const std::string& reference, const std::vector<TensorShape>& inputs,
                    const std::vector<int64_t>& output, bool index_output = false);

// The text between ```cpp (or ```cuda) and ```; fails the test when the reply has not exactly one fenced
// block.
std::string SourceOf(const std::string& reply);
// The rest of the line that says which schedule `source` is.
std::string SettingOf(const std::string& source);
void AddAttempt(Task& task, const std::string& source, const std::string& outcome, double speedup);

}  // namespace kevin::test
