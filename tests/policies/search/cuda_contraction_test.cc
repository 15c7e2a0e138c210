// Contractions in CUDA, run on the CPU by an emulation of the device and compared with plain loops over the program in
// double precision: matrix products of all orders, convolutions of all kinds, three precisions, shares of the sum.

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <random>

#include "policies/search/lower.h"
#include "policies/search/write.h"
#include "tests/catch.h"
#include "tests/policies/search/kernel_cases.h"

using namespace kevin;
using namespace kevin::test;

namespace {

const std::string kProductsHead = "#include <array>\n#include \"" KEVIN_SOURCE_DIR "/tests/policies/search/cuda_on_cpu.h\"\n"
                                  "#include \"" KEVIN_SOURCE_DIR "/tests/policies/search/cuda_products_on_cpu.h\"";

struct GraphCase {
  std::string op, args;  // in the form of the graph's JSON; operands are values 0, 1, ...
  std::vector<std::vector<int64_t>> inputs;
  std::vector<int64_t> output;
  std::string dtype = "float32";
  search::Setting setting = {};
};

// Values of expressions at one point, in double precision; integers are exact in it.
class Interpreter {
 public:
  std::vector<std::vector<double>> buffers;
  std::map<int, int64_t> variables;
  double result = 0;

  double Of(const search::ExprPtr& e) const {
    const auto at = [&](size_t i) { return Of(e->args[i]); };
    const std::string& op = e->op;
    if (op == "constant") return e->type == search::Type::kFloat ? e->number : static_cast<double>(e->integer);
    if (op == "variable") return static_cast<double>(variables.at(e->id));
    if (op == "load") return buffers.at(static_cast<size_t>(e->id)).at(static_cast<size_t>(at(0)));
    if (op == "result") return result;
    if (op == "guard" || op == "select") return at(0) != 0 ? at(1) : at(2);
    if (op == "sum") {
      double sum = static_cast<double>(e->integer);
      for (size_t i = 0; i < e->args.size(); ++i) sum += static_cast<double>(e->coefficients[i]) * at(i);
      return sum;
    }
    if (op == "div") return std::floor(at(0) / static_cast<double>(e->integer));
    if (op == "mod") return at(0) - std::floor(at(0) / static_cast<double>(e->integer)) * static_cast<double>(e->integer);
    if (op == "product" || op == "mul") return at(0) * at(1);
    if (op == "less") return at(0) < at(1);
    if (op == "less_equal") return at(0) <= at(1);
    if (op == "equal") return at(0) == at(1);
    if (op == "and") return at(0) != 0 && at(1) != 0;
    if (op == "add") return at(0) + at(1);
    if (op == "maximum") return std::max(at(0), at(1));
    throw std::runtime_error("the interpreter lacks " + op);
  }
};

void ForEachPoint(const std::vector<search::Loop>& loops, size_t first, std::map<int, int64_t>& variables,
                  const std::function<void()>& body, const std::function<int64_t(size_t)>& extent) {
  if (first == loops.size()) return body();
  for (int64_t i = 0, end = extent(first); i < end; ++i) {
    variables[loops[first].variable] = i;
    ForEachPoint(loops, first + 1, variables, body, extent);
  }
}

std::vector<search::Loop> Together(const std::vector<std::vector<search::Loop>>& lists) {
  std::vector<search::Loop> all;
  for (const auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

// Does the program's contractions. Returns the largest sum of magnitudes.
double Interpret(const search::Program& program, Interpreter& run) {
  double largest = 0;
  for (const search::Stage& stage : program.stages) {
    const auto& c = std::get<search::Contraction>(stage.work);
    const auto full = [](const std::vector<search::Loop>& loops) { return [&loops](size_t i) { return loops[i].extent; }; };
    const std::vector<search::Loop> outer = Together({c.batch, c.m, c.n});
    ForEachPoint(outer, 0, run.variables, [&] {
      double sum = 0, magnitude = 0;
      ForEachPoint(c.k, 0, run.variables, [&] {
        const double term = run.Of(c.lhs) * run.Of(c.rhs);
        sum += term;
        magnitude += std::abs(term);
      }, [&](size_t i) {
        return i < c.k_limits.size() && c.k_limits[i] ? static_cast<int64_t>(run.Of(c.k_limits[i])) : c.k[i].extent;
      });
      run.result = sum;
      largest = std::max(largest, magnitude);
      for (const search::Store& store : c.stores) {
        if (store.guard && run.Of(store.guard) == 0) continue;
        run.buffers.at(static_cast<size_t>(store.buffer)).at(static_cast<size_t>(run.Of(store.offset))) = run.Of(store.value);
      }
    }, full(outer));
  }
  return largest;
}

std::string JsonOf(const GraphCase& one) {
  std::string inputs, values;
  for (size_t i = 0; i < one.inputs.size(); ++i) {
    inputs += fmt::format("{}{{\"name\":\"in{}\",\"value\":{}}}", i ? "," : "", i, i);
    values += fmt::format("{{\"dtype\":\"{}\",\"shape\":[{}]}},", one.dtype, fmt::join(one.inputs[i], ","));
  }
  values += fmt::format("{{\"dtype\":\"{}\",\"shape\":[{}]}}", one.dtype, fmt::join(one.output, ","));
  return fmt::format("{{\"version\":1,\"inputs\":[{}],\"values\":[{}],\"nodes\":[{{\"op\":\"{}\",\"args\":{{{}}},\"results\":[{}]}}],\"outputs\":[{}]}}",
                     inputs, values, one.op, one.args, one.inputs.size(), one.inputs.size());
}

Task TaskOf(const GraphCase& one) {
  const std::string element = one.dtype == "float16" ? "__half" : one.dtype == "bfloat16" ? "__nv_bfloat16" : "float";
  Task task;
  task.kind = "cuda";
  for (size_t i = 0; i <= one.inputs.size(); ++i) {
    const bool is_output = i == one.inputs.size();
    const std::string name = is_output ? "out0" : fmt::format("in{}", i);
    task.arguments.push_back({name, is_output ? "output" : "input", (is_output ? "" : "const ") + element + "*",
                              is_output ? one.output : one.inputs[i], {}});
    task.signature += fmt::format("{}{} {}", i ? ", " : "", task.arguments.back().cpp_type, name);
  }
  task.signature = "void launch(" + task.signature + ")";
  return task;
}

search::Program ProgramOf(const GraphCase& one) {
  search::Program program = search::Lower(search::ParseGraph(JsonOf(one)), TaskOf(one));
  search::Fuse(program);
  return program;
}

// Knobs of stage 0 that stand in the text become constants, as the environment makes them.
std::string SourceFor(const GraphCase& one) {
  std::string text = search::WriteCuda(ProgramOf(one), TaskOf(one), one.setting), constants;
  for (const auto& [name, value] : one.setting) constants += fmt::format("constexpr int {} = {};\n", name, value);
  return ToCpp(constants + text);
}

int64_t CountOf(const std::vector<int64_t>& shape) {
  int64_t count = 1;
  for (const int64_t size : shape) count *= size;
  return count;
}

uint16_t Rounded(const std::string& dtype, float x) {
  if (dtype == "float16") return std::bit_cast<uint16_t>(static_cast<_Float16>(x));
  return static_cast<uint16_t>(std::bit_cast<uint32_t>(x) >> 16);
}
float Widened(const std::string& dtype, uint16_t bits) {
  if (dtype == "float16") return static_cast<float>(std::bit_cast<_Float16>(bits));
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

void CheckCase(const GraphCase& one, const KernelLibrary& library, size_t index) {
  const search::Program program = ProgramOf(one);
  Interpreter run;
  for (const search::Buffer& buffer : program.buffers) run.buffers.emplace_back(static_cast<size_t>(buffer.elements), NAN);
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  const bool is_narrow = one.dtype != "float32";
  std::vector<decltype(Allocate<float>(1))> tensors;
  std::vector<void*> pointers;
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const search::Buffer& buffer = program.buffers[i];
    if (buffer.argument < 0) continue;
    tensors.push_back(Allocate<float>(buffer.elements + 64));
    std::memset(tensors.back().get(), 0xff, static_cast<size_t>(buffer.elements + 64) * 4);
    pointers.resize(std::max(pointers.size(), static_cast<size_t>(buffer.argument) + 1));
    pointers[static_cast<size_t>(buffer.argument)] = tensors.back().get();
    auto* narrow = reinterpret_cast<uint16_t*>(tensors.back().get());
    for (int64_t e = 0; e < buffer.elements && !buffer.is_output; ++e) {
      float value = normal(random);
      if (is_narrow) narrow[e] = Rounded(one.dtype, value), value = Widened(one.dtype, narrow[e]);
      else tensors.back()[static_cast<size_t>(e)] = value;
      run.buffers[i][static_cast<size_t>(e)] = static_cast<double>(value);
    }
  }
  const double magnitude = Interpret(program, run);
  library.Launch(index, pointers);
  INFO(one.op << " " << one.args << " " << one.dtype << " " << fmt::format("{}", fmt::join(one.output, "x")) << " #" << index);
  for (size_t i = 0; i < program.buffers.size(); ++i) {
    const search::Buffer& buffer = program.buffers[i];
    if (!buffer.is_output) continue;
    const auto* out = static_cast<float*>(pointers[static_cast<size_t>(buffer.argument)]);
    double worst = 0;
    int64_t where = -1;
    for (int64_t e = 0; e < buffer.elements; ++e) {
      const double wanted = run.buffers[i][static_cast<size_t>(e)];
      const double got = is_narrow ? static_cast<double>(Widened(one.dtype, reinterpret_cast<const uint16_t*>(out)[e])) : static_cast<double>(out[e]);
      const double allowed = magnitude * 6e-7 + (is_narrow ? std::abs(wanted) * (one.dtype == "float16" ? 6e-4 : 5e-3) : 0) + (is_narrow ? 1e-4 : 0);
      const double error = std::isnan(got) ? 1e30 : std::abs(got - wanted) / allowed;
      if (error > worst) worst = error, where = e;
    }
    INFO("element " << where << " is off by " << worst << " bounds");
    CHECK(worst < 1);
    const int64_t end = is_narrow ? buffer.elements / 2 + 1 : buffer.elements;
    CHECK(std::isnan(out[end]));
  }
}

void CheckAll(const std::vector<GraphCase>& cases) {
  std::vector<std::string> sources;
  for (const GraphCase& one : cases) sources.push_back(SourceFor(one));
  const KernelLibrary library(sources, "-O1", kProductsHead);
  for (size_t i = 0; i < cases.size(); ++i) CheckCase(cases[i], library, i);
}

constexpr const char* kMatmul = "\"self\":{\"tensor\":0},\"other\":{\"tensor\":1}";
constexpr const char* kLinear = "\"input\":{\"tensor\":0},\"weight\":{\"tensor\":1},\"bias\":{\"tensor\":2}";

std::string Conv(const std::string& stride, const std::string& padding, const std::string& dilation, int groups, bool bias = false) {
  return fmt::format("\"input\":{{\"tensor\":0}},\"weight\":{{\"tensor\":1}},\"bias\":{},\"stride\":{},\"padding\":{},\"dilation\":{},\"groups\":{}",
                     bias ? "{\"tensor\":2}" : "null", stride, padding, dilation, groups);
}
std::string Transposed(const std::string& stride, const std::string& padding, const std::string& dilation, int groups) {
  return Conv(stride, padding, dilation, groups) + ",\"output_padding\":[0,0]";
}

std::vector<GraphCase> Products() {
  return {{"matmul", kMatmul, {{70, 36}, {36, 130}}, {70, 130}},
          {"matmul", kMatmul, {{1, 37}, {37, 1}}, {1, 1}},
          {"matmul", kMatmul, {{67, 37}, {37, 29}}, {67, 29}},
          {"linear", kLinear, {{33, 52}, {71, 52}, {71}}, {33, 71}},
          {"linear", kLinear, {{3, 5, 19}, {7, 19}, {7}}, {3, 5, 7}},
          {"matmul", kMatmul, {{3, 40, 20}, {3, 20, 24}}, {3, 40, 24}},
          {"matmul", kMatmul, {{2, 3, 17, 12}, {3, 12, 8}}, {2, 3, 17, 8}},
          {"einsum", "\"equation\":\"ki,jk->ij\",\"tensors\":{\"tensors\":[0,1]}", {{44, 36}, {20, 44}}, {36, 20}},
          {"einsum", "\"equation\":\"bijl,lk->bijk\",\"tensors\":{\"tensors\":[0,1]}", {{2, 3, 5, 16}, {16, 12}}, {2, 3, 5, 12}}};
}

std::vector<GraphCase> Convolutions() {
  return {{"conv2d", Conv("[1,1]", "[1,1]", "[1,1]", 1), {{2, 5, 9, 11}, {6, 5, 3, 3}}, {2, 6, 9, 11}},
          {"conv2d", Conv("[2,2]", "[0,0]", "[1,1]", 1, true), {{2, 3, 11, 8}, {4, 3, 3, 3}, {4}}, {2, 4, 5, 3}},
          {"conv2d", Conv("[1,2]", "[2,1]", "[2,3]", 2), {{1, 4, 9, 12}, {6, 2, 3, 2}}, {1, 6, 9, 6}},
          {"conv2d", Conv("[1,1]", "[0,0]", "[1,1]", 1), {{3, 8, 6, 6}, {20, 8, 1, 1}}, {3, 20, 6, 6}},
          {"conv1d", Conv("[3]", "[0]", "[4]", 1), {{2, 7, 40}, {5, 7, 3}}, {2, 5, 11}},
          {"conv3d", Conv("[1,1,2]", "[1,0,1]", "[1,2,1]", 1), {{1, 3, 5, 6, 7}, {4, 3, 2, 2, 3}}, {1, 4, 6, 4, 4}},
          {"conv_transpose2d", Transposed("[2,2]", "[1,1]", "[1,1]", 1), {{2, 6, 5, 4}, {6, 5, 3, 3}}, {2, 5, 9, 7}},
          {"conv_transpose2d", Transposed("[1,1]", "[0,0]", "[1,1]", 1), {{1, 4, 6, 5}, {4, 7, 3, 2}}, {1, 7, 8, 6}},
          {"conv_transpose2d", Transposed("[3,2]", "[1,0]", "[1,1]", 2), {{2, 4, 4, 5}, {4, 3, 5, 3}}, {2, 6, 12, 11}},
          {"conv_transpose2d", Transposed("[2,1]", "[1,1]", "[2,2]", 1), {{1, 3, 5, 6}, {3, 4, 3, 3}}, {1, 4, 11, 8}}};
}

// Enough uses of odd operands that they are copied first.
std::vector<GraphCase> Packed() {
  return {{"matmul", kMatmul, {{521, 131}, {131, 523}}, {521, 523}},
          {"conv2d", Conv("[1,1]", "[1,1]", "[1,1]", 2), {{2, 6, 40, 40}, {22, 3, 3, 3}}, {2, 22, 40, 40}},
          {"conv_transpose2d", Transposed("[2,2]", "[1,1]", "[1,1]", 1), {{3, 6, 32, 30}, {6, 61, 3, 3}}, {3, 61, 63, 59}}};
}

// Few rows or columns and many terms.
std::vector<GraphCase> Narrow() {
  return {{"matmul", kMatmul, {{7, 20480}, {20480, 1}}, {7, 1}},
          {"linear", kLinear, {{3, 1032}, {10, 1032}, {10}}, {3, 10}},
          {"linear", kLinear, {{10, 712}, {40, 712}, {40}}, {10, 40}},
          {"matmul", kMatmul, {{2, 5, 640}, {2, 640, 1}}, {2, 5, 1}}};
}

std::vector<GraphCase> WithType(std::vector<GraphCase> cases, const std::string& dtype) {
  for (GraphCase& one : cases) one.dtype = dtype;
  return cases;
}

// Every case with knobs in the text.
std::vector<GraphCase> WithKnobs(std::vector<GraphCase> cases, int64_t via, const std::vector<std::array<int64_t, 4>>& settings) {
  size_t next = 0;
  for (GraphCase& one : cases) {
    const auto& [tile, split, stages, depth] = settings[next++ % settings.size()];
    one.setting = {{"TILE_0", tile}, {"SPLIT_K_0", split}, {"STAGES_0", stages}, {"TILE_K_0", depth}, {"VIA_0", via}};
  }
  return cases;
}

}  // namespace

TEST_CASE("matrix products in CUDA agree with plain loops") { CheckAll(Products()); }

TEST_CASE("convolutions in CUDA agree with plain loops") { CheckAll(Convolutions()); }

TEST_CASE("operands that are copied first agree with plain loops") {
  CheckAll(Packed());
  CheckAll(WithType(Packed(), "float16"));
  CHECK(SourceFor(Packed()[0]).find("ProductCopy") != std::string::npos);
}

TEST_CASE("products of few columns agree with plain loops") {
  CheckAll(Narrow());
  CheckAll(WithType(Narrow(), "bfloat16"));
}

TEST_CASE("products in 16 bits agree with plain loops") {
  CheckAll(WithType(Products(), "float16"));
  CheckAll(WithType(Convolutions(), "bfloat16"));
}

TEST_CASE("every tile, share and depth agrees with plain loops") {
  CheckAll(WithKnobs(Products(), 0, {{128128, 1, 3, 16}, {128064, 2, 2, 16}, {32128, 3, 4, 32}, {64064, 1, 2, 32}, {32032, 2, 3, 16}}));
  CheckAll(WithKnobs(Convolutions(), 0, {{32032, 1, 3, 16}, {64032, 2, 2, 32}, {32064, 3, 4, 16}, {16128, 2, 3, 32}, {32256, 1, 2, 16}}));
  CheckAll(WithKnobs(Products(), 1, {{64128, 2, 3, 16}, {128032, 1, 2, 32}, {64064, 3, 2, 16}, {32064, 2, 4, 32}, {16064, 1, 3, 32}, {64256, 1, 2, 16}}));
}
