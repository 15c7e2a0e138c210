// Rounding points of programs in 16 bits: which intermediates keep fp32, and how precise wide attention is. The kernels run
// on the CPU by an emulation of the device.

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "policies/search/lower.h"
#include "policies/search/write.h"
#include "tests/catch.h"
#include "tests/policies/search/interpreter.h"
#include "tests/policies/search/program_cases.h"

using namespace kevin;
using namespace kevin::test;

namespace {

struct Tensor {
  std::vector<int64_t> shape;
};

// Values 0, 1, ... are the inputs, then come the results of the nodes in their order.
search::Program ProgramOf(const std::vector<Tensor>& values, size_t inputs,
                          const std::vector<std::string>& nodes, const std::string& dtype) {
  std::string given, list, made;
  Task task;
  task.kind = "cuda";
  for (size_t i = 0; i < values.size(); ++i) {
    list += fmt::format("{}{{\"dtype\":\"{}\",\"shape\":[{}]}}", i ? "," : "", dtype,
                        fmt::join(values[i].shape, ","));
    if (i >= inputs) continue;
    given += fmt::format("{}{{\"name\":\"in{}\",\"value\":{}}}", i ? "," : "", i, i);
    task.arguments.push_back({fmt::format("in{}", i), "input", "", values[i].shape, {}});
  }
  for (size_t i = 0; i < nodes.size(); ++i)
    made += fmt::format("{}{{{},\"results\":[{}]}}", i ? "," : "", nodes[i], inputs + i);
  task.arguments.push_back({"out0", "output", "", values.back().shape, {}});
  const std::string json =
      fmt::format("{{\"version\":1,\"inputs\":[{}],\"values\":[{}],\"nodes\":[{}],\"outputs\":[{}]}}", given,
                  list, made, values.size() - 1);
  search::Program program = search::Lower(search::ParseGraph(json), task);
  search::Fuse(program);
  search::PlaceWorkspaces(program);
  return program;
}

// The types of the workspaces that stages use.
std::vector<std::string> Intermediates(const search::Program& program) {
  std::vector<std::string> types;
  for (const search::Buffer& buffer : program.buffers) {
    if (buffer.argument < 0 && buffer.elements > 0) types.push_back(buffer.dtype);
  }
  std::sort(types.begin(), types.end());
  return types;
}

constexpr const char* kLinear =
    "\"op\":\"linear\",\"args\":{\"input\":{\"tensor\":0},\"weight\":{\"tensor\":1},\"bias\":{\"tensor\":2}}";

}  // namespace

TEST_CASE("what a norm subtracts its mean from keeps fp32, what a product reads keeps 16 bits") {
  const std::vector<Tensor> norm = {{{8, 64}}, {{96, 64}}, {{96}}, {{8, 96}}, {{8, 96}}};
  const std::vector<std::string> nodes = {
      kLinear,
      "\"op\":\"group_norm\",\"args\":{\"input\":{\"tensor\":3},\"num_groups\":4,\"weight\":null,\"bias\":null,\"eps\":1e-5}"};
  CHECK(Intermediates(ProgramOf(norm, 3, nodes, "float16")) == std::vector<std::string>{"float32"});
  CHECK(Intermediates(ProgramOf(norm, 3, nodes, "bfloat16")) == std::vector<std::string>{"float32"});
  const std::vector<Tensor> two = {{{8, 64}}, {{96, 64}}, {{96}}, {{96, 40}}, {{8, 96}}, {{8, 40}}};
  const std::vector<std::string> products = {
      kLinear, "\"op\":\"matmul\",\"args\":{\"self\":{\"tensor\":4},\"other\":{\"tensor\":3}}"};
  CHECK(Intermediates(ProgramOf(two, 4, products, "float16")) == std::vector<std::string>{"float16"});
}

TEST_CASE("where values are rounded to 16 bits more than once on their way, C++ keeps fp32") {
  const auto product = [](int left, int right) {
    return fmt::format(
        "\"op\":\"matmul\",\"args\":{{\"self\":{{\"tensor\":{}}},\"other\":{{\"tensor\":{}}}}}", left, right);
  };
  const auto widened = [](search::Program program) {
    search::WidenChains(program);
    return Intermediates(program);
  };
  // Three products in a row; two products side by side that a third one reads.
  const std::vector<Tensor> chain(7, Tensor{{32, 32}}), side(7, Tensor{{32, 32}});
  CHECK(widened(ProgramOf(chain, 4, {product(0, 1), product(4, 2), product(5, 3)}, "float16")) ==
        std::vector<std::string>(2, "float32"));
  CHECK(widened(ProgramOf(side, 4, {product(0, 1), product(2, 3), product(4, 5)}, "bfloat16")) ==
        std::vector<std::string>(2, "bfloat16"));
}

TEST_CASE("attention of wide heads in 16 bits has no error beyond the rounding of its result") {
  constexpr size_t kRows = 64, kDepth = 160;
  const std::vector<int64_t> shape = {1, 1, kRows, kDepth};
  for (const char* dtype : {"float16", "bfloat16"}) {
    const search::Program program = ProgramOf(
        {{shape}, {shape}, {shape}, {shape}}, 3,
        {"\"op\":\"scaled_dot_product_attention\",\"args\":{\"query\":{\"tensor\":0},\"key\":{\"tensor\":1},\"value\":{\"tensor\":2}}"},
        dtype);
    Task task = TaskOf(program, "cuda");
    const std::string element = std::string(dtype) == "float16" ? "__half" : "__nv_bfloat16";
    for (TaskArgument& argument : task.arguments)
      argument.cpp_type = (argument.role == "output" ? "" : "const ") + element + "*";
    const KernelLibrary library({ToCpp(search::WriteCuda(program, task, {}))}, "-O1 -fno-strict-aliasing -w",
                                "#include \"" KEVIN_SOURCE_DIR "/tests/policies/search/cuda_on_cpu.h\"");
    std::mt19937 random(3);
    std::normal_distribution<double> normal;
    // As given to the kernel, and its result.
    std::vector<std::vector<char>> bytes(4, std::vector<char>(2 * kRows * kDepth + 64));
    std::vector<std::vector<double>> x(3, std::vector<double>(kRows * kDepth));
    std::vector<void*> tensors;
    for (size_t i = 0; i < 4; ++i) {
      const auto start = reinterpret_cast<uintptr_t>(bytes[i].data());
      char* const data = bytes[i].data() + (16 - start % 16) % 16;
      for (size_t e = 0; i < 3 && e < kRows * kDepth; ++e) {
        PutElement(data, e, dtype, normal(random));
        x[i][e] = GetElement(data, e, dtype);
      }
      tensors.push_back(data);
    }
    library.Launch(0, tensors);
    const double u = std::string(dtype) == "float16" ? 0x1p-11 : 0x1p-8;
    double most = 0;
    for (size_t q = 0; q < kRows; ++q) {
      std::vector<double> weights(kRows), truth(kDepth);
      double sum = 0, squares = 0;
      for (size_t k = 0; k < kRows; ++k) {
        double score = 0;
        for (size_t d = 0; d < kDepth; ++d) score += x[0][q * kDepth + d] * x[1][k * kDepth + d];
        sum += weights[k] = std::exp(score / std::sqrt(double(kDepth)));
      }
      for (size_t d = 0; d < kDepth; ++d) {
        for (size_t k = 0; k < kRows; ++k) truth[d] += weights[k] / sum * x[2][k * kDepth + d];
        squares += truth[d] * truth[d] / kDepth;
      }
      for (size_t d = 0; d < kDepth; ++d) {
        const double error =
            std::fabs(GetElement(static_cast<char*>(tensors[3]), q * kDepth + d, dtype) - truth[d]);
        most = std::max(most, (error - u * std::fabs(truth[d])) / (u * std::sqrt(squares)));
      }
    }
    INFO(dtype << ": most " << most);
    CHECK(most < 0.3);  // weights of 16 bits: above 1
  }
}
