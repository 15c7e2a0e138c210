// Contractions in CUDA, run on the CPU by an emulation of the device and compared with plain loops over the program in
// double precision: matrix products of all orders, convolutions of all kinds, three precisions, shares of the sum.

#include <fmt/format.h>

#include <array>

#include "tests/catch.h"
#include "tests/policies/search/cuda_graph_cases.h"

using namespace kevin;
using namespace kevin::test;

namespace {

void CheckAll(const std::vector<GraphCase>& cases) {
  std::vector<std::string> sources;
  for (const GraphCase& one : cases) sources.push_back(SourceFor(one));
  const KernelLibrary library(sources, "-O1 -fno-strict-aliasing -w", kProductsHead);
  for (size_t i = 0; i < cases.size(); ++i) {
    const GraphCase& one = cases[i];
    const std::string name =
        fmt::format("{} {} {} {}", one.op, one.args, one.dtype, fmt::join(one.output, "x"));
    double terms = 1;
    for (const int64_t size : one.inputs[1]) terms *= static_cast<double>(size);
    CheckProgram(
        {name, ProgramOf(one), terms / static_cast<double>(one.output.size() > 1 ? one.output[1] : 1)},
        library, i);
  }
}

constexpr const char* kMatmul = "\"self\":{\"tensor\":0},\"other\":{\"tensor\":1}";
constexpr const char* kLinear = "\"input\":{\"tensor\":0},\"weight\":{\"tensor\":1},\"bias\":{\"tensor\":2}";

std::string Conv(const std::string& stride, const std::string& padding, const std::string& dilation,
                 int groups, bool bias = false) {
  return fmt::format(
      "\"input\":{{\"tensor\":0}},\"weight\":{{\"tensor\":1}},\"bias\":{},\"stride\":{},\"padding\":{},\"dilation\":{},\"groups\":{}",
      bias ? "{\"tensor\":2}" : "null", stride, padding, dilation, groups);
}
std::string Transposed(const std::string& stride, const std::string& padding, const std::string& dilation,
                       int groups) {
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
          {"einsum",
           "\"equation\":\"ki,jk->ij\",\"tensors\":{\"tensors\":[0,1]}",
           {{44, 36}, {20, 44}},
           {36, 20}},
          {"einsum",
           "\"equation\":\"bijl,lk->bijk\",\"tensors\":{\"tensors\":[0,1]}",
           {{2, 3, 5, 16}, {16, 12}},
           {2, 3, 5, 12}}};
}

std::vector<GraphCase> Convolutions() {
  return {
      {"conv2d", Conv("[1,1]", "[1,1]", "[1,1]", 1), {{2, 5, 9, 11}, {6, 5, 3, 3}}, {2, 6, 9, 11}},
      {"conv2d", Conv("[2,2]", "[0,0]", "[1,1]", 1, true), {{2, 3, 11, 8}, {4, 3, 3, 3}, {4}}, {2, 4, 5, 3}},
      {"conv2d", Conv("[1,2]", "[2,1]", "[2,3]", 2), {{1, 4, 9, 12}, {6, 2, 3, 2}}, {1, 6, 9, 6}},
      {"conv2d", Conv("[1,1]", "[0,0]", "[1,1]", 1), {{3, 8, 6, 6}, {20, 8, 1, 1}}, {3, 20, 6, 6}},
      {"conv1d", Conv("[3]", "[0]", "[4]", 1), {{2, 7, 40}, {5, 7, 3}}, {2, 5, 11}},
      {"conv3d",
       Conv("[1,1,2]", "[1,0,1]", "[1,2,1]", 1),
       {{1, 3, 5, 6, 7}, {4, 3, 2, 2, 3}},
       {1, 4, 6, 4, 4}},
      {"conv_transpose2d",
       Transposed("[2,2]", "[1,1]", "[1,1]", 1),
       {{2, 6, 5, 4}, {6, 5, 3, 3}},
       {2, 5, 9, 7}},
      {"conv_transpose2d",
       Transposed("[1,1]", "[0,0]", "[1,1]", 1),
       {{1, 4, 6, 5}, {4, 7, 3, 2}},
       {1, 7, 8, 6}},
      {"conv_transpose2d",
       Transposed("[3,2]", "[1,0]", "[1,1]", 2),
       {{2, 4, 4, 5}, {4, 3, 5, 3}},
       {2, 6, 12, 11}},
      {"conv_transpose2d",
       Transposed("[2,1]", "[1,1]", "[2,2]", 1),
       {{1, 3, 5, 6}, {3, 4, 3, 3}},
       {1, 4, 11, 8}},
      {"conv_transpose2d",
       Transposed("[5,5]", "[1,1]", "[2,2]", 1),
       {{2, 6, 4, 5}, {6, 5, 3, 3}},
       {2, 5, 18, 23}},
      {"conv_transpose2d",
       Transposed("[2,4]", "[0,1]", "[1,1]", 2),
       {{1, 4, 3, 4}, {4, 3, 2, 4}},
       {1, 6, 6, 14}}};
}

// Enough uses of odd operands that they are copied first.
std::vector<GraphCase> Packed() {
  return {{"matmul", kMatmul, {{521, 131}, {131, 523}}, {521, 523}},
          {"conv2d", Conv("[1,1]", "[1,1]", "[1,1]", 2), {{2, 6, 40, 40}, {22, 3, 3, 3}}, {2, 22, 40, 40}},
          {"conv_transpose2d",
           Transposed("[2,2]", "[1,1]", "[1,1]", 1),
           {{3, 6, 32, 30}, {6, 61, 3, 3}},
           {3, 61, 63, 59}}};
}

// Few rows or columns and many terms.
std::vector<GraphCase> Narrow() {
  return {{"matmul", kMatmul, {{7, 20480}, {20480, 1}}, {7, 1}},
          {"linear", kLinear, {{3, 1032}, {10, 1032}, {10}}, {3, 10}},
          {"linear", kLinear, {{10, 712}, {40, 712}, {40}}, {10, 40}},
          {"matmul", kMatmul, {{2, 5, 640}, {2, 640, 1}}, {2, 5, 1}}};
}

// Tiles by wgmma: matrices of all orders, batches, odd sizes, convolutions as windows.
std::vector<GraphCase> Wgmma(const std::string& dtype) {
  struct Form {
    GraphCase one;
    int64_t tile, split, stages;
  };
  const std::vector<Form> forms = {
      {{"matmul", kMatmul, {{136, 200}, {200, 264}}, {136, 264}}, 128128, 1, 4},
      {{"linear", kLinear, {{70, 136}, {88, 136}, {88}}, {70, 88}}, 64128, 2, 3},
      {{"matmul", kMatmul, {{3, 72, 64}, {3, 64, 40}}, {3, 72, 40}}, 128064, 1, 3},
      {{"matmul", kMatmul, {{200, 40}, {40, 296}}, {200, 296}}, 128256, 1, 4},
      {{"einsum",
        "\"equation\":\"ki,jk->ij\",\"tensors\":{\"tensors\":[0,1]}",
        {{72, 80}, {48, 72}},
        {80, 48}},
       64256,
       1,
       3},
      {{"einsum",
        "\"equation\":\"ik,kj->ji\",\"tensors\":{\"tensors\":[0,1]}",
        {{40, 136}, {136, 72}},
        {72, 40}},
       128064,
       2,
       3},
      {{"conv2d",
        Conv("[1,1]", "[1,1]", "[1,1]", 1, true),
        {{2, 40, 8, 16}, {48, 40, 3, 3}, {48}},
        {2, 48, 8, 16}},
       64128,
       1,
       4},
      {{"conv2d", Conv("[2,2]", "[3,3]", "[1,1]", 1), {{2, 3, 21, 18}, {33, 3, 7, 7}}, {2, 33, 11, 9}},
       128064,
       2,
       3},
      {{"conv2d", Conv("[2,1]", "[1,0]", "[1,2]", 2), {{2, 36, 12, 11}, {40, 18, 3, 2}}, {2, 40, 6, 9}},
       64128,
       1,
       3},
      {{"conv2d", Conv("[2,2]", "[0,0]", "[1,1]", 1), {{3, 40, 8, 7}, {36, 40, 1, 1}}, {3, 36, 4, 4}},
       64128,
       1,
       3},
      {{"conv1d", Conv("[3]", "[0]", "[4]", 1), {{2, 17, 60}, {35, 17, 3}}, {2, 35, 18}}, 64128, 1, 3},
      {{"conv3d",
        Conv("[1,1,2]", "[1,0,1]", "[1,2,1]", 1),
        {{1, 20, 5, 6, 7}, {33, 20, 2, 2, 3}},
        {1, 33, 6, 4, 4}},
       64128,
       1,
       3},
      {{"conv_transpose2d",
        Transposed("[2,2]", "[1,1]", "[1,1]", 1),
        {{2, 20, 7, 6}, {20, 36, 3, 3}},
        {2, 36, 13, 11}},
       64128,
       1,
       3},
      {{"conv_transpose2d",
        Transposed("[1,1]", "[0,0]", "[1,1]", 1),
        {{1, 70, 6, 6}, {70, 33, 3, 2}},
        {1, 33, 8, 7}},
       128064,
       1,
       3}};
  std::vector<GraphCase> cases;
  for (const auto& [one, tile, split, stages] : forms) {
    cases.push_back(one);
    cases.back().dtype = dtype;
    cases.back().setting = {{"VIA_0", 5}, {"TILE_0", tile}, {"SPLIT_K_0", split}, {"STAGES_0", stages}};
  }
  return cases;
}

std::vector<GraphCase> WithType(std::vector<GraphCase> cases, const std::string& dtype) {
  for (GraphCase& one : cases) one.dtype = dtype;
  return cases;
}

// Every case with knobs in the text.
std::vector<GraphCase> WithKnobs(std::vector<GraphCase> cases, int64_t via,
                                 const std::vector<std::array<int64_t, 4>>& settings) {
  size_t next = 0;
  for (GraphCase& one : cases) {
    const auto& [tile, split, stages, depth] = settings[next++ % settings.size()];
    one.setting = {
        {"TILE_0", tile}, {"SPLIT_K_0", split}, {"STAGES_0", stages}, {"TILE_K_0", depth}, {"VIA_0", via}};
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

TEST_CASE(
    "two large matrices of 16 bits and large convolutions of full channels go by wgmma first, others do not") {
  GraphCase small{"matmul", kMatmul, {{136, 200}, {200, 264}}, {136, 264}, "bfloat16"};
  CHECK(SourceFor(small).find("ContractTiles<") == std::string::npos);
  GraphCase product{"matmul", kMatmul, {{2048, 2048}, {2048, 2048}}, {2048, 2048}};
  CHECK(SourceFor(product).find("ContractTiles<") == std::string::npos);
  product.dtype = "bfloat16";
  CHECK(SourceFor(product).find("ContractTiles<") != std::string::npos);
  product.inputs = {{16, 4096}, {4096, 4096}}, product.output = {16, 4096};
  CHECK(SourceFor(product).find("ContractTiles<") == std::string::npos);  // 48 of 64 rows would be zeros
  for (const GraphCase& one : WithType(Convolutions(), "bfloat16"))
    CHECK(SourceFor(one).find("ContractTiles<") == std::string::npos);
  const auto convolution = [](int64_t channels, const char* dtype, int64_t results = 64) {
    return SourceFor({"conv2d",
                      Conv("[1,1]", "[1,1]", "[1,1]", 1),
                      {{16, channels, 64, 64}, {results, channels, 3, 3}},
                      {16, results, 64, 64},
                      dtype});
  };
  CHECK(convolution(64, "bfloat16").find("ContractTiles<") != std::string::npos);
  CHECK(convolution(15, "float16").find("ContractTiles<") != std::string::npos);
  CHECK(convolution(17, "float16").find("ContractTiles<") ==
        std::string::npos);  // 15 of 32 channels would be zeros
  CHECK(convolution(64, "bfloat16", 16).find("ContractTiles<") != std::string::npos);
  CHECK(convolution(64, "bfloat16", 15).find("ContractTiles<") == std::string::npos);
  CHECK(convolution(64, "float32").find("ContractTiles<") == std::string::npos);
}

TEST_CASE("small products in 16 bits, whose warps divide the terms, agree with plain loops") {
  const std::vector<GraphCase> cases = {{"linear", kLinear, {{33, 200}, {72, 200}, {72}}, {33, 72}},
                                        {"linear", kLinear, {{4, 328}, {100, 328}, {100}}, {4, 100}},
                                        {"matmul", kMatmul, {{70, 136}, {136, 88}}, {70, 88}},
                                        {"matmul", kMatmul, {{3, 40, 72}, {3, 72, 56}}, {3, 40, 56}},
                                        {"einsum",
                                         "\"equation\":\"ki,jk->ij\",\"tensors\":{\"tensors\":[0,1]}",
                                         {{72, 80}, {48, 72}},
                                         {80, 48}},
                                        {"einsum",
                                         "\"equation\":\"ik,kj->ji\",\"tensors\":{\"tensors\":[0,1]}",
                                         {{40, 136}, {136, 72}},
                                         {72, 40}}};
  const std::vector<std::array<int64_t, 3>> settings = {
      {16032, 4, 128}, {32032, 3, 128}, {32064, 2, 64}, {64032, 4, 64}, {64064, 3, 128}};
  for (const std::string dtype : {"float16", "bfloat16"}) {
    std::vector<GraphCase> all = WithType(cases, dtype);
    for (size_t i = 0; i < 2 * settings.size(); ++i) {
      const auto& [tile, stages, depth] = settings[i % settings.size()];
      all.push_back(all[i % cases.size()]);
      all.back().setting = {
          {"VIA_0", dtype == "float16" ? 3 : 4}, {"TILE_0", tile}, {"STAGES_0", stages}, {"TILE_K_0", depth}};
    }
    for (const GraphCase& one : all) CHECK(SourceFor(one).find(" / 16 ? 8 / ") != std::string::npos);
    CheckAll(all);
  }
}

TEST_CASE("products by wgmma agree with plain loops") {
  CheckAll(Wgmma("float16"));
  CheckAll(Wgmma("bfloat16"));
  for (const GraphCase& one : Wgmma("float16"))
    CHECK(SourceFor(one).find("ContractTiles<") != std::string::npos);
}

TEST_CASE("every tile, share and depth agrees with plain loops") {
  CheckAll(WithKnobs(
      Products(), 0,
      {{128128, 1, 3, 16}, {128064, 2, 2, 16}, {32128, 3, 4, 32}, {64064, 1, 2, 32}, {32032, 2, 3, 16}}));
  CheckAll(WithKnobs(
      Convolutions(), 0,
      {{32032, 1, 3, 16}, {64032, 2, 2, 32}, {32064, 3, 4, 16}, {16128, 2, 3, 32}, {32256, 1, 2, 16}}));
  CheckAll(WithKnobs(Products(), 1,
                     {{64128, 2, 3, 16},
                      {128032, 1, 2, 32},
                      {64064, 3, 2, 16},
                      {32064, 2, 4, 32},
                      {16064, 1, 3, 32},
                      {64256, 1, 2, 16}}));
}
