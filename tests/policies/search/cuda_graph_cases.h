#pragma once
// Graphs of one operation, and the CUDA text for them as C++ for the emulation of the device.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <string>
#include <vector>

#include "policies/search/lower.h"
#include "policies/search/write.h"
#include "tests/policies/search/program_cases.h"

namespace kevin::test {

inline const std::string kProductsHead = "#include \"tests/policies/search/cuda_on_cpu.h\"";

struct GraphCase {
  std::string op, args;  // in the form of the graph's JSON; operands are values 0, 1, ...
  std::vector<std::vector<int64_t>> inputs;
  std::vector<int64_t> output;
  std::string dtype = "float32";
  search::Setting setting = {};
};

inline std::string JsonOf(const GraphCase& one) {
  std::string inputs, values;
  for (size_t i = 0; i < one.inputs.size(); ++i) {
    inputs += fmt::format("{}{{\"name\":\"in{}\",\"value\":{}}}", i ? "," : "", i, i);
    values += fmt::format("{{\"dtype\":\"{}\",\"shape\":[{}]}},", one.dtype, fmt::join(one.inputs[i], ","));
  }
  values += fmt::format("{{\"dtype\":\"{}\",\"shape\":[{}]}}", one.dtype, fmt::join(one.output, ","));
  return fmt::format(
      "{{\"version\":1,\"inputs\":[{}],\"values\":[{}],\"nodes\":[{{\"op\":\"{}\",\"args\":{{{}}},\"results\":[{}]}}],\"outputs\":[{}]}}",
      inputs, values, one.op, one.args, one.inputs.size(), one.inputs.size());
}

inline Task TaskFor(const GraphCase& one) {
  Task task;
  task.kind = "cuda";
  for (size_t i = 0; i < one.inputs.size(); ++i)
    task.arguments.push_back({fmt::format("in{}", i), "input", "", one.inputs[i], {}});
  task.arguments.push_back({"out0", "output", "", one.output, {}});
  return task;
}

inline search::Program ProgramOf(const GraphCase& one) {
  search::Program program = search::Lower(search::ParseGraph(JsonOf(one)), TaskFor(one));
  search::Fuse(program);
  search::PlaceWorkspaces(program);
  return program;
}

// Knobs that stand in the text become constants, as the environment makes them.
inline std::string SourceFor(const GraphCase& one) {
  const search::Program program = ProgramOf(one);
  std::string constants;
  for (const auto& [name, value] : one.setting)
    constants += fmt::format("constexpr int {} = {};\n", name, value);
  Task task = TaskOf(program, "cuda");
  for (TaskArgument& argument : task.arguments) {
    const std::string element = one.dtype == "float16"    ? "__half"
                                : one.dtype == "bfloat16" ? "__nv_bfloat16"
                                                          : "float";
    argument.cpp_type = (argument.role == "output" ? "" : "const ") + element + "*";
  }
  return ToCpp(constants + search::WriteCuda(program, task, one.setting));
}

}  // namespace kevin::test
