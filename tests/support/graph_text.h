#pragma once
// Graphs of references as JSON (env/reference/graph.h) and tasks with them, written by hand: for tests without torch.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "policies/policy.h"

namespace kevin::test {

struct TensorShape {
  std::string name;
  std::vector<int64_t> shape;
  std::string dtype = "float32";
};

// An operation with one result, named by the node's number in the graph.
struct GraphStep {
  std::string op;
  std::string args;  // JSON; inputs are the tensors 0, 1, ..., the results of steps follow them
  std::vector<int64_t> shape;
  std::string dtype = "float32";
};

// The last step is the output.
inline std::string GraphText(const std::vector<TensorShape>& inputs, const std::vector<GraphStep>& steps) {
  std::vector<std::string> names, values, nodes;
  const auto add_value = [&](const std::string& dtype, const std::vector<int64_t>& shape) {
    values.push_back(fmt::format(R"({{"dtype":"{}","shape":[{}]}})", dtype, fmt::join(shape, ",")));
  };
  for (const TensorShape& input : inputs) {
    names.push_back(fmt::format(R"({{"name":"{}","value":{}}})", input.name, values.size()));
    add_value(input.dtype, input.shape);
  }
  for (const GraphStep& step : steps) {
    nodes.push_back(
        fmt::format(R"({{"op":"{}","args":{},"results":[{}]}})", step.op, step.args, values.size()));
    add_value(step.dtype, step.shape);
  }
  return fmt::format(R"({{"version":1,"inputs":[{}],"values":[{}],"nodes":[{}],"outputs":[{}]}})",
                     fmt::join(names, ","), fmt::join(values, ","), fmt::join(nodes, ","), values.size() - 1);
}

// A task of kind cpp for float32 inputs, at one shape without symbols.
inline Request GraphRequest(const std::vector<TensorShape>& inputs, const std::vector<GraphStep>& steps) {
  Request request;
  Task& task = request.task;
  task.problem = "test/1";
  task.kind = "cpp";
  task.threads = 2;
  for (const TensorShape& input : inputs)
    task.arguments.push_back({input.name, "input", "const float*", input.shape, {}});
  task.arguments.push_back({"out", "output", "float*", steps.back().shape, {}});
  task.shape_graphs = {{{}, GraphText(inputs, steps), ""}};
  return request;
}

inline std::vector<GraphStep> ReluSteps(const std::vector<int64_t>& shape) {
  return {{"relu", R"({"self":{"tensor":0}})", shape}};
}

}  // namespace kevin::test
