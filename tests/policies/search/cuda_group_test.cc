// Small products of one input in one launch, in 16 bits: run on the CPU by an emulation of the device and compared with
// plain loops over the program in double precision.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "policies/search/lower.h"
#include "policies/search/write.h"
#include "tests/catch.h"
#include "tests/policies/search/program_cases.h"

using namespace kevin;
using namespace kevin::test;

namespace {

const std::string kGroupHead = "#include \"tests/policies/search/cuda_on_cpu.h\"";

struct GroupCase {
  int64_t rows = 1, columns = 1, terms = 1;
  bool is_gated = false;        // silu(x a) * (x b), else outputs x a, x b, x c
  bool is_kept = false;         // gated: x a is an output too
  int64_t tile = 0, depth = 0;  // 0: as chosen
};

search::Program ProgramOfGroup(const GroupCase& one, const std::string& dtype) {
  Task task;
  task.kind = "cuda";
  const size_t weights = one.is_gated ? 2 : 3;
  std::string inputs, values, nodes;
  const auto value = [&](int64_t rows, int64_t columns) {
    values += fmt::format("{}{{\"dtype\":\"{}\",\"shape\":[{},{}]}}", values.empty() ? "" : ",", dtype, rows,
                          columns);
  };
  for (size_t i = 0; i <= weights; ++i) {
    const int64_t rows = i == 0 ? one.rows : one.columns;
    inputs += fmt::format("{}{{\"name\":\"in{}\",\"value\":{}}}", i ? "," : "", i, i);
    value(rows, one.terms);
    task.arguments.push_back({fmt::format("in{}", i), "input", "", {rows, one.terms}, {}});
  }
  for (size_t i = 1; i <= weights; ++i) {
    value(one.rows, one.columns);
    nodes += fmt::format(
        "{}{{\"op\":\"linear\",\"args\":{{\"input\":{{\"tensor\":0}},\"weight\":{{\"tensor\":{}}},\"bias\":null}},"
        "\"results\":[{}]}}",
        i > 1 ? "," : "", i, weights + i);
  }
  std::vector<size_t> outputs = {4, 5, 6};
  if (one.is_gated) {
    value(one.rows, one.columns), value(one.rows, one.columns);
    nodes +=
        ",{\"op\":\"silu\",\"args\":{\"self\":{\"tensor\":3}},\"results\":[5]},"
        "{\"op\":\"mul\",\"args\":{\"self\":{\"tensor\":5},\"other\":{\"tensor\":4}},\"results\":[6]}";
    outputs = {6};
    if (one.is_kept) outputs = {3, 6};
  }
  for (size_t i = 0; i < outputs.size(); ++i)
    task.arguments.push_back({fmt::format("out{}", i), "output", "", {one.rows, one.columns}, {}});
  search::Program program =
      search::Lower(search::ParseGraph(fmt::format(
                        "{{\"version\":1,\"inputs\":[{}],\"values\":[{}],\"nodes\":[{}],\"outputs\":[{}]}}",
                        inputs, values, nodes, fmt::join(outputs, ","))),
                    task);
  search::Fuse(program);
  search::PlaceWorkspaces(program);
  return program;
}

std::string TextOfGroup(const GroupCase& one, const std::string& dtype) {
  const search::Program program = ProgramOfGroup(one, dtype);
  Task task = TaskOf(program, "cuda");
  for (TaskArgument& argument : task.arguments)
    argument.cpp_type = (argument.role == "output" ? "" : "const ") +
                        std::string(dtype == "float16" ? "__half*" : "__nv_bfloat16*");
  search::Setting setting;
  std::string constants;
  for (const search::Knob& knob : search::CudaKnobs(program, task)) {
    const int64_t asked = knob.name == "TILE_0" ? one.tile : knob.name == "TILE_K_0" ? one.depth : 0;
    setting[knob.name] = asked > 0 ? asked : knob.values.at(0);
    constants += fmt::format("constexpr int {} = {};\n", knob.name, setting[knob.name]);
  }
  return constants + search::WriteCuda(program, task, setting);
}

size_t LaunchesIn(const std::string& text) {
  size_t launches = 0;
  for (size_t at = text.find("<<<"); at != std::string::npos; at = text.find("<<<", at + 1)) ++launches;
  return launches;
}

}  // namespace

TEST_CASE("small products of one input are one launch, and agree with plain loops") {
  for (const std::string dtype : {"float16", "bfloat16"}) {
    const std::vector<GroupCase> cases = {{70, 88, 136, true, false, 0, 0},
                                          {33, 72, 200, true, true, 64064, 64},
                                          {40, 56, 72, true, false, 32032, 64},
                                          {70, 88, 136, false, false, 0, 0},
                                          {5, 40, 264, false, false, 16064, 128}};
    std::vector<std::string> sources;
    for (const GroupCase& one : cases) {
      const std::string text = TextOfGroup(one, dtype);
      // Where what the gate is made of is an output too, the first product has two results.
      CHECK(LaunchesIn(text) == (one.is_kept ? 2 : 1));
      sources.push_back(ToCpp(text));
    }
    const KernelLibrary library(sources, "-O1 -fno-strict-aliasing -w", kGroupHead);
    for (size_t i = 0; i < cases.size(); ++i) {
      const GroupCase& one = cases[i];
      if (one.is_gated && dtype == "float16") continue;  // beyond its range
      const std::string name =
          fmt::format("{} of {} x {} x {}, gated {}", dtype, one.rows, one.columns, one.terms, one.is_gated);
      CheckProgram({name, ProgramOfGroup(one, dtype), static_cast<double>(one.terms)}, library, i);
    }
  }
}
