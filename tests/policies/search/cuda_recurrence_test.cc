// Recurrent layers and kept loops in CUDA, run on the CPU by an emulation of the device and compared with plain loops in
// double precision: one kernel for all steps, and attention with wide heads as products.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "policies/search/lower.h"
#include "policies/search/write.h"
#include "tests/catch.h"
#include "tests/policies/search/program_cases.h"

using namespace kevin;
using namespace kevin::test;

namespace {

const std::string kRecurrenceHead = "#include \"tests/policies/search/cuda_on_cpu.h\"";

struct LayerCase {
  std::string name;
  std::vector<std::vector<int64_t>> inputs;
  std::vector<std::vector<int64_t>> values;  // made by the nodes; the last is the output
  std::string nodes;
  std::string dtype = "float32";
  double terms = 64;
};

search::Program ProgramOfLayer(const LayerCase& one) {
  std::string inputs, values;
  Task task;
  task.kind = "cuda";
  const auto value = [&](const std::vector<int64_t>& shape) {
    values += fmt::format("{}{{\"dtype\":\"{}\",\"shape\":[{}]}}", values.empty() ? "" : ",", one.dtype,
                          fmt::join(shape, ","));
  };
  for (size_t i = 0; i < one.inputs.size(); ++i) {
    inputs += fmt::format("{}{{\"name\":\"in{}\",\"value\":{}}}", i ? "," : "", i, i);
    value(one.inputs[i]);
    task.arguments.push_back({fmt::format("in{}", i), "input", "", one.inputs[i], {}});
  }
  for (const std::vector<int64_t>& shape : one.values) value(shape);
  task.arguments.push_back({"out0", "output", "", one.values.back(), {}});
  const std::string json =
      fmt::format("{{\"version\":1,\"inputs\":[{}],\"values\":[{}],\"nodes\":[{}],\"outputs\":[{}]}}", inputs,
                  values, one.nodes, one.inputs.size() + one.values.size() - 1);
  search::Program program = search::Lower(search::ParseGraph(json), task);
  search::Fuse(program);
  search::PlaceWorkspaces(program);
  return program;
}

std::string TextOfLayer(const LayerCase& one, int64_t cluster) {
  const search::Program program = ProgramOfLayer(one);
  Task task = TaskOf(program, "cuda");
  for (TaskArgument& argument : task.arguments)
    argument.cpp_type = (argument.role == "output" ? "" : "const ") +
                        std::string(one.dtype == "float16" ? "__half*" : "float*");
  search::Setting setting;
  std::string constants;
  for (const search::Knob& knob : search::CudaKnobs(program, task)) {
    setting[knob.name] = knob.name.starts_with("CLUSTER") ? cluster : knob.values[0];
    constants += fmt::format("constexpr int {} = {};\n", knob.name, setting[knob.name]);
  }
  return constants + search::WriteCuda(program, task, setting);
}

// A tenth of value `from`, so that differences of rounding do not grow from step to step.
std::string TenthOf(size_t from, size_t to) {
  return fmt::format(
      "{{\"op\":\"mul\",\"args\":{{\"self\":{{\"tensor\":{}}},\"other\":0.1}},\"results\":[{}]}},", from, to);
}

// One layer; the outputs of all steps are the last value.
LayerCase Layer(const std::string& op, int64_t steps, int64_t rows, int64_t size, int64_t directions,
                bool has_biases) {
  const int64_t features = 5, gates = (op == "lstm" ? 4 : op == "gru" ? 3 : 1) * size;
  LayerCase one{fmt::format("{} of {} rows, {} directions", op, rows, directions), {}, {}, "", "float32", 64};
  const std::vector<int64_t> state = {directions, rows, size};
  one.inputs = {{steps, rows, features}, state};
  if (op == "lstm") one.inputs.push_back(state);
  std::vector<size_t> params, hidden;
  for (int64_t d = 0; d < directions; ++d) {
    hidden.push_back(one.inputs.size() + 1);
    for (const std::vector<int64_t>& shape :
         std::vector<std::vector<int64_t>>{{gates, features}, {gates, size}, {gates}, {gates}}) {
      if (shape.size() == 1 && !has_biases) continue;
      params.push_back(one.inputs.size());
      one.inputs.push_back(shape);
    }
  }
  for (const size_t weights : hidden) {
    const size_t scaled = one.inputs.size() + one.values.size();
    one.values.push_back({gates, size});
    one.nodes += TenthOf(weights, scaled);
    std::replace(params.begin(), params.end(), weights, scaled);
  }
  const size_t last = one.inputs.size() + one.values.size();
  one.values.insert(one.values.end(), {state, state, {steps, rows, directions * size}});
  one.nodes += fmt::format(
      "{{\"op\":\"{}\",\"args\":{{\"input\":{{\"tensor\":0}},\"hx\":{},\"params\":{{\"tensors\":[{}]}},\"has_"
      "biases\":{},\"num_layers\":1,\"dropout\":0.0,\"train\":false,\"bidirectional\":{},\"batch_first\":false}},"
      "\"results\":[{}]}}",
      op, op == "lstm" ? "{\"tensors\":[1,2]}" : "{\"tensor\":1}", fmt::join(params, ","), has_biases,
      directions == 2,
      op == "lstm" ? fmt::format("{},{},{}", last + 2, last, last + 1)
                   : fmt::format("{},{}", last + 2, last));
  return one;
}

// h = tanh(x[t] w + h u / 10); out[t] = h v: the last product of each step runs after the loop.
LayerCase KeptLoop() {
  LayerCase one{"kept loop", {{20, 3, 4}, {3, 32}, {32, 4}, {32, 32}, {8, 32}}, {}, "", "float32", 64};
  one.values = {{32, 32}, {3, 32}, {3, 4}, {3, 32}, {3, 32}, {3, 32}, {3, 32}, {3, 8}, {3, 32}, {20, 3, 8}};
  const auto linear = [](int x, int weight, int to) {
    return fmt::format(
        "{{\"op\":\"linear\",\"args\":{{\"input\":{{\"tensor\":{}}},\"weight\":{{\"tensor\":{}}},\"bias\":null}},"
        "\"results\":[{}]}},",
        x, weight, to);
  };
  one.nodes =
      TenthOf(3, 5) +
      "{\"op\":\"loop\",\"args\":{\"trip\":20},\"carried\":[[1,6,11,13]],\"stacked\":[[12,14]],\"body\":["
      "{\"op\":\"select\",\"args\":{\"self\":{\"tensor\":0},\"dim\":0,\"index\":{\"base\":0,\"step\":1}},"
      "\"results\":[7]},";
  one.nodes += linear(7, 2, 8) + linear(6, 5, 9);
  one.nodes +=
      "{\"op\":\"add\",\"args\":{\"self\":{\"tensor\":8},\"other\":{\"tensor\":9},\"alpha\":1},\"results\":[10]},"
      "{\"op\":\"tanh\",\"args\":{\"self\":{\"tensor\":10}},\"results\":[11]},";
  one.nodes += linear(11, 4, 12);
  one.nodes.pop_back();
  one.nodes += "],\"results\":[13,14]}";
  return one;
}

LayerCase WideAttention(bool is_causal, bool has_mask, const std::string& dtype) {
  LayerCase one{
      "wide attention", {{2, 2, 9, 136}, {2, 2, 9, 136}, {2, 2, 9, 20}}, {{2, 2, 9, 20}}, "", dtype, 136};
  if (has_mask) one.inputs.push_back({9, 9});
  one.nodes = fmt::format(
      "{{\"op\":\"scaled_dot_product_attention\",\"args\":{{\"query\":{{\"tensor\":0}},\"key\":{{\"tensor\":1}},"
      "\"value\":{{\"tensor\":2}},\"attn_mask\":{},\"dropout_p\":0.0,\"is_causal\":{}}},\"results\":[{}]}}",
      has_mask ? "{\"tensor\":3}" : "null", is_causal, has_mask ? 4 : 3);
  return one;
}

void CheckLayers(const std::vector<LayerCase>& cases, int64_t cluster) {
  std::vector<std::string> sources;
  for (const LayerCase& one : cases) sources.push_back(ToCpp(TextOfLayer(one, cluster)));
  const KernelLibrary library(sources, "-O1 -fno-strict-aliasing -w", kRecurrenceHead);
  for (size_t i = 0; i < cases.size(); ++i)
    CheckProgram({cases[i].name, ProgramOfLayer(cases[i]), cases[i].terms}, library, i);
}

}  // namespace

TEST_CASE("recurrent layers in one CUDA kernel agree with plain loops") {
  std::vector<LayerCase> cases = {
      Layer("lstm", 9, 3, 32, 1, true),       Layer("gru", 9, 3, 32, 1, true),
      Layer("gru", 8, 5, 64, 2, false),       Layer("lstm", 8, 30, 32, 1, true),
      Layer("gru", 11, 1, 32, 1, true),       Layer("rnn_tanh", 10, 3, 32, 1, true),
      Layer("rnn_relu", 9, 17, 32, 2, false), KeptLoop()};
  for (const LayerCase& one : cases) {
    INFO(one.name);
    CHECK(TextOfLayer(one, 1).find("Recur<<<") != std::string::npos);
    CHECK(TextOfLayer(one, 0).find("Recur<<<") == std::string::npos);
  }
  CheckLayers(cases, 1);
  CheckLayers({cases[0], cases[2], cases[7]}, 0);
}

TEST_CASE("recurrent layers in 16 bits, and such that one kernel cannot run, agree with plain loops") {
  std::vector<LayerCase> cases = {Layer("gru", 9, 3, 32, 1, true), Layer("lstm", 8, 2, 32, 1, true)};
  for (LayerCase& one : cases) one.dtype = "float16";
  CheckLayers(cases, 1);
  const std::vector<LayerCase> others = {Layer("lstm", 9, 3, 12, 1, true), Layer("gru", 5, 3, 32, 1, true)};
  for (const LayerCase& one : others) CHECK(TextOfLayer(one, 1).find("Recur<<<") == std::string::npos);
  CheckLayers(others, 1);
}

TEST_CASE("what no later iteration needs leaves the loop") {
  const search::Program program = ProgramOfLayer(KeptLoop());
  const auto repeat = std::find_if(
      program.stages.begin(), program.stages.end(),
      [](const search::Stage& stage) { return std::holds_alternative<search::Repeat>(stage.work); });
  REQUIRE(repeat != program.stages.end());
  REQUIRE(std::next(repeat) != program.stages.end());
  const auto* product = std::get_if<search::Contraction>(&std::next(repeat)->work);
  REQUIRE(product != nullptr);
  int64_t points = 1;
  for (const search::Loop& loop : product->m) points *= loop.extent;
  CHECK(points == 20 * 3);
}

TEST_CASE("attention with wide heads is two products in CUDA") {
  const std::vector<LayerCase> cases = {
      WideAttention(false, false, "float32"), WideAttention(true, false, "float32"),
      WideAttention(false, true, "float32"), WideAttention(true, false, "float16")};
  for (const LayerCase& one : cases) CHECK(TextOfLayer(one, 1).find("Attend<<<") == std::string::npos);
  CheckLayers(cases, 1);
}
