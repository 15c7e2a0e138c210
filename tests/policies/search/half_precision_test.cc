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

// Runs the CUDA text on normal values of the deviations given, 1 where none is. `x` are the inputs as the kernel gets them,
// then its output. All tensors are of `dtype`.
std::vector<std::vector<double>> RunOnNormalValues(const search::Program& program, const std::string& dtype,
                                                   const std::vector<size_t>& elements,
                                                   const std::vector<double>& deviations = {}) {
  Task task = TaskOf(program, "cuda");
  const std::string element = dtype == "float16" ? "__half" : "__nv_bfloat16";
  for (TaskArgument& argument : task.arguments)
    argument.cpp_type = (argument.role == "output" ? "" : "const ") + element + "*";
  const KernelLibrary library({ToCpp(search::WriteCuda(program, task, {}))}, "-O1 -fno-strict-aliasing -w",
                              "#include \"tests/policies/search/cuda_on_cpu.h\"");
  std::mt19937 random(3);
  std::normal_distribution<double> normal;
  std::vector<std::vector<char>> bytes;
  std::vector<void*> tensors;
  std::vector<std::vector<double>> x;
  for (const size_t count : elements) {
    bytes.emplace_back(2 * count + 64);
    const auto start = reinterpret_cast<uintptr_t>(bytes.back().data());
    char* const data = bytes.back().data() + (16 - start % 16) % 16;
    x.emplace_back(count);
    for (size_t e = 0; e < count; ++e) {
      const size_t at = x.size() - 1;
      PutElement(data, e, dtype, normal(random) * (at < deviations.size() ? deviations[at] : 1));
      x.back()[e] = GetElement(data, e, dtype);
    }
    tensors.push_back(data);
  }
  library.Launch(0, tensors);
  for (size_t e = 0; e < elements.back(); ++e)
    x.back()[e] = GetElement(static_cast<char*>(tensors.back()), e, dtype);
  return x;
}

// The largest error beyond the rounding of the result, in roundings of a value as large as the root mean square of the row.
double MostBeyondRounding(const std::vector<double>& answer, const std::vector<double>& truth, size_t row,
                          const std::string& dtype) {
  const double u = dtype == "float16" ? 0x1p-11 : 0x1p-8;
  double most = 0;
  for (size_t begin = 0; begin < truth.size(); begin += row) {
    double squares = 0;
    for (size_t i = begin; i < begin + row; ++i) squares += truth[i] * truth[i] / double(row);
    for (size_t i = begin; i < begin + row; ++i)
      most = std::max(most,
                      (std::fabs(answer[i] - truth[i]) - u * std::fabs(truth[i])) / (u * std::sqrt(squares)));
  }
  return most;
}

constexpr const char* kLinear =
    "\"op\":\"linear\",\"args\":{\"input\":{\"tensor\":0},\"weight\":{\"tensor\":1},\"bias\":{\"tensor\":2}}";

std::string Product(size_t left, size_t right) {
  return fmt::format("\"op\":\"matmul\",\"args\":{{\"self\":{{\"tensor\":{}}},\"other\":{{\"tensor\":{}}}}}",
                     left, right);
}

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
  const auto widened = [](search::Program program) {
    search::WidenChains(program, 1);
    return Intermediates(program);
  };
  // Three products in a row; two products side by side that a third one reads.
  const std::vector<Tensor> chain(7, Tensor{{32, 32}}), side(7, Tensor{{32, 32}});
  CHECK(widened(ProgramOf(chain, 4, {Product(0, 1), Product(4, 2), Product(5, 3)}, "float16")) ==
        std::vector<std::string>(2, "float32"));
  CHECK(widened(ProgramOf(side, 4, {Product(0, 1), Product(2, 3), Product(4, 5)}, "bfloat16")) ==
        std::vector<std::string>(2, "bfloat16"));
}

TEST_CASE(
    "a chain of products whose intermediates keep fp32 has no error beyond the rounding of its result") {
  constexpr size_t kSide = 48, kProducts = 4;
  std::vector<Tensor> values(2 * kProducts + 1, Tensor{{kSide, kSide}});
  std::vector<std::string> nodes;
  for (size_t i = 0; i < kProducts; ++i) nodes.push_back(Product(i == 0 ? 0 : kProducts + i, i + 1));
  for (const std::string dtype : {"float16", "bfloat16"}) {
    search::Program program = ProgramOf(values, kProducts + 1, nodes, dtype);
    const auto most = [&] {
      const auto x = RunOnNormalValues(program, dtype, std::vector<size_t>(kProducts + 2, kSide * kSide));
      std::vector<double> truth = x[0];
      for (size_t p = 1; p <= kProducts; ++p) {
        std::vector<double> next(kSide * kSide);
        for (size_t i = 0; i < kSide; ++i) {
          for (size_t j = 0; j < kSide; ++j) {
            for (size_t k = 0; k < kSide; ++k)
              next[i * kSide + j] += truth[i * kSide + k] * x[p][k * kSide + j];
          }
        }
        truth = std::move(next);
      }
      return MostBeyondRounding(x.back(), truth, kSide, dtype);
    };
    const double narrow = most();
    CHECK(search::WidenChains(program, 0));
    search::PlaceWorkspaces(program);
    const double wide = most();
    INFO(dtype << ": most " << narrow << " and " << wide);
    CHECK((wide < 0.1 && narrow > 0.5));
    CHECK_FALSE(search::WidenChains(program, 0));
  }
}

// Rows of `columns` of x times the transposed matrix.
std::vector<double> TimesTransposed(const std::vector<double>& x, const std::vector<double>& matrix,
                                    size_t columns) {
  const size_t rows = x.size() / columns, lines = matrix.size() / columns;
  std::vector<double> result(rows * lines);
  for (size_t i = 0; i < rows; ++i) {
    for (size_t j = 0; j < lines; ++j) {
      for (size_t k = 0; k < columns; ++k)
        result[i * lines + j] += x[i * columns + k] * matrix[j * columns + k];
    }
  }
  return result;
}

// Rows of `depth`: softmax(query key^T / sqrt(depth)) value.
std::vector<double> AttentionOf(const std::vector<double>& query, const std::vector<double>& key,
                                const std::vector<double>& value, size_t depth) {
  const std::vector<double> scores = TimesTransposed(query, key, depth);
  const size_t keys = key.size() / depth;
  std::vector<double> result(query.size());
  for (size_t q = 0; q < query.size() / depth; ++q) {
    const double top = *std::max_element(&scores[q * keys], &scores[q * keys] + keys);
    std::vector<double> weights(keys);
    double sum = 0;
    for (size_t k = 0; k < keys; ++k)
      sum += weights[k] = std::exp((scores[q * keys + k] - top) / std::sqrt(double(depth)));
    for (size_t k = 0; k < keys; ++k) {
      for (size_t d = 0; d < depth; ++d) result[q * depth + d] += weights[k] / sum * value[k * depth + d];
    }
  }
  return result;
}

// Eight times as large inputs as usual give scores of some tens: of two keys that are nearly equal, a rounding of the
// queries changes the weights by more than that of the result.
TEST_CASE("queries and keys that are products keep twice their digits") {
  constexpr int64_t kRows = 64;
  for (const auto& [dtype, depth] :
       std::vector<std::pair<const char*, int64_t>>{{"float16", 48}, {"bfloat16", 48}, {"bfloat16", 264}}) {
    const Tensor rows = {{1, kRows, depth}}, weight = {{depth, depth}};
    const auto linear = [](int matrix) {
      return fmt::format(
          "\"op\":\"linear\",\"args\":{{\"input\":{{\"tensor\":0}},\"weight\":{{\"tensor\":{}}},\"bias\":null}}",
          matrix);
    };
    search::Program program = ProgramOf(
        {rows, weight, weight, rows, rows, rows, rows}, 4,
        {linear(1), linear(2),
         "\"op\":\"scaled_dot_product_attention\",\"args\":{\"query\":{\"tensor\":4},\"key\":{\"tensor\":5},\"value\":{\"tensor\":3}}"},
        dtype);
    const auto columns = static_cast<size_t>(depth);
    const std::vector<size_t> elements = {kRows * columns, columns * columns, columns * columns,
                                          kRows * columns, kRows * columns};
    const double deviation = 0.58 / std::sqrt(double(depth));
    const auto most = [&] {
      const auto x = RunOnNormalValues(program, dtype, elements, {8, deviation, deviation, 1});
      const std::vector<double> truth = AttentionOf(TimesTransposed(x[0], x[1], columns),
                                                    TimesTransposed(x[0], x[2], columns), x[3], columns);
      return MostBeyondRounding(x.back(), truth, columns, dtype);
    };
    const double once = most();
    search::KeepScoreOperands(program);
    search::PlaceWorkspaces(program);
    const double twice = most();
    INFO(dtype << " of depth " << depth << ": most " << once << " and " << twice);
    CHECK((twice < 0.3 && once > 2));
  }
}

TEST_CASE("attention in 16 bits, streamed or as products, has no error beyond the rounding of its result") {
  constexpr size_t kRows = 64;
  for (const auto& [dtype, kDepth] :
       std::vector<std::pair<const char*, size_t>>{{"float16", 64}, {"bfloat16", 64}, {"bfloat16", 264}}) {
    const auto columns = static_cast<int64_t>(kDepth);
    const std::vector<int64_t> shape = {1, 1, kRows, columns};
    const search::Program program = ProgramOf(
        {{shape}, {shape}, {shape}, {shape}}, 3,
        {"\"op\":\"scaled_dot_product_attention\",\"args\":{\"query\":{\"tensor\":0},\"key\":{\"tensor\":1},\"value\":{\"tensor\":2}}"},
        dtype);
    const auto x = RunOnNormalValues(program, dtype, std::vector<size_t>(4, kRows * kDepth));
    const std::vector<double> truth = AttentionOf(x[0], x[1], x[2], kDepth);
    const double most = MostBeyondRounding(x[3], truth, kDepth, dtype);
    INFO(dtype << ": most " << most);
    CHECK(most < 0.3);  // weights of 16 bits: above 1
  }
}
