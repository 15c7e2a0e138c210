#pragma once
// The graph of a reference as torch sees it: operations with shapes, in the order of execution, loops over layers
// unrolled. env/reference/graph.h makes it and describes the JSON; `agent` carries it in Task::graphs. Plain values.

#include <array>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "policies/policy.h"

namespace kevin::search {

// The task cannot be written: the message names the operation.
class Unsupported : public Error {
 public:
  explicit Unsupported(const std::string& what) : Error(ExitCode::kBadRequest, what) {}
};

struct GraphValue {
  std::string dtype;  // "float32", "float16", "bfloat16", "float64", "int64", "int32", "bool"
  std::vector<int64_t> shape;
};

struct GraphNode {
  std::string op;            // of ATen without "aten::": "conv2d"; "loop" for a kept loop
  nlohmann::json args;       // by the name of torch's schema; a tensor is {"tensor": value}
  std::vector<int> results;  // values
  // Of a loop (env/reference/graph.h); -1 where there is no value.
  std::vector<std::array<int, 4>> carried;  // init, param, next, result
  std::vector<std::array<int, 2>> stacked;  // next, result
  std::vector<GraphNode> body;              // its integers may be {"base": b, "step": s}
};

struct GraphInput {
  std::string name;  // as in the problem file
  int value = 0;
};

struct Graph {
  std::vector<GraphInput> inputs;
  std::vector<GraphValue> values;
  std::vector<GraphNode> nodes;
  std::vector<int> outputs;
};

// Afterwards: every value is made once, before its uses, and those of a body are not used outside; shapes are not
// negative and have at most 2^62 elements; references to values stand only where env/reference/graph.h has them.
// Throws Error(kBadRequest) for text that is no such graph.
Graph ParseGraph(const std::string& json);

}  // namespace kevin::search
